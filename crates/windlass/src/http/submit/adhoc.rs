//! Ad-hoc flows: a task that brings its steps along instead of the name of a flow.
//!
//! The steps become a flow of the catalogue whose name says what is in it, so that the same steps are stored once and
//! everything else (versions, history, new runs) is as for any other flow. Lists of flows leave them out, and they
//! go once no task has them any more.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use windlass_core::{ADHOC_HASH_CHARS, ADHOC_PREFIX, Flow, Name, hex};

use crate::flowfile::{self, FlowError, Format};
use crate::http::{
    answer::problem::Refused,
    request::{json_path, place_of},
};

/// What a task says in place of the name of a flow: keys of a flow file, as they lie in the body.
#[derive(Debug, Default)]
pub(in crate::http) struct Workflow<'a> {
    /// The keys with their documents, in the order in which they are looked at.
    pub(in crate::http) keys: [(&'static str, Option<&'a RawValue>); 5],
}

impl Workflow<'_> {
    /// Whether there is anything of it.
    pub(in crate::http) fn is_there(&self) -> bool {
        self.keys.iter().any(|(_, document)| document.is_some())
    }

    /// The flow they make. `body` is the text they lie in; an error names its path and its place there.
    pub(in crate::http) fn compile(&self, body: &str) -> Result<Flow, Refused> {
        let text = Text::of(self, body);
        if let Some(flow) = COMPILED.get(&text.text) {
            return Ok(flow);
        }
        let refused = |error| text.refused(error, body);
        let sources = flowfile::read(&text.text, Format::Json).map_err(refused)?;
        let source = sources.first().ok_or_else(|| Refused::malformed("`steps` makes no flow"))?;
        let flow = flowfile::compile(source).map_err(refused)?;
        let flow = Flow { name: name(&flow)?, ..flow };
        COMPILED.insert(text.text, &flow);
        Ok(flow)
    }
}

/// Clients send the same steps many times, so compiled flows are cached.
static COMPILED: Compiled = Compiled(Mutex::new(BTreeMap::new()));

/// The maximum number of cached flows. A full cache is emptied.
const COMPILED_MAX: usize = 256;

/// The maximum size of a cached flow's source, in bytes.
const COMPILED_BYTES_MAX: usize = 4 << 10;

/// Compiled flows by their source. The result of compiling depends on the source alone, so entries never expire.
struct Compiled(Mutex<BTreeMap<String, Flow>>);

impl Compiled {
    fn get(&self, text: &str) -> Option<Flow> {
        self.flows().get(text).cloned()
    }

    fn insert(&self, text: String, flow: &Flow) {
        let mut flows = self.flows();
        if flows.len() >= COMPILED_MAX {
            flows.clear();
        }
        if text.len() <= COMPILED_BYTES_MAX {
            flows.insert(text, flow.clone());
        }
    }

    fn flows(&self) -> MutexGuard<'_, BTreeMap<String, Flow>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A hash of the flow as it would be written: what means the same has the same name, however it was written.
fn name(flow: &Flow) -> Result<Name, Refused> {
    let document = serde_json::to_vec(&flowfile::document(flow))
        .map_err(|error| Refused::fault(format!("the flow cannot be written: {error}")))?;
    let hash = Sha256::digest(&document);
    let hash = hex(&hash[..ADHOC_HASH_CHARS / 2]);
    Name::new(&format!("{ADHOC_PREFIX}{hash}")).map_err(|error| Refused::fault(error.to_string()))
}

/// The steps as the text of a flow file, and where its pieces are in the body.
struct Text {
    text: String,
    /// Where each piece begins here and in the body, and how long it is.
    pieces: Vec<(usize, usize, usize)>,
}

impl Text {
    fn of(workflow: &Workflow<'_>, body: &str) -> Self {
        let mut text = r#"{"flow":"adhoc""#.to_owned();
        let mut pieces = Vec::new();
        for (key, document) in &workflow.keys {
            let Some(document) = document else { continue };
            text.push_str(&format!(",\"{key}\":"));
            // Documents are borrowed from the body, so their place in it is known.
            let in_body = (document.get().as_ptr() as usize).saturating_sub(body.as_ptr() as usize);
            pieces.push((text.len(), in_body, document.get().len()));
            text.push_str(document.get());
        }
        text.push('}');
        Self { text, pieces }
    }

    /// The refusal of mistakes in this text.
    fn refused(&self, error: FlowError, body: &str) -> Refused {
        let others = error.others.iter().map(|error| self.in_body(error, body)).collect();
        FlowError { others, ..self.in_body(&error, body) }.into()
    }

    /// A mistake in this text: its path, and its line and column in the body.
    fn in_body(&self, error: &FlowError, body: &str) -> FlowError {
        let Some(at) = error.line.zip(error.column).and_then(|place| byte_at(&self.text, place)) else {
            return FlowError::new(error.message.clone());
        };
        let path = json_path::path(&self.text, at);
        let message =
            if path.is_empty() { error.message.clone() } else { format!("{path}: {}", error.message) };
        let piece = self.pieces.iter().find(|(start, _, len)| (*start..start + len).contains(&at));
        let place = piece.map(|(start, in_body, _)| place_of(body, in_body + at - start));
        let (line, column) = place.unzip();
        FlowError { line, column, ..FlowError::new(message) }
    }
}

/// The byte at a line and character, both from 1.
fn byte_at(text: &str, (line, column): (u64, u64)) -> Option<usize> {
    let before = usize::try_from(line).ok()?.checked_sub(1)?;
    let start: usize = text.split_inclusive('\n').take(before).map(str::len).sum();
    let column = usize::try_from(column).ok()?.checked_sub(1)?;
    let within = text.get(start..)?.char_indices().nth(column).map_or(text.len() - start, |(index, _)| index);
    Some(start + within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_bytes_are_the_same_places() {
        let text = "größe\n  x\n";
        for at in text.char_indices().map(|(index, _)| index) {
            assert_eq!(byte_at(text, place_of(text, at)), Some(at), "{at}");
        }
    }
}
