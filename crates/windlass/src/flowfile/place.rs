//! Where the parts of a flow are in its text, so that mistakes found later can still be pointed at.

use std::collections::BTreeMap;

use super::tree::{Node, Value};

/// Bytes of the text by path: `flow`, `steps[2]`, `steps[2].retry.cap`.
#[derive(Debug, Clone, Default)]
pub(super) struct Places(BTreeMap<String, usize>);

impl Places {
    /// The places of everything in a document, except inside its parameters, which nothing looks into.
    pub(super) fn of(root: &Node) -> Self {
        let mut places = Self::default();
        places.add(String::new(), root);
        places
    }

    /// Notes the place of a path, unless it is known.
    pub(super) fn note(&mut self, path: String, at: usize) {
        self.0.entry(path).or_insert(at);
    }

    /// The place of a path, or of the nearest thing around it that is there.
    pub(super) fn find(&self, path: &str) -> usize {
        let mut path = path;
        loop {
            if let Some(at) = self.0.get(path) {
                return *at;
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => return self.0.get("").copied().unwrap_or(0),
            }
        }
    }

    fn add(&mut self, path: String, node: &Node) {
        match &node.value {
            Value::Map(entries) => {
                for entry in entries.iter().filter(|entry| !(path.is_empty() && entry.key == "params")) {
                    let inner =
                        if path.is_empty() { entry.key.clone() } else { format!("{path}.{}", entry.key) };
                    self.add(inner, &entry.value);
                }
            }
            Value::List(nodes) => {
                for (index, node) in nodes.iter().enumerate() {
                    self.add(format!("{path}[{index}]"), node);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => {}
        }
        self.note(path, node.at);
    }
}
