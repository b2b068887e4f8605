//! The JSON Schema of a flow in a file, made of the documents that the contract of the HTTP interface is made of. Editors
//! use it to complete and check flow files while somebody writes them.

use serde_json::{Map, Value, json};
use utoipa::{PartialSchema as _, ToSchema as _};
use windlass_api::FlowDocument;

/// The JSON Schema (2020-12) of one flow, as pretty JSON with a newline at the end.
#[must_use]
pub fn schema() -> String {
    let mut parts = Vec::new();
    FlowDocument::schemas(&mut parts);
    let parts: Map<_, _> = parts.into_iter().map(|(name, part)| (name, json!(part))).collect();
    let mut schema = json!(FlowDocument::schema());
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("A flow of Windlass");
    // `PUT /v1/flows/{name}` has the name in its path, and a file has it in the flow.
    schema["required"] = json!(["flow", "steps"]);
    schema["$defs"] = Value::Object(parts);
    point_to_definitions(&mut schema);
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

/// Has references name the definitions of the schema, and not those of the contract.
fn point_to_definitions(schema: &mut Value) {
    match schema {
        Value::Object(entries) => {
            for (key, value) in entries {
                match value {
                    Value::String(reference) if key == "$ref" => {
                        *reference = reference.replace("#/components/schemas/", "#/$defs/");
                    }
                    value => point_to_definitions(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(point_to_definitions),
        _ => {}
    }
}
