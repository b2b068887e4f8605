//! An entry of a list: what its value says, and how its value changes. No I/O.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use windlass_core::TaskId;

use super::fields::Fields;
use crate::{
    http::LABEL_BYTES_MAX,
    task_list::settings::{TaskListSettings, WhenEnded},
};

/// The field that this program adds: who has taken the entry.
const MARK: &str = "windlassTask";

/// The field that says how a task has ended.
const STATUS: &str = "taskStatus";

/// The field that says why a task has failed.
const ERROR: &str = "taskError";

/// The field that says whether a consumer has taken the entry.
const TAKEN: &str = "taskTaken";

/// The longest value, in bytes: the limit of a transaction of Consul, 512 KiB, with Base64 and room for what is added.
const VALUE_BYTES_MAX: usize = 256 << 10;

/// What Windlass may add to an entry: its mark, the status and the error of its task. Consul accepts 512 KiB in all.
const MARK_BYTES_MAX: usize = 64 << 10;

/// The value of an entry.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    fields: Fields,
    /// `taskTaken` is a string rather than a boolean.
    taken_is_text: bool,
    /// When it was written, in Unix seconds: earlier entries come first.
    pub(super) time: f64,
    id: String,
    kind: String,
    /// Who had taken it before.
    mark: Option<Mark>,
}

/// Who has taken an entry: this is in its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    /// The store whose servers have taken it.
    pub(super) store: String,
    /// The id under which the task is submitted.
    #[serde(with = "task_id")]
    pub(super) task: TaskId,
    /// Counts how often the entry was put back after its task had ended. From 1.
    pub(super) run: u32,
    /// How its task has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended: Option<String>,
}

/// What a value is.
#[derive(Debug, Clone)]
pub(super) enum Read {
    /// Nobody has taken it.
    Waiting(Entry),
    /// A server of Windlass has taken it, and its task has not ended.
    Marked(Entry, Mark),
    /// It is nothing to us: another consumer has taken it, or its task has ended.
    Theirs,
    /// It cannot be used, for this reason.
    Broken(String),
}

/// How a task has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    /// The status of the task.
    pub(super) status: String,
    pub(super) succeeded: bool,
    pub(super) message: Option<String>,
}

/// What becomes of an entry whose task has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Settlement {
    /// It is deleted.
    Delete,
    /// It is moved to the done prefix, with this value.
    Move(String),
    /// It stays, with this value.
    Keep(String),
}

/// Reads a value.
pub(super) fn read(value: &[u8]) -> Read {
    match Entry::read(value) {
        Ok(read) => read,
        Err(why) => Read::Broken(why),
    }
}

impl Entry {
    fn read(value: &[u8]) -> Result<Read, String> {
        let limit = |limit: usize| match value.len() {
            length if length > limit => Err(format!("it has {length} bytes: the limit is {limit}")),
            _ => Ok(()),
        };
        limit(VALUE_BYTES_MAX + MARK_BYTES_MAX)?;
        let text = std::str::from_utf8(value).map_err(|error| format!("it is not UTF-8: {error}"))?;
        let fields: Fields =
            serde_json::from_str(text).map_err(|error| format!("it is not a JSON object: {error}"))?;
        let (is_taken, taken_is_text) = match field(&fields, TAKEN)?.get() {
            "false" => (false, false),
            "true" => (true, false),
            r#""false""# => (false, true),
            r#""true""# => (true, true),
            other => return Err(format!("its `{TAKEN}` is {}: use true or false", excerpt(other))),
        };
        let mark = fields.get(MARK).and_then(|mark| serde_json::from_str::<Mark>(mark.get()).ok());
        if mark.is_none() {
            limit(VALUE_BYTES_MAX)?;
        }
        let is_ended = mark.as_ref().is_some_and(|mark| mark.ended.is_some());
        if is_taken && (mark.is_none() || is_ended) {
            return Ok(Read::Theirs);
        }
        let time = word(&fields, "taskTime")?;
        let time: f64 = time
            .trim()
            .parse()
            .ok()
            .filter(|time: &f64| time.is_finite())
            .ok_or_else(|| format!("its `taskTime` is {}: use Unix seconds", excerpt(&time)))?;
        let (id, kind) = (word(&fields, "taskId")?, word(&fields, "taskType")?);
        let entry = Self { fields, taken_is_text, time, id, kind, mark };
        Ok(match (is_taken, entry.mark.clone()) {
            (true, Some(mark)) => Read::Marked(entry, mark),
            _ => Read::Waiting(entry),
        })
    }

    /// The document of `POST /v1/tasks`. The parameters are passed on unchanged, digit for digit.
    pub(super) fn document(&self, settings: &TaskListSettings) -> Result<String, String> {
        let flow = settings
            .flows
            .of(&self.kind)
            .ok_or_else(|| format!("no flow is configured for its `taskType` {}", excerpt(&self.kind)))?;
        let whole = serde_json::value::to_raw_value(&self.fields).map_err(|error| error.to_string())?;
        let pointer = &settings.params;
        let params = pointer
            .find(&whole)
            .map_err(|error| format!("it cannot be read up to {pointer}: {error}"))?
            .ok_or_else(|| format!("it has nothing at {pointer}, where its parameters should be"))?;
        let is_label = !self.id.is_empty() && self.id.len() <= LABEL_BYTES_MAX;
        let labels = if is_label { serde_json::json!({ "taskId": self.id }) } else { serde_json::json!({}) };
        Ok(format!(
            r#"{{"flow":{},"params":{},"labels":{labels}}}"#,
            serde_json::Value::from(flow.as_str()),
            params.get()
        ))
    }

    /// The mark with which a server of this store takes the entry. An entry whose task had ended before runs again; one
    /// that was put back while its task runs is the same task.
    pub(super) fn next_mark(&self, store: &str, task: TaskId) -> Mark {
        match self.mark.as_ref().filter(|mark| mark.store == store) {
            Some(mark) if mark.ended.is_none() => mark.clone(),
            before => Mark {
                store: store.to_owned(),
                task,
                run: before.map_or(1, |mark| mark.run.saturating_add(1)),
                ended: None,
            },
        }
    }

    /// The value of the entry once it is taken.
    pub(super) fn taken(mut self, mark: &Mark) -> serde_json::Result<String> {
        self.fields.remove(STATUS);
        self.fields.remove(ERROR);
        self.write(mark)
    }

    /// What becomes of the entry when its task has ended.
    pub(super) fn settled(
        mut self,
        mark: Mark,
        outcome: &Outcome,
        when_ended: WhenEnded,
    ) -> serde_json::Result<Settlement> {
        let is_kept = when_ended == WhenEnded::WriteBack && !outcome.succeeded;
        if !is_kept && when_ended != WhenEnded::Move {
            return Ok(Settlement::Delete);
        }
        self.fields.set(STATUS, &outcome.status)?;
        if let Some(message) = &outcome.message {
            self.fields.set(ERROR, message)?;
        }
        let value = self.write(&Mark { ended: Some(outcome.status.clone()), ..mark })?;
        Ok(if is_kept { Settlement::Keep(value) } else { Settlement::Move(value) })
    }

    /// Writes `taskTaken` in the form that was found, and the mark.
    fn write(mut self, mark: &Mark) -> serde_json::Result<String> {
        if self.taken_is_text { self.fields.set(TAKEN, "true") } else { self.fields.set(TAKEN, true) }?;
        self.fields.set(MARK, mark)?;
        serde_json::to_string(&self.fields)
    }
}

fn field<'f>(fields: &'f Fields, name: &str) -> Result<&'f RawValue, String> {
    fields.get(name).ok_or_else(|| format!("it has no field `{name}`"))
}

/// A field that is a string or a number.
fn word(fields: &Fields, name: &str) -> Result<String, String> {
    let text = field(fields, name)?.get();
    match text.as_bytes().first() {
        Some(b'"') => serde_json::from_str(text).map_err(|error| format!("its `{name}`: {error}")),
        Some(b'-' | b'0'..=b'9') => Ok(text.to_owned()),
        _ => Err(format!("its `{name}` is {}: use a string", excerpt(text))),
    }
}

/// The beginning of a text, for messages.
fn excerpt(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}

/// Task ids as users see them.
mod task_id {
    use serde::{Deserialize, Deserializer, Serializer, de};
    use windlass_core::TaskId;

    pub(super) fn serialize<S: Serializer>(id: &TaskId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(id)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<TaskId, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = r#"{"taskId":"7","taskTime":"1700000000","taskTaken":"false","taskType":"create","taskPara":{"cpu":1.10},"by":"x"}"#;

    fn settings(rest: &str) -> TaskListSettings {
        let section = toml::from_str(&format!("consul = \"consul://h\"\n{rest}")).unwrap();
        crate::task_list::read(vec![section]).unwrap().remove(0)
    }

    fn waiting(value: &str) -> Entry {
        match read(value.as_bytes()) {
            Read::Waiting(entry) => entry,
            other => panic!("{value}: {other:?}"),
        }
    }

    fn marked(value: &str) -> (Entry, Mark) {
        match read(value.as_bytes()) {
            Read::Marked(entry, mark) => (entry, mark),
            other => panic!("{value}: {other:?}"),
        }
    }

    #[test]
    fn the_take_keeps_all_fields_and_the_form_of_task_taken() {
        for (before, after) in [(r#""false""#, r#""true""#), ("false", "true")] {
            let entry = waiting(&VALUE.replace(r#""false""#, before));
            let mark = entry.next_mark("s", TaskId(7));
            let taken = entry.taken(&mark).unwrap();
            let expected = VALUE.replace(r#""false""#, after);
            let fields = expected.strip_suffix('}').unwrap();
            let id = TaskId(7);
            assert_eq!(taken, format!(r#"{fields},"windlassTask":{{"store":"s","task":"{id}","run":1}}}}"#));
            assert_eq!(marked(&taken).1, mark);
        }
    }

    #[test]
    fn the_largest_entry_is_known_once_it_is_taken() {
        let by = "x".repeat(VALUE_BYTES_MAX - VALUE.len() + 1);
        let largest = VALUE.replace(r#""by":"x""#, &format!(r#""by":"{by}""#));
        assert_eq!(largest.len(), VALUE_BYTES_MAX);
        let entry = waiting(&largest);
        let mark = entry.next_mark("s", TaskId(7));
        assert_eq!(marked(&entry.taken(&mark).unwrap()).1, mark);
    }

    #[test]
    fn what_others_have_taken_is_theirs_whatever_else_it_says() {
        for theirs in [
            &*VALUE.replace("false", "true"),
            r#"{"taskTaken":true}"#,
            r#"{"taskTaken":"true","windlassTask":7}"#,
        ] {
            assert!(matches!(read(theirs.as_bytes()), Read::Theirs), "{theirs}");
        }
    }

    #[test]
    fn what_cannot_be_used_says_why() {
        let without = |name: &str| VALUE.replace(&format!("\"{name}\""), "\"other\"");
        for (value, words) in [
            (String::new(), "not a JSON object"),
            ("{".to_owned(), "not a JSON object"),
            ("[]".to_owned(), "a JSON object"),
            (without("taskTaken"), "no field `taskTaken`"),
            (without("taskTime"), "no field `taskTime`"),
            (without("taskType"), "no field `taskType`"),
            (without("taskId"), "no field `taskId`"),
            (VALUE.replace("false", "no"), "its `taskTaken` is \"no\""),
            (VALUE.replace("1700000000", "soon"), "use Unix seconds"),
            (VALUE.replace("1700000000", "inf"), "use Unix seconds"),
            (VALUE.replace(r#""create""#, "{}"), "its `taskType` is {}"),
            (format!("{VALUE}{}", " ".repeat(VALUE_BYTES_MAX)), "the limit is 262144"),
        ] {
            let Read::Broken(why) = read(value.as_bytes()) else { panic!("{value}") };
            assert!(why.contains(words), "{value}: {why}");
        }
        assert!(matches!(read(b"\xff"), Read::Broken(why) if why.contains("UTF-8")));
    }

    #[test]
    fn a_task_is_the_flow_of_its_type_with_its_parameters() {
        let entry = waiting(VALUE);
        let document = entry.document(&settings("flows = { create = \"f\" }")).unwrap();
        assert_eq!(document, r#"{"flow":"f","params":{"cpu":1.10},"labels":{"taskId":"7"}}"#);
        let other = entry.document(&settings("flow = \"g\"\nparams = \"/none\"")).unwrap_err();
        assert!(other.contains("nothing at /none"), "{other}");
        let none = entry.document(&settings("flows = { drop = \"f\" }")).unwrap_err();
        assert!(none.contains("no flow is configured for its `taskType` create"), "{none}");
        let long = waiting(&VALUE.replace(r#""7""#, &format!("\"{}\"", "7".repeat(129))));
        assert!(long.document(&settings("flow = \"g\"")).unwrap().ends_with(r#""labels":{}}"#));
    }

    #[test]
    fn an_ended_task_is_deleted_moved_or_written_back() {
        let entry = waiting(VALUE);
        let mark = entry.next_mark("s", TaskId(7));
        let (entry, mark) = marked(&entry.taken(&mark).unwrap());
        let failed =
            Outcome { status: "failed".to_owned(), succeeded: false, message: Some("no space".to_owned()) };
        let done = Outcome { status: "succeeded".to_owned(), succeeded: true, message: None };
        let settled = |outcome, when| entry.clone().settled(mark.clone(), outcome, when).unwrap();
        assert_eq!(settled(&failed, WhenEnded::Delete), Settlement::Delete);
        assert_eq!(settled(&done, WhenEnded::WriteBack), Settlement::Delete);
        let Settlement::Move(moved) = settled(&done, WhenEnded::Move) else { panic!("it is moved") };
        assert!(moved.contains(r#""taskStatus":"succeeded""#) && !moved.contains("taskError"), "{moved}");
        let Settlement::Keep(kept) = settled(&failed, WhenEnded::WriteBack) else { panic!("it is kept") };
        assert!(kept.contains(r#""taskStatus":"failed","taskError":"no space""#), "{kept}");
        assert!(kept.contains(r#""taskTaken":"true""#) && kept.contains(r#""by":"x""#), "{kept}");
        assert!(matches!(read(kept.as_bytes()), Read::Theirs), "it is settled once");
    }

    #[test]
    fn an_entry_that_is_put_back_runs_again_only_after_its_end() {
        let first = waiting(VALUE);
        let mark = first.next_mark("s", TaskId(7));
        let taken = first.taken(&mark).unwrap();
        let put_back = waiting(&taken.replace(r#""taskTaken":"true""#, r#""taskTaken":"false""#));
        assert_eq!(put_back.next_mark("s", TaskId(8)), mark, "its task still runs");
        let moved = put_back.next_mark("other", TaskId(8));
        assert_eq!((moved.task, moved.run), (TaskId(8), 1), "another store knows nothing of it");
        let failed = Outcome { status: "failed".to_owned(), succeeded: false, message: Some("x".to_owned()) };
        let (entry, mark) = marked(&taken);
        let Settlement::Keep(kept) = entry.settled(mark, &failed, WhenEnded::WriteBack).unwrap() else {
            panic!("it is kept")
        };
        let again = waiting(&kept.replace(r#""taskTaken":"true""#, r#""taskTaken":"false""#));
        let mark = again.next_mark("s", TaskId(9));
        assert_eq!((mark.task, mark.run, &mark.ended), (TaskId(9), 2, &None));
        let taken = again.taken(&mark).unwrap();
        assert!(!taken.contains("taskError") && !taken.contains("taskStatus"), "{taken}");
    }
}
