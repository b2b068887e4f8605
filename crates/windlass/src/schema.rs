//! JSON Schemas of files, made of the types that the files are read into. Editors use them to complete and check a file while
//! somebody writes it.

use serde_json::{Map, Value, json};
use utoipa::ToSchema;

/// The JSON Schema (2020-12) of files that are read as a `T`.
pub(crate) fn of<T: ToSchema>(title: &str) -> Value {
    let mut parts = Vec::new();
    T::schemas(&mut parts);
    let parts: Map<_, _> = parts.into_iter().map(|(name, part)| (name, json!(part))).collect();
    let mut schema = json!(T::schema());
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!(title);
    schema["$defs"] = Value::Object(parts);
    point_to_definitions(&mut schema);
    schema
}

/// A schema as pretty JSON with a newline at the end.
pub(crate) fn to_text(schema: &Value) -> String {
    let mut text = serde_json::to_string_pretty(schema).unwrap_or_default();
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
