//! Parameters and labels from the command line.

use std::{collections::HashMap, fmt, io::Read as _, path::PathBuf};

use anyhow::Context as _;
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser as _, ValueParser},
};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;
use windlass_api::{Payload, TaskStatus};

use super::exit::UsageError;

/// Parameters of a task, of a step or of a signal.
#[derive(Debug, Args)]
pub(crate) struct ParamArgs {
    /// A parameter; VALUE is parsed as JSON if possible, otherwise it is a string
    #[arg(short = 'p', long = "param", value_name = "KEY=VALUE", value_parser = parse_param)]
    assignments: Vec<Assignment>,

    /// A JSON object of parameters, or a file with one, - for standard input; -p overrides its values
    #[arg(long = "params", value_name = "FILE|JSON", value_parser = parse_source)]
    source: Option<Source>,
}

/// The source of an object of parameters.
#[derive(Debug, Clone)]
enum Source {
    /// On the command line.
    Inline(Payload),
    /// In a file; `-` is standard input.
    File(PathBuf),
}

impl ParamArgs {
    /// The combined object; none when no parameters were given.
    pub(crate) fn object(&self) -> anyhow::Result<Option<Payload>> {
        let mut object = match &self.source {
            Some(Source::Inline(payload)) => parse_object(payload.get(), "--params")?,
            Some(Source::File(path)) => {
                let name = if path.as_os_str() == "-" {
                    "the standard input".into()
                } else {
                    path.display().to_string()
                };
                parse_object(&read(path)?, &name)?
            }
            None if self.assignments.is_empty() => return Ok(None),
            None => Object::default(),
        };
        for Assignment(key, value) in &self.assignments {
            object.set(key, value.clone());
        }
        Ok(Some(serde_json::value::to_raw_value(&object)?))
    }
}

/// Distinguishes a JSON object from a file name. A file name that begins like JSON can be written as `./{…`.
fn parse_source(text: &str) -> Result<Source, String> {
    if text.trim_start().starts_with(['{', '[']) {
        return parse_payload(text).map(Source::Inline);
    }
    Ok(Source::File(text.into()))
}

/// Reads a JSON object from the command line, with all digits unchanged.
pub(super) fn parse_payload(text: &str) -> Result<Payload, String> {
    let object: Object = serde_json::from_str(text).map_err(|error| object_error(&error))?;
    serde_json::value::to_raw_value(&object).map_err(|error| error.to_string())
}

/// Parses one of the statuses of tasks that `is_known` accepts.
pub(crate) fn status_parser(is_known: fn(&TaskStatus) -> bool) -> ValueParser {
    let known = TaskStatus::ALL.into_iter().filter(is_known).map(TaskStatus::as_str);
    PossibleValuesParser::new(known).try_map(|word| word.parse::<TaskStatus>()).into()
}

/// Parses `K=V`.
pub(crate) fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write a label as K=V, for example team=storage".to_owned()),
    }
}

/// One `-p KEY=VALUE`.
#[derive(Debug, Clone)]
pub(super) struct Assignment(pub(super) String, pub(super) Box<RawValue>);

pub(super) fn parse_param(text: &str) -> Result<Assignment, String> {
    let (key, value) = text
        .split_once('=')
        .filter(|(key, _)| !key.is_empty())
        .ok_or_else(|| "write a parameter as KEY=VALUE, for example size=3 or name=db1".to_owned())?;
    let value = match serde_json::from_str::<Box<RawValue>>(value) {
        Ok(json) => json,
        Err(_) => serde_json::value::to_raw_value(value).map_err(|error| error.to_string())?,
    };
    Ok(Assignment(key.to_owned(), value))
}

fn read(path: &PathBuf) -> anyhow::Result<String> {
    if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("cannot read the parameters from the standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(path).map_err(|error| {
        UsageError(format!("cannot read the parameters from {}: {error}", path.display())).into()
    })
}

fn parse_object(text: &str, name: &str) -> Result<Object, UsageError> {
    serde_json::from_str(text).map_err(|error| UsageError(format!("{name}: {}", object_error(&error))))
}

fn object_error(error: &serde_json::Error) -> String {
    match error.classify() {
        serde_json::error::Category::Data => {
            "the parameters must be a JSON object, like {\"size\": 3}".to_owned()
        }
        _ => format!("this is not a JSON object like {{\"size\": 3}}: {error}"),
    }
}

/// A JSON object that keeps the order of its keys and the digits of its numbers.
#[derive(Debug, Default)]
struct Object {
    members: Vec<(String, Box<RawValue>)>,
    /// The index of each key: a file may have a very large number of keys.
    places: HashMap<String, usize>,
}

impl Object {
    fn set(&mut self, key: &str, value: Box<RawValue>) {
        if let Some(place) = self.places.get(key) {
            self.members[*place].1 = value;
        } else {
            self.places.insert(key.to_owned(), self.members.len());
            self.members.push((key.to_owned(), value));
        }
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.members.iter().map(|(key, value)| (key, value)))
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor;

        impl<'de> Visitor<'de> for ObjectVisitor {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut object = Object::default();
                while let Some((key, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    object.set(&key, value);
                }
                Ok(object)
            }
        }

        deserializer.deserialize_map(ObjectVisitor)
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, path::PathBuf};

    use super::{ParamArgs, Source, parse_label, parse_param, parse_payload, parse_source};

    fn object(file: Option<PathBuf>, params: &[&str]) -> anyhow::Result<Option<String>> {
        let assignments = params.iter().map(|text| parse_param(text).unwrap()).collect();
        let source = file.map(Source::File);
        Ok(ParamArgs { assignments, source }.object()?.map(|payload| payload.get().to_owned()))
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn values_are_json_where_they_can() {
        let params =
            ["n=3", "name=db 1", "on=true", "none=null", "list=[1, 2]", "empty=", "url=a=b", "s=\"3\""];
        assert_eq!(
            object(None, &params).unwrap().unwrap(),
            r#"{"n":3,"name":"db 1","on":true,"none":null,"list":[1, 2],"empty":"","url":"a=b","s":"3"}"#
        );
        assert_eq!(object(None, &[]).unwrap(), None);
    }

    #[test]
    fn numbers_keep_their_digits_and_keys_their_order() {
        let params = ["z=12345678901234567890123", "a=1.10"];
        assert_eq!(object(None, &params).unwrap().unwrap(), r#"{"z":12345678901234567890123,"a":1.10}"#);
    }

    #[test]
    fn single_parameters_go_over_the_file() {
        let file = file(r#"{"size": 1, "name": "a"}"#);
        assert_eq!(
            object(Some(file.path().into()), &["size=2", "new=x"]).unwrap().unwrap(),
            r#"{"size":2,"name":"a","new":"x"}"#
        );
        assert_eq!(object(None, &["size=1", "size=2"]).unwrap().unwrap(), r#"{"size":2}"#);
    }

    #[test]
    fn an_object_may_stand_on_the_command_line() {
        let source = Some(parse_source("{\"a\": 1, \"b\": 2.50}").unwrap());
        let args = ParamArgs { assignments: vec![parse_param("a=3").unwrap()], source };
        assert_eq!(args.object().unwrap().unwrap().get(), r#"{"a":3,"b":2.50}"#);
    }

    #[test]
    fn what_is_no_object_is_refused_clearly() {
        for (text, part) in
            [("[1]", "must be a JSON object"), ("{\"a\": ", "not a JSON object"), ("", "not a JSON object")]
        {
            let error = object(Some(file(text).path().into()), &[]).unwrap_err();
            assert!(error.to_string().contains(part), "{text}: {error}");
            assert_eq!(super::super::exit::Exit::of_error(&error), super::super::exit::Exit::Usage);
        }
        let error = object(Some("no/such/file.json".into()), &[]).unwrap_err();
        assert!(error.to_string().contains("no/such/file.json"), "{error}");
        assert!(parse_payload("3").unwrap_err().contains("must be a JSON object"));
        assert_eq!(parse_payload("{\"a\": 1}").unwrap().get(), "{\"a\":1}");
        assert!(parse_source("[1]").unwrap_err().contains("must be a JSON object"));
    }

    #[test]
    fn keys_are_needed() {
        assert!(parse_param("size").unwrap_err().contains("KEY=VALUE"));
        assert!(parse_param("=3").unwrap_err().contains("KEY=VALUE"));
        assert!(parse_label("team").is_err());
        assert!(parse_label("=x").is_err());
        assert_eq!(parse_label("team=a=b").unwrap(), ("team".to_owned(), "a=b".to_owned()));
    }
}
