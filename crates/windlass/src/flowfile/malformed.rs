//! Properties of every flow file, for fuzzing: see [`crate::malformed`].

use windlass_core::Flow;
use windlass_store::stored;

use super::{FlowError, Format, Source, compile, compile_document, device, document, read, read_devices};
use crate::malformed::check_message;

/// Reads and compiles the bytes as YAML, as JSON and as TOML.
pub fn flow_file(bytes: &[u8]) {
    // Callers refuse input that is not UTF-8 before they parse it.
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for format in [Format::Yaml, Format::Json, Format::Toml] {
        match read(text, format) {
            Ok(sources) => sources.iter().for_each(|source| check_source(source, text)),
            Err(error) => check_error(&error, text),
        }
    }
}

/// Reads the bytes as a file of devices in YAML, in JSON and in TOML.
pub fn device_file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for format in [Format::Yaml, Format::Json, Format::Toml] {
        let documents = match read_devices(text, format) {
            Ok(documents) => documents,
            Err(error) => {
                check_error(&error, text);
                continue;
            }
        };
        for document in documents {
            let declared = device(&document).unwrap_or_else(|error| panic!("taken, but unusable: {error}"));
            let text = serde_json::to_string(&document).unwrap_or_default();
            let again = read_devices(&text, Format::Json).map(|mut devices| devices.remove(0));
            assert_eq!(again.as_ref(), Ok(&document), "the file makes another device: {text}");
            assert_eq!(stored::read_device(&stored::write_device(&declared)).ok(), Some(declared));
        }
    }
}

fn check_source(source: &Source, text: &str) {
    match compile(source) {
        Ok(flow) => check_flow(&flow),
        Err(error) => check_error(&error, text),
    }
}

/// A flow stays the same when it is written as a document, or as a JSON file, and compiled again.
fn check_flow(flow: &Flow) {
    let document = document(flow);
    assert_eq!(compile_document(&document).as_ref(), Ok(flow), "the document makes another flow");
    let text = serde_json::to_string(&document).unwrap_or_default();
    let again = read(&text, Format::Json).and_then(|sources| compile(&sources[0]));
    assert_eq!(again.as_ref(), Ok(flow), "the file makes another flow: {text}");
}

fn check_error(error: &FlowError, text: &str) {
    check_message(&error.message);
    let (line, column) = (error.line.unwrap_or(0), error.column.unwrap_or(0));
    let at = usize::try_from(line).unwrap_or(0).checked_sub(1).and_then(|index| text.split('\n').nth(index));
    let Some(at) = at else { panic!("line {line} is not in the text: {error}") };
    let length = at.chars().count() as u64;
    assert!((1..=length + 1).contains(&column), "column {column} of {length}: {error}");
}
