//! The JSON Schema of a flow in a file, made of the documents that the contract of the HTTP interface is made of.

use serde_json::json;
use windlass_api::FlowDocument;

/// The JSON Schema of one flow, as text.
#[must_use]
pub fn schema() -> String {
    let mut schema = crate::schema::of::<FlowDocument>("A flow of Windlass");
    // `PUT /v1/flows/{name}` has the name in its path, and a file has it in the flow.
    schema["required"] = json!(["flow", "steps"]);
    crate::schema::to_text(&schema)
}
