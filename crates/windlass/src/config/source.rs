//! Where a setting of the configuration comes from, for errors: a line of the file, or a variable.

use std::path::Path;

use serde_path_to_error::Segment;
use toml::de::{DeTable, DeValue};

use super::variables::Variable;
use crate::flowfile;

/// Where settings come from.
pub(super) struct Source<'a> {
    file: Option<&'a Path>,
    text: &'a str,
    variables: &'a [Variable],
}

impl<'a> Source<'a> {
    /// `text` is the content of the file, empty if there is none.
    pub(super) fn new(file: Option<&'a Path>, text: &'a str, variables: &'a [Variable]) -> Self {
        Self { file, text, variables }
    }

    /// The error of a file that is not TOML. The text of its line is not in it: it may contain a password.
    pub(super) fn malformed(&self, error: &toml::de::Error) -> anyhow::Error {
        let at = error.span().unwrap_or_default().start;
        anyhow::anyhow!("{}: {}", self.line(at), error.message())
    }

    /// The error of a key or value that the settings do not have.
    pub(super) fn unusable(&self, error: serde_path_to_error::Error<toml::de::Error>) -> anyhow::Error {
        let key = error.path().to_string();
        let path: Vec<String> = error.path().iter().filter_map(part).collect();
        let place = self.place(&path).map_or_else(String::new, |place| format!("{place}: "));
        let inner = error.into_inner();
        let is_secret = inner.message().contains("://")
            || self
                .variables
                .iter()
                .any(|variable| variable.is_file() && path.starts_with(&variable.place()));
        let message = if is_secret { without_string(inner.message()) } else { inner.message().to_owned() };
        anyhow::anyhow!("{place}{}", explain(&key, &message))
    }

    /// What sets the key, or sets something below it.
    fn place(&self, path: &[String]) -> Option<String> {
        let variable = |sets: &dyn Fn(&[String]) -> bool| {
            let variable = self.variables.iter().find(|variable| sets(&variable.place()))?;
            Some(format!("in the variable {}", variable.name()))
        };
        variable(&|place| path.starts_with(place))
            .or_else(|| self.position(path).map(|at| self.line(at)))
            .or_else(|| variable(&|place| place.starts_with(path)))
    }

    /// The byte of the file at which the key, or the element of an array, begins.
    fn position(&self, path: &[String]) -> Option<usize> {
        let file = DeTable::parse(self.text).ok()?.into_inner();
        let (first, rest) = path.split_first()?;
        let (key, mut value) = file.get_key_value(first.as_str())?;
        let mut at = key.span().start;
        for part in rest {
            value = match value.get_ref() {
                DeValue::Table(table) => {
                    let (key, value) = table.get_key_value(part.as_str())?;
                    at = key.span().start;
                    value
                }
                DeValue::Array(array) => {
                    let value = array.get(part.parse::<usize>().ok()?)?;
                    at = value.span().start;
                    value
                }
                _ => return None,
            };
        }
        Some(at)
    }

    /// The place of a byte of the file.
    fn line(&self, at: usize) -> String {
        let before = self.text.get(..at).unwrap_or_default();
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let column = before.chars().rev().take_while(|character| *character != '\n').count() + 1;
        let file = self.file.unwrap_or(Path::new("")).display();
        format!("in the configuration file {file}, line {line}, column {column}")
    }
}

fn part(segment: &Segment) -> Option<String> {
    match segment {
        Segment::Seq { index } => Some(index.to_string()),
        Segment::Map { key } => Some(key.clone()),
        Segment::Enum { .. } | Segment::Unknown => None,
    }
}

/// The message of serde in the words of this program, with the known name that was probably meant.
fn explain(key: &str, message: &str) -> String {
    let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
    if let Some((_, known)) = unknown(message, "unknown field `") {
        let what = match section {
            "" => "the configuration".to_owned(),
            // An element of an array.
            section if section.ends_with(']') => format!("`{section}`"),
            section => format!("the section [{section}]"),
        };
        return flowfile::unknown_key(name, &what, &known);
    }
    if let Some((value, known)) = unknown(message, "unknown variant `") {
        let meant = flowfile::nearest(value, known.iter().copied());
        let meant = meant.map(|meant| format!("did you mean \"{meant}\"? ")).unwrap_or_default();
        return format!("`{key}` is {value:?}: {meant}Use \"{}\"", known.join("\", \""));
    }
    let types = [
        ("usize", "a whole number"),
        ("u64", "a whole number"),
        ("u32", "a whole number"),
        ("f64", "a number"),
    ];
    // A section is a struct here.
    let message = match message.rsplit_once(", expected struct ") {
        Some((found, _)) => format!("{found}, expected a section with keys"),
        None => message.to_owned(),
    };
    let plain = types.iter().find_map(|(of_rust, plain)| {
        Some(format!("{}, expected {plain}", message.strip_suffix(of_rust)?.strip_suffix(", expected ")?))
    });
    format!("`{key}`: {}", plain.as_deref().unwrap_or(&message))
}

/// A message of serde about a value of the wrong type, without the value: URLs, and the files that variables name, may have passwords.
fn without_string(message: &str) -> String {
    const STRING: &str = "invalid type: string \"";
    let rest = message.strip_prefix(STRING).and_then(|rest| Some(rest.rsplit_once("\", expected ")?.1));
    rest.map_or_else(|| message.to_owned(), |expected| format!("invalid type: a string, expected {expected}"))
}

/// The unknown name and the known ones in such a message of serde.
fn unknown<'m>(message: &'m str, kind: &str) -> Option<(&'m str, Vec<&'m str>)> {
    let (name, known) = message.strip_prefix(kind)?.split_once("`, expected ")?;
    Some((name, known.split('`').skip(1).step_by(2).collect()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::{Given, ServerConfig, variables::Variable};

    fn error(text: &str, variables: &[(&str, &str)]) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("windlass.toml");
        std::fs::write(&path, text).unwrap();
        let variables = variables.iter().map(|(name, value)| Variable::new(name, value)).collect();
        let given = Given { variables, ..Given::default() };
        let error = format!("{:#}", ServerConfig::load(given, Some(&path)).unwrap_err());
        error.replace(dir.path().to_str().unwrap(), "DIR")
    }

    const SECTIONS: &str = "Known are `server`, `access`, `queues`, `intake`, `task_list`, `webhook`, `traces`, `events`, \
                            `asyncwork`, `machinery` and `devices`";

    #[test]
    fn a_mistake_in_the_file_has_its_line_its_key_and_what_was_probably_meant() {
        let keys = "Known are `broker`, `queue`, `kind`, `results`, `window` and `message`";
        for (text, wanted) in [
            (
                "[server]\nlisten = \"127.0.0.1:7800\n",
                "line 2, column 25: invalid basic string, expected `\"`".to_owned(),
            ),
            (
                "[queus.m]\nbroker = \"amqp://me:secret@host\"\n",
                format!("line 1, column 2: unknown key \"queus\" in the configuration: did you mean `queues`? {SECTIONS}"),
            ),
            (
                "[queues.m]\n  brokers = \"amqp://me:secret@host\"\n",
                format!("line 2, column 3: unknown key \"brokers\" in the section [queues.m]: did you mean `broker`? {keys}"),
            ),
            (
                "[server]\nlisten = \"localhost\"\n",
                "line 2, column 1: `server.listen`: invalid address \"localhost\": use an IP address and a port, such as \
                 127.0.0.1:7700"
                    .to_owned(),
            ),
            (
                "[server]\n\nclient_connections = \"many\"\n",
                "line 3, column 1: `server.client_connections`: invalid type: string \"many\", expected a whole number"
                    .to_owned(),
            ),
            (
                "[[webhook]]\nname = \"a\"\nurl = \"https://a.example\"\nevents = [\n  \"task.failed\",\n  \"task.succeded\",\n]\n",
                "line 6, column 3: `webhook[0].events[1]` is \"task.succeded\": did you mean \"task.succeeded\"? Use \
                 \"task.succeeded\", \"task.rolled_back\", \"task.failed\", \"task.cancelled\", \"alarm.raised\""
                    .to_owned(),
            ),
            (
                "[devices]\nbroker = \"mqtt://h\"\n[[devices.learn]]\nfilter = \"a/+\"\n",
                "line 4, column 1: unknown key \"filter\" in `devices.learn[0]`; known are `topic`, `online`, `offline`, \
                 `labels` and `echoes_attempt`"
                    .to_owned(),
            ),
            (
                "[server]\nkeep_tasks = \"1h\"\n",
                "line 2, column 1: `server.keep_tasks`: it is 1h; the minimum is 24h. Idempotency keys are deleted with their \
                 tasks, so a request repeated later would start its task again"
                    .to_owned(),
            ),
            ("[server]\nresident_mib = 9999999\n", "line 2, column 1: `server.resident_mib`: use 0 to 1048576".to_owned()),
            (
                "[server]\nstore = \"redis://me:secret@host/db\"\n",
                "line 2, column 1: `server.store`: invalid store \"redis://…@host/db\": use sqlite:PATH, \
                 postgres://USER:PASSWORD@HOST/DATABASE, mysql://USER:PASSWORD@HOST/DATABASE or memory:"
                    .to_owned(),
            ),
            ("[events]\nbroker = \"kafka://h\"\n", "line 1, column 2: `events`: missing field `topic`".to_owned()),
            (
                "server = 3\n",
                "line 1, column 1: `server`: invalid type: integer `3`, expected a section with keys".to_owned(),
            ),
            (
                "[server]\nadvertise = \"nonsense\"\n",
                "line 2, column 1: `server.advertise`: \"nonsense\" is not a URL such as https://windlass-1.internal:7700"
                    .to_owned(),
            ),
        ] {
            let found = error(text, &[]);
            assert_eq!(found, format!("in the configuration file DIR/windlass.toml, {wanted}"));
            // A variable elsewhere makes no difference.
            assert_eq!(found, error(text, &[("WINDLASS_ACCESS__TOKENS", "false")]));
        }
    }

    #[test]
    fn a_mistake_in_a_variable_has_its_name() {
        let file = "[queues.mysql]\nbroker = \"redis://h\"\nwindow = 5\n";
        let kept = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(kept.path(), "my-secret").unwrap();
        let password = kept.path().to_str().unwrap();
        for (name, value, wanted) in [
            (
                "WINDLASS_QUEUES__mysql__WINDOW",
                "many",
                "`queues.mysql.window`: invalid type: string \"many\", expected a whole number",
            ),
            (
                "WINDLASS_QUEUES__mysql__BROKRE",
                "amqp://me:secret@h",
                "unknown key \"brokre\" in the section [queues.mysql]: did you mean `broker`?",
            ),
            (
                "WINDLASS_QUEUE__mysql__BROKER",
                "amqp://me:secret@h",
                "unknown key \"queue\" in the configuration: did you mean `queues`?",
            ),
            ("WINDLASS_EVENTS__BROKER", "kafka://h", "`events`: missing field `topic`"),
            (
                "WINDLASS_QUEUES__mysql__WINDOW",
                "amqp://me:secret@h",
                "`queues.mysql.window`: invalid type: a string, expected a whole number",
            ),
            (
                "WINDLASS_QUEUES__mysql__WINDOW__FILE",
                password,
                "`queues.mysql.window`: invalid type: a string, expected a whole number",
            ),
            (
                "WINDLASS_DEVICES__TOPICS",
                "['a', 5]",
                "`devices.topics[1]`: invalid type: integer `5`, expected a string",
            ),
        ] {
            let found = error(file, &[("WINDLASS_ACCESS__TOKENS", "false"), (name, value)]);
            assert!(found.starts_with(&format!("in the variable {name}: {wanted}")), "{found}");
            assert!(!found.contains("secret"), "{found}");
        }
        let in_file = error("[queues.mysql]\nbrokre = 1\n", &[("WINDLASS_QUEUES__mysql__WINDOW", "5")]);
        assert!(
            in_file.starts_with("in the configuration file DIR/windlass.toml, line 2, column 1: "),
            "{in_file}"
        );
        let missing = ServerConfig::load(Given::default(), Some(Path::new("no-such-folder/windlass.toml")));
        assert!(format!("{:#}", missing.unwrap_err()).contains("no-such-folder/windlass.toml"));
    }
}
