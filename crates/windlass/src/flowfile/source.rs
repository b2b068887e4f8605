//! The parsed documents of a flow file, and the places of their parts.

use std::{
    collections::HashSet,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use windlass_api::FlowDocument;

use super::{
    FlowError, Format, classic, document,
    error::{Fault, quote},
    json,
    place::Places,
    toml,
    tree::{Node, Value},
    yaml,
};

/// The longest flow file: ten times the size of 256 steps with all keys written out.
pub const FILE_BYTES_MAX: usize = 1024 * 1024;

/// One flow of a file, before it is compiled. Derefs to its document.
#[derive(Debug, Clone)]
pub struct Source {
    /// The document in the file.
    pub document: FlowDocument,
    text: Arc<str>,
    places: Places,
}

impl Source {
    /// An error at a path of the document, such as `steps[2].retry.cap`.
    #[must_use]
    pub fn error(&self, path: &str, message: String) -> FlowError {
        FlowError::at(&self.text, self.places.find(path), message)
    }
}

impl Deref for Source {
    type Target = FlowDocument;

    fn deref(&self) -> &FlowDocument {
        &self.document
    }
}

impl DerefMut for Source {
    fn deref_mut(&mut self) -> &mut FlowDocument {
        &mut self.document
    }
}

/// Reads one file: a YAML text with one flow per document, a JSON or TOML text with one flow, or a classic
/// catalogue.
///
/// # Errors
/// The first mistake, with its line and column.
pub fn read(text: &str, format: Format) -> Result<Vec<Source>, FlowError> {
    if text.len() > FILE_BYTES_MAX {
        return Err(FlowError::new(format!(
            "the flow file has {} bytes: the limit is {FILE_BYTES_MAX}; split it",
            text.len()
        )));
    }
    // Some editors start a file with a byte order mark. No format counts it as a character.
    let text: Arc<str> = text.strip_prefix('\u{feff}').unwrap_or(text).into();
    sources(&text, format).map_err(|fault| fault.locate(&text))
}

fn sources(text: &Arc<str>, format: Format) -> Result<Vec<Source>, Fault> {
    let roots = match format {
        Format::Yaml => yaml::trees(text)?,
        Format::Json => vec![json::tree(text)?],
        Format::Toml => vec![toml::tree(text)?],
    };
    let (mut sources, mut names) = (Vec::new(), HashSet::new());
    for (document, places) in
        roots.into_iter().map(flows).collect::<Result<Vec<_>, _>>()?.into_iter().flatten()
    {
        if let Some(name) = document.flow.as_ref().filter(|name| !names.insert((*name).clone())) {
            let message = format!("duplicate flow {}: use different names", quote(name));
            return Err(Fault::new(places.find("flow"), message));
        }
        sources.push(Source { document, text: Arc::clone(text), places });
    }
    if sources.is_empty() {
        return Err(Fault::new(0, "the file contains no flow: a flow has `flow`, its name, and `steps`"));
    }
    Ok(sources)
}

fn flows(root: Node) -> Result<Vec<(FlowDocument, Places)>, Fault> {
    if matches!(&root.value, Value::Map(entries) if entries.is_empty()) {
        return Ok(Vec::new());
    }
    if classic::is_catalogue(&root) {
        return classic::flows(root);
    }
    let places = Places::of(&root);
    Ok(vec![(document::flow(root)?, places)])
}
