//! A document of the library as a row, and a row as a document.

use mysql_async::Value;
use serde_json::{Value as Json, json};

/// A row of a table. Its last column is `created_at`, which is the time of each write.
pub(super) trait Row: Sized {
    /// The table.
    const TABLE: &'static str;
    /// Its columns, without the number and the time. The first one is the id.
    const COLUMNS: &'static [&'static str];

    /// What is in these columns.
    fn values(&self) -> Vec<Value>;

    /// The size of its texts.
    fn bytes(&self) -> usize;

    /// The row in place of this one, which is too long for the columns of the table.
    fn notice(&self) -> Self;
}

/// The state of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Task {
    uuid: String,
    name: String,
    state: String,
    /// JSON of the list of its results.
    results: Option<String>,
    error_info: String,
    created_at: Option<String>,
}

/// A task as it is read.
pub(super) type TaskColumns = (String, String, String, Option<String>, Option<String>, Option<String>);

/// A group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    group_uuid: String,
    /// UUIDs of its tasks.
    tasks_uuid: String,
    chord_enabled: bool,
    created_at: Option<String>,
}

/// A group as it is read.
pub(super) type GroupColumns = (String, Option<String>, Option<i8>, Option<String>);

/// A document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Document {
    Task(Task),
    Group(Group),
}

/// Reads a document of the library.
pub(super) fn read(text: &str, separator: &str) -> Option<Document> {
    let document: Json = serde_json::from_str(text).ok()?;
    let string = |name: &str| document[name].as_str().unwrap_or_default().to_owned();
    if document["GroupUUID"].is_string() {
        let uuids = document["TaskUUIDs"].as_array().map(Vec::as_slice).unwrap_or_default();
        let uuids: Vec<&str> = uuids.iter().filter_map(Json::as_str).collect();
        return Some(Document::Group(Group {
            group_uuid: string("GroupUUID"),
            tasks_uuid: uuids.join(separator),
            chord_enabled: document["ChordTriggered"].as_bool().unwrap_or_default(),
            created_at: None,
        }));
    }
    document["TaskUUID"].as_str()?;
    Some(Document::Task(Task {
        uuid: string("TaskUUID"),
        name: string("TaskName"),
        state: string("State"),
        results: raw(text, "Results"),
        error_info: string("Error"),
        created_at: None,
    }))
}

/// The text of a field as it was written, so that large numbers stay as they are; `None` = absent or null.
fn raw(text: &str, name: &str) -> Option<String> {
    let fields: std::collections::BTreeMap<String, &serde_json::value::RawValue> =
        serde_json::from_str(text).ok()?;
    fields.get(name).map(|value| value.get().to_owned()).filter(|value| value != "null")
}

impl Task {
    pub(super) fn from_columns(columns: TaskColumns) -> Self {
        let (uuid, name, state, results, error_info, created_at) = columns;
        Self { uuid, name, state, results, error_info: error_info.unwrap_or_default(), created_at }
    }

    pub(super) fn id(&self) -> &str {
        &self.uuid
    }

    /// The document. Results are put in as they are.
    pub(super) fn document(&self) -> String {
        let Self { uuid, name, state, results, error_info, created_at } = self;
        let rest = json!({ "TaskUUID": uuid, "TaskName": name, "State": state, "Error": error_info,
            "CreatedAt": time(created_at.as_deref()), "TTL": 0 });
        let rest = rest.to_string();
        let results = results.as_deref().unwrap_or("null");
        format!("{},\"Results\":{results}}}", rest.trim_end_matches('}'))
    }
}

impl Group {
    pub(super) fn from_columns(columns: GroupColumns) -> Self {
        let (group_uuid, tasks_uuid, chord_enabled, created_at) = columns;
        let chord_enabled = chord_enabled.unwrap_or_default() != 0;
        Self { group_uuid, tasks_uuid: tasks_uuid.unwrap_or_default(), chord_enabled, created_at }
    }

    pub(super) fn id(&self) -> &str {
        &self.group_uuid
    }

    pub(super) fn document(&self, separator: &str) -> String {
        let Self { group_uuid, chord_enabled, created_at, .. } = self;
        let uuids = self.uuids(separator);
        json!({ "GroupUUID": group_uuid, "TaskUUIDs": uuids, "ChordTriggered": chord_enabled, "Lock": false,
            "CreatedAt": time(created_at.as_deref()), "TTL": 0 })
        .to_string()
    }

    fn uuids(&self, separator: &str) -> Vec<&str> {
        self.tasks_uuid.split(separator).filter(|uuid| !uuid.is_empty()).collect()
    }
}

fn time(created_at: Option<&str>) -> &str {
    created_at.unwrap_or("1970-01-01T00:00:00Z")
}

impl Row for Task {
    const TABLE: &'static str = "task_state";
    const COLUMNS: &'static [&'static str] = &["uuid", "name", "state", "results", "error_info"];

    fn values(&self) -> Vec<Value> {
        let Self { uuid, name, state, results, error_info, .. } = self;
        let texts = [uuid.as_str(), name, state].map(Value::from);
        let rest = [Value::from(results.as_deref()), Value::from(error_info.as_str())];
        texts.into_iter().chain(rest).collect()
    }

    fn bytes(&self) -> usize {
        self.results.as_deref().map_or(0, str::len) + self.error_info.len()
    }

    fn notice(&self) -> Self {
        let error_info = format!(
            "the results or the error have {} bytes, which is more than the columns of {} take: make them mediumtext. \
             The task itself has them",
            self.bytes(),
            Self::TABLE
        );
        Self { results: None, error_info, ..self.clone() }
    }
}

impl Row for Group {
    const TABLE: &'static str = "group_metadata";
    const COLUMNS: &'static [&'static str] = &["group_uuid", "tasks_uuid", "chord_enabled"];

    fn values(&self) -> Vec<Value> {
        let Self { group_uuid, tasks_uuid, chord_enabled, .. } = self;
        vec![group_uuid.as_str().into(), tasks_uuid.as_str().into(), i8::from(*chord_enabled).into()]
    }

    fn bytes(&self) -> usize {
        self.tasks_uuid.len()
    }

    /// Without its tasks: they are looked for in the store.
    fn notice(&self) -> Self {
        Self { tasks_uuid: String::new(), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_rows_and_rows_are_documents() {
        let text = r#"{"TaskUUID":"task_1","TaskName":"add","State":"SUCCESS","Results":[{"Type":"int64","Value":9223372036854775807}],"Error":"","CreatedAt":"2026-01-01T00:00:00Z","TTL":0}"#;
        let Some(Document::Task(task)) = read(text, ",") else { panic!("a task") };
        let again: Json = serde_json::from_str(&task.document()).unwrap();
        assert_eq!(again["Results"].to_string(), r#"[{"Type":"int64","Value":9223372036854775807}]"#);
        assert_eq!((&again["State"], &again["TaskUUID"]), (&json!("SUCCESS"), &json!("task_1")));
        let text = r#"{"GroupUUID":"group_1","TaskUUIDs":["a","b"],"ChordTriggered":true,"CreatedAt":"x"}"#;
        let Some(Document::Group(group)) = read(text, ";") else { panic!("a group") };
        assert_eq!(group.values()[1], Value::from("a;b"));
        let again: Json = serde_json::from_str(&group.document(";")).unwrap();
        assert_eq!((&again["TaskUUIDs"], &again["ChordTriggered"]), (&json!(["a", "b"]), &json!(true)));
        assert_eq!(read("[]", ","), None);
    }

    #[test]
    fn what_is_too_long_is_said_in_its_place() {
        let task = Task {
            uuid: "u".to_owned(),
            name: "n".to_owned(),
            state: "SUCCESS".to_owned(),
            results: Some("x".repeat(70_000)),
            error_info: String::new(),
            created_at: None,
        };
        let notice = task.notice();
        assert!(notice.results.is_none() && notice.error_info.contains("70000 bytes"), "{notice:?}");
    }
}
