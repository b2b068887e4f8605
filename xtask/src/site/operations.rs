//! The operations of the HTTP API, from its contract, for the page that asks for them.

use std::{collections::BTreeMap, fmt::Write as _};

use anyhow::{Context as _, ensure};
use serde_json::Value;

/// The contract.
pub(super) const CONTRACT: &str = "docs/reference/openapi.json";

/// What a page has in the place of the operations.
const MARK: &str = "<!-- operations -->";

/// Whether a page asks for the operations.
pub(super) fn is_wanted(text: &str) -> bool {
    text.contains(MARK)
}

/// The page with the operations in their place: a table per tag, in the order of the contract.
pub(super) fn insert(text: &str, contract: &str) -> anyhow::Result<String> {
    let contract: Value = serde_json::from_str(contract)?;
    let mut by_tag: BTreeMap<&str, String> = BTreeMap::new();
    let paths = contract["paths"].as_object().context("it has no paths")?;
    for (path, methods) in paths {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            let tag = operation["tags"][0].as_str().with_context(|| format!("{method} {path} has no tag"))?;
            let _ = writeln!(by_tag.entry(tag).or_default(), "{}", row(method, path, operation));
        }
    }
    let mut tables = String::new();
    for tag in contract["tags"].as_array().into_iter().flatten() {
        let name = tag["name"].as_str().unwrap_or_default();
        let Some(rows) = by_tag.remove(name) else { continue };
        let about = tag["description"].as_str().unwrap_or_default();
        let _ = write!(
            tables,
            "## {name}\n\n{about}.\n\n| operation | what it does | body | answer |\n|---|---|---|---|\n{rows}\n"
        );
    }
    ensure!(by_tag.is_empty(), "these tags are not described: {:?}", by_tag.keys());
    Ok(text.replace(MARK, &tables))
}

fn row(method: &str, path: &str, operation: &Value) -> String {
    let summary = operation["summary"].as_str().or(operation["description"].as_str()).unwrap_or_default();
    let summary = summary.lines().next().unwrap_or_default().replace('|', "\\|");
    let body = &operation["requestBody"]["content"]["application/json"]["schema"];
    let answers = operation["responses"].as_object().into_iter().flatten();
    let answers: Vec<String> = answers
        .filter(|(status, _)| status.starts_with('2'))
        .map(|(status, answer)| {
            let schema = schema(&answer["content"]["application/json"]["schema"]);
            if schema.is_empty() { status.clone() } else { format!("{status} `{schema}`") }
        })
        .collect();
    let body = match schema(body) {
        body if body.is_empty() => body,
        body => format!("`{body}`"),
    };
    format!("| `{} {path}` | {summary} | {body} | {} |", method.to_uppercase(), answers.join(", "))
}

/// The name of a schema, or what it is made of.
fn schema(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        return reference.rsplit('/').next().unwrap_or_default().to_owned();
    }
    for of in ["oneOf", "anyOf", "allOf"] {
        if let Some(all) = schema[of].as_array() {
            let names: Vec<String> = all.iter().map(self::schema).filter(|name| !name.is_empty()).collect();
            return names.join(" or ");
        }
    }
    match &schema["items"] {
        Value::Null => String::new(),
        items => format!("list of {}", self::schema(items)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_listed_under_their_tags() {
        let contract = r##"{ "tags": [{ "name": "tasks", "description": "Starting tasks" }, { "name": "none" }],
            "paths": { "/v1/tasks": { "post": { "tags": ["tasks"], "summary": "Accepts a | task.\nMore.",
              "requestBody": { "content": { "application/json": { "schema": { "$ref": "#/components/schemas/SubmitTask" } } } },
              "responses": { "202": { "content": { "application/json": { "schema": { "$ref": "#/x/Task" } } } }, "400": {} } } } } }"##;
        let page = insert("# API\n\n<!-- operations -->\n\nend", contract).unwrap();
        assert!(is_wanted("<!-- operations -->") && !is_wanted(&page));
        assert!(page.contains("## tasks\n\nStarting tasks.\n"), "{page}");
        assert!(
            page.contains("| `POST /v1/tasks` | Accepts a \\| task. | `SubmitTask` | 202 `Task` |"),
            "{page}"
        );
        assert!(!page.contains("## none") && page.ends_with("end"), "{page}");
    }

    #[test]
    fn a_tag_that_nothing_describes_is_refused() {
        let contract =
            r#"{ "tags": [], "paths": { "/a": { "get": { "tags": ["new"], "responses": {} } } } }"#;
        assert!(insert("<!-- operations -->", contract).unwrap_err().to_string().contains("new"));
    }
}
