//! Signatures: what a client asks for.

use std::{borrow::Cow, collections::BTreeMap, fmt, ops::Range};

use serde::{
    Deserialize, Deserializer as _,
    de::{MapAccess, Visitor},
};
use serde_json::{Value, value::RawValue};
use windlass_api::TRACEPARENT_HEADER;

use super::value::TypedValue;

/// A signature. Documents within it are read when they are needed, so that its depth costs nothing.
#[derive(Debug, Clone)]
pub(super) struct Signature {
    text: Box<str>,
    /// All fields in the order in which they were sent. The library ignores the case of their names, and fields that it does
    /// not know. Of several fields with one name the last one counts.
    fields: Vec<Field>,
    /// How many signatures it is in.
    depth: u8,
}

#[derive(Debug, Clone)]
struct Field {
    name: FieldName,
    /// The place of its value in the text.
    value: Range<usize>,
}

#[derive(Debug, Clone)]
enum FieldName {
    /// A part of the text, at this place.
    AsSent(Range<usize>),
    /// A name that is written with escapes.
    Escaped(Box<str>),
}

impl FieldName {
    fn of<'a>(&'a self, text: &'a str) -> &'a str {
        match self {
            Self::AsSent(place) => &text[place.clone()],
            Self::Escaped(name) => name,
        }
    }
}

/// Reads the fields of an object in this text.
struct Fields<'a>(&'a str);

#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Visitor<'de> for Fields<'de> {
    type Value = Vec<Field>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<Field>, A::Error> {
        let mut fields = Vec::with_capacity(20);
        while let Some((Key(name), value)) = map.next_entry::<Key<'de>, &'de RawValue>()? {
            let name = match name {
                Cow::Borrowed(name) => FieldName::AsSent(place_of(name, self.0)),
                Cow::Owned(name) => FieldName::Escaped(name.into()),
            };
            fields.push(Field { name, value: place_of(value.get(), self.0) });
        }
        Ok(fields)
    }
}

/// The place of a part of a text.
fn place_of(part: &str, text: &str) -> Range<usize> {
    let start = part.as_ptr().addr() - text.as_ptr().addr();
    start..start + part.len()
}

impl Signature {
    /// Reads the text of a signature.
    ///
    /// # Errors
    /// When it is not a JSON object.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut json = serde_json::Deserializer::from_str(text);
        let fields = json.deserialize_map(Fields(text)).and_then(|fields| json.end().map(|()| fields));
        let fields =
            fields.map_err(|error| bounded(format!("the signature is not a JSON object: {error}")))?;
        Ok(Self { text: text.into(), fields, depth: 0 })
    }

    /// The same within this number of other signatures.
    pub(super) fn at_depth(self, depth: u8) -> Self {
        Self { depth, ..self }
    }

    /// The number of signatures in which it was sent.
    pub(super) fn depth(&self) -> u8 {
        self.depth
    }

    /// The text, with these arguments added after those that it has, or before them.
    pub(super) fn with_args(&self, before: &[TypedValue], after: &[TypedValue]) -> Result<String, String> {
        let args = before.iter().cloned().chain(self.args()?).chain(after.iter().cloned());
        let args: Vec<TypedValue> = args.collect();
        let args = serde_json::value::to_raw_value(&args).map_err(|error| error.to_string())?;
        let mut fields = BTreeMap::new();
        for Field { name, value } in &self.fields {
            let name = name.of(&self.text);
            fields.insert(name.to_ascii_lowercase(), (name, &self.text[value.clone()]));
        }
        let name = fields.get("args").map_or("Args", |(name, _)| *name);
        fields.insert("args".to_owned(), (name, args.get()));
        let fields = fields.into_values().map(|(name, value)| Ok((name, serde_json::from_str(value)?)));
        let fields: Result<BTreeMap<&str, &RawValue>, serde_json::Error> = fields.collect();
        fields.and_then(|fields| serde_json::to_string(&fields)).map_err(|error| error.to_string())
    }

    /// The UUID of its task.
    pub(super) fn uuid(&self) -> Result<String, String> {
        self.field("UUID")
    }

    /// The name of what is to be run.
    pub(super) fn name(&self) -> Result<String, String> {
        self.field("Name")
    }

    /// The queue; empty = the default one.
    pub(super) fn routing_key(&self) -> Result<String, String> {
        self.field("RoutingKey")
    }

    /// The time before which it does not start.
    pub(super) fn eta(&self) -> Result<Option<jiff::Timestamp>, String> {
        let text: Option<String> = self.field("ETA")?;
        let invalid = |text: &str| format!("`ETA` is {text:?}: expected a time such as 2030-01-31T08:00:00Z");
        text.map(|text| text.parse().map_err(|_| invalid(&text))).transpose()
    }

    /// UUID of the group that it belongs to; empty = none.
    pub(super) fn group(&self) -> Result<String, String> {
        self.field("GroupUUID")
    }

    /// The number of tasks of its group.
    pub(super) fn group_count(&self) -> Result<u64, String> {
        self.field("GroupTaskCount")
    }

    /// Arguments.
    pub(super) fn args(&self) -> Result<Vec<TypedValue>, String> {
        self.field("Args")
    }

    /// Headers, as they were sent.
    pub(super) fn headers(&self) -> Option<&RawValue> {
        serde_json::from_str(self.raw("Headers")?).ok()
    }

    /// The W3C trace context in its headers.
    pub(super) fn traceparent(&self) -> Option<String> {
        let headers: BTreeMap<String, Value> = serde_json::from_str(self.headers()?.get()).ok()?;
        headers.get(TRACEPARENT_HEADER)?.as_str().map(str::to_owned)
    }

    /// Its priority.
    pub(super) fn priority(&self) -> Result<u8, String> {
        self.field("Priority")
    }

    /// Whether results of other tasks are not added to the arguments: those of a chord to its callback, and its own to
    /// those that follow it.
    pub(super) fn is_immutable(&self) -> Result<bool, String> {
        self.field("Immutable")
    }

    /// How often it is tried again.
    pub(super) fn retries(&self) -> Result<u32, String> {
        self.field("RetryCount")
    }

    /// The pause before it was tried the last time, in seconds.
    pub(super) fn retry_timeout(&self) -> Result<u32, String> {
        self.field("RetryTimeout")
    }

    /// What follows a success.
    pub(super) fn on_success(&self) -> Result<Vec<Self>, String> {
        self.signatures("OnSuccess")
    }

    /// What follows a failure.
    pub(super) fn on_error(&self) -> Result<Vec<Self>, String> {
        self.signatures("OnError")
    }

    /// What follows the success of the whole group.
    pub(super) fn chord_callback(&self) -> Result<Option<Self>, String> {
        const FIELD: &str = "ChordCallback";
        let parse = |text| Self::parse(text).map_err(|error| format!("`{FIELD}`: {error}"));
        Ok(self.raw(FIELD).map(parse).transpose()?.map(|callback| self.within(callback)))
    }

    /// Group UUID of the signature. Absent if the group has no chord callback.
    pub(super) fn chord_group(&self) -> Option<String> {
        self.chord_callback().ok()??;
        self.group().ok().filter(|group| !group.is_empty())
    }

    fn signatures(&self, name: &str) -> Result<Vec<Self>, String> {
        let texts: Vec<&RawValue> = self.field(name)?;
        let signatures = texts.iter().map(|text| Ok(self.within(Self::parse(text.get())?)));
        let signatures: Result<_, String> = signatures.collect();
        signatures.map_err(|error| format!("`{name}`: {error}"))
    }

    fn within(&self, signature: Self) -> Self {
        signature.at_depth(self.depth.saturating_add(1))
    }

    /// A field; the default where it is absent or null.
    fn field<'a, T: Deserialize<'a> + Default>(&'a self, name: &str) -> Result<T, String> {
        let Some(raw) = self.raw(name) else { return Ok(T::default()) };
        serde_json::from_str(raw).map_err(|error| format!("`{name}`: {error}"))
    }

    /// The text of a field; `None` where it is absent or null.
    fn raw(&self, name: &str) -> Option<&str> {
        let is_named = |field: &&Field| field.name.of(&self.text).eq_ignore_ascii_case(name);
        let field = self.fields.iter().rev().find(is_named)?;
        Some(&self.text[field.value.clone()]).filter(|value| *value != "null")
    }
}

/// The longest reason of a refusal, in bytes: values of a client may be in it.
const REASON_BYTES_MAX: usize = 1_000;

/// A reason, or the beginning of a long one.
pub(super) fn bounded(mut why: String) -> String {
    if why.len() > REASON_BYTES_MAX {
        why.truncate(why.floor_char_boundary(REASON_BYTES_MAX));
        why.push('…');
    }
    why
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a client of the library writes it.
    const SENT: &str = r#"{"UUID":"task_1","Name":"add","RoutingKey":"machinery_tasks","ETA":"2030-01-31T08:00:00.123456789Z","GroupUUID":"","GroupTaskCount":0,"Args":[{"Name":"","Type":"int64","Value":9223372036854775807}],"Headers":{},"Priority":3,"Immutable":false,"RetryCount":2,"RetryTimeout":0,"OnSuccess":[{"UUID":"task_2","Name":"mul","Args":null}],"OnError":null,"ChordCallback":null,"BrokerMessageGroupId":"","SQSReceiptHandle":"","StopTaskDeletionOnError":false,"IgnoreWhenTaskNotRegistered":false}"#;

    #[test]
    fn a_signature_is_read_as_it_was_sent() {
        let signature = Signature::parse(SENT).unwrap();
        assert_eq!(signature.uuid().as_deref(), Ok("task_1"));
        assert_eq!((signature.retries(), signature.priority()), (Ok(2), Ok(3)));
        assert_eq!(signature.eta().unwrap().unwrap().to_string(), "2030-01-31T08:00:00.123456789Z");
        assert!(signature.chord_callback().unwrap().is_none());
        let next = signature.on_success().unwrap().remove(0);
        let text = next.with_args(&[], &signature.args().unwrap()).unwrap();
        assert_eq!(
            text,
            r#"{"Args":[{"Type":"int64","Value":9223372036854775807}],"Name":"mul","UUID":"task_2"}"#
        );
    }

    #[test]
    fn names_of_fields_have_any_case() {
        let signature =
            Signature::parse(r#"{"uuid":"u","name":"n","args":[{"type":"bool","value":true}]}"#).unwrap();
        assert_eq!((signature.uuid().as_deref(), signature.name().as_deref()), (Ok("u"), Ok("n")));
        let text = signature.with_args(&signature.args().unwrap(), &[]).unwrap();
        assert_eq!(text.matches("true").count(), 2, "{text}");
    }

    #[test]
    fn of_several_fields_with_one_name_the_last_one_counts() {
        let text =
            r#"{"UUID":"a","uuid":"b","N\u0061me":"n","ARGS":null,"Args":[{"Type":"bool","Value":true}]}"#;
        let signature = Signature::parse(text).unwrap();
        assert_eq!((signature.uuid().as_deref(), signature.name().as_deref()), (Ok("b"), Ok("n")));
        let text = signature.with_args(&[], &[]).unwrap();
        assert_eq!(text, r#"{"Args":[{"Type":"bool","Value":true}],"Name":"n","uuid":"b"}"#);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        assert!(Signature::parse("[]").unwrap_err().contains("not a JSON object"));
        let signature =
            Signature::parse(r#"{"ETA":"soon","RetryCount":-1,"Args":[{}],"OnError":[1]}"#).unwrap();
        assert!(signature.eta().unwrap_err().contains("`ETA` is \"soon\""));
        assert!(signature.retries().unwrap_err().starts_with("`RetryCount`: "));
        assert!(signature.args().unwrap_err().starts_with("`Args`: missing field `Type`"));
        assert!(signature.on_error().is_err());
        let signature = Signature::parse(r#"{"Args":[5]}"#).unwrap();
        let why = signature.args().unwrap_err();
        assert!(why.contains("expected an object with `Type` and `Value`"), "{why}");
    }

    #[test]
    fn a_signature_knows_in_how_many_others_it_is() {
        let text = r#"{"OnError":[{"UUID":"a","ChordCallback":{"UUID":"b","OnSuccess":[{"UUID":"c"}]}}]}"#;
        let first = Signature::parse(text).unwrap().on_error().unwrap().remove(0);
        let callback = first.chord_callback().unwrap().unwrap();
        let next = callback.on_success().unwrap().remove(0);
        assert_eq!([first.depth(), callback.depth(), next.depth()], [1, 2, 3]);
    }

    #[test]
    fn a_deep_chain_is_read_level_by_level() {
        let depth = 5_000;
        let text =
            format!("{}{}", r#"{"UUID":"u","Name":"n","OnSuccess":["#.repeat(depth), "]}".repeat(depth));
        let signature = Signature::parse(&text);
        assert!(signature.is_ok() || signature.unwrap_err().contains("recursion"), "no crash");
    }
}
