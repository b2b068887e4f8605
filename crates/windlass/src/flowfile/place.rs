//! The places of a flow's parts in its text, so that mistakes found later have a line and a column.

use std::collections::BTreeMap;

use super::tree::{Node, Value};

/// The depth to which places are noted: `steps[2].rollback.retry.cap` is the deepest path that is ever looked
/// up.
const DEPTH_MAX: usize = 6;

/// The longest key below which places are noted. All keys of the format are shorter than half of this.
/// Without a limit, the paths below a very long key would take many times the memory of the file.
const KEY_BYTES_MAX: usize = 32;

/// Byte offsets in the text, by path: `flow`, `steps[2]`, `steps[2].retry.cap`.
#[derive(Debug, Clone, Default)]
pub(super) struct Places(BTreeMap<String, usize>);

impl Places {
    /// The places of all parts of a document that a later mistake may name. The content of parameters is left
    /// out: its mistakes are those of `params`.
    pub(super) fn of(root: &Node) -> Self {
        let mut places = Self::default();
        places.add(String::new(), root, 0);
        places
    }

    /// Notes the place of a path, unless it is already known.
    pub(super) fn note(&mut self, path: String, at: usize) {
        self.0.entry(path).or_insert(at);
    }

    /// The place of a path, or of its nearest known parent.
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

    fn add(&mut self, path: String, node: &Node, depth: usize) {
        match &node.value {
            _ if depth == DEPTH_MAX => {}
            Value::Map(entries) => {
                for entry in entries.iter().filter(|entry| entry.key.len() <= KEY_BYTES_MAX) {
                    if path.is_empty() && entry.key == "params" {
                        self.note(entry.key.clone(), entry.value.at);
                        continue;
                    }
                    let inner =
                        if path.is_empty() { entry.key.clone() } else { format!("{path}.{}", entry.key) };
                    self.add(inner, &entry.value, depth + 1);
                }
            }
            Value::List(nodes) => {
                for (index, node) in nodes.iter().enumerate() {
                    self.add(format!("{path}[{index}]"), node, depth + 1);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => {}
        }
        self.note(path, node.at);
    }
}
