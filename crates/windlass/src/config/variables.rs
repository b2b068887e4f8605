//! Settings of the configuration file from environment variables. `WINDLASS_QUEUES__mysql__BROKER` is the key `broker` of the
//! section `[queues.mysql]`, and `WINDLASS_INTAKE__0__QUEUE` the key `queue` of the first section `[[intake]]`. With
//! `__FILE` at its end the variable names a file that contains the value.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use toml::{Table, Value};

/// What the names of all variables of Windlass begin with.
pub(crate) const PREFIX: &str = "WINDLASS_";

/// What is between the parts of a name. Sections and keys have single underscores of their own.
const BETWEEN: &str = "__";

/// The last part of a variable that names a file.
const FILE: &str = "FILE";

/// Sections that there can be several of.
const SEVERAL: [&str; 3] = ["intake", "task_list", "webhook"];

/// A variable that sets a key of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    name: String,
    value: String,
}

impl Variable {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it names a file that contains the value.
    pub(super) fn is_file(&self) -> bool {
        names_a_file(&path(&self.name).unwrap_or_default())
    }

    /// The key that it sets: the parts of its place in the file.
    pub(super) fn place(&self) -> Vec<String> {
        let mut parts = path(&self.name).unwrap_or_default();
        if names_a_file(&parts) {
            parts.pop();
        }
        parts.into_iter().map(part).collect()
    }
}

#[cfg(test)]
impl Variable {
    pub(crate) fn new(name: &str, value: &str) -> Self {
        Self { name: name.to_owned(), value: value.to_owned() }
    }
}

/// The variables of this process that set keys of the file, by name.
///
/// # Errors
/// When a value is not Unicode.
pub(crate) fn of_process() -> anyhow::Result<Vec<Variable>> {
    let mut variables = Vec::new();
    for (name, value) in std::env::vars_os() {
        let Some(name) = name.to_str().filter(|name| names_a_key(name)) else { continue };
        let value = value.into_string().map_err(|_| anyhow::anyhow!("the variable {name} is not Unicode"))?;
        variables.push(Variable { name: name.to_owned(), value });
    }
    // By the numbers of sections, which have at most two digits.
    variables.sort_by(|one, other| (one.name.len(), &one.name).cmp(&(other.name.len(), &other.name)));
    Ok(variables)
}

/// Sets the keys that these variables name in a configuration file. They override what is there.
///
/// # Errors
/// When a variable names no place in the file, or names a file that cannot be read.
pub(crate) fn set(file: &mut Table, variables: &[Variable]) -> anyhow::Result<()> {
    for variable in variables {
        set_one(file, variable).with_context(|| format!("in the variable {}", variable.name))?;
    }
    Ok(())
}

/// Whether a variable of this name sets a key of the file.
pub(crate) fn names_a_key(name: &str) -> bool {
    path(name).is_some()
}

/// The parts of the name of such a variable.
fn path(name: &str) -> Option<Vec<&str>> {
    let parts: Vec<&str> = name.strip_prefix(PREFIX)?.split(BETWEEN).collect();
    (parts.len() > 1).then_some(parts)
}

/// Whether the last of these parts says that the variable names a file.
fn names_a_file(parts: &[&str]) -> bool {
    parts.len() > 2 && parts.last() == Some(&FILE)
}

fn set_one(file: &mut Table, variable: &Variable) -> anyhow::Result<()> {
    let parts = path(&variable.name).unwrap_or_default();
    ensure!(
        parts.iter().all(|part| !part.is_empty() && !part.starts_with('_')),
        "write a section and a key with two underscores between them, such as WINDLASS_EVENTS__TOPIC"
    );
    let value = if names_a_file(&parts) {
        // A string, also if it has digits alone: it may be a password. No password is one of these two words.
        match read(Path::new(&variable.value))?.as_str() {
            "true" => Value::Boolean(true),
            "false" => Value::Boolean(false),
            text => Value::String(text.to_owned()),
        }
    } else {
        value(&variable.value)
    };
    let parts = variable.place();
    let [section, rest @ ..] = parts.as_slice() else { return Ok(()) };
    let (table, rest) = if SEVERAL.contains(&section.as_str()) {
        let [number, rest @ ..] = rest else { return Ok(()) };
        (one_of_several(file, section, number)?, rest)
    } else {
        (within(file, section)?, rest)
    };
    let [folders @ .., key] = rest else {
        bail!("it has no key: write one at its end, after two underscores");
    };
    let table = folders.iter().try_fold(table, |table, folder| within(table, folder))?;
    table.insert(key.clone(), value);
    Ok(())
}

/// A section or key is written in small letters in the file. A part with small letters is meant as it is.
fn part(part: &str) -> String {
    if part.contains(|letter: char| letter.is_lowercase()) { part.to_owned() } else { part.to_lowercase() }
}

/// The table under this key, which may be new.
fn within<'a>(table: &'a mut Table, key: &str) -> anyhow::Result<&'a mut Table> {
    let entry = table.entry(key).or_insert_with(|| Value::Table(Table::new()));
    entry.as_table_mut().with_context(|| format!("`{key}` has a value, and no keys below it"))
}

/// The section with this number, or a new one after the last.
fn one_of_several<'a>(file: &'a mut Table, section: &str, number: &str) -> anyhow::Result<&'a mut Table> {
    let sections = file.entry(section).or_insert_with(|| Value::Array(Vec::new()));
    let sections = sections.as_array_mut().with_context(|| {
        format!("there can be several sections [[{section}]]: write two pairs of brackets in the file")
    })?;
    let there = sections.len();
    let number: usize = number.parse().ok().filter(|number| *number <= there).with_context(|| {
        format!("\"{number}\" is not a section [[{section}]]: there are {there}. Write a number from 0 to {there}, which adds one")
    })?;
    if number == there {
        sections.push(Value::Table(Table::new()));
    }
    sections[number].as_table_mut().with_context(|| format!("`{section}` is not a section"))
}

/// A number, a boolean, an array or a table as in a file; everything else is a string.
fn value(text: &str) -> Value {
    let string = || Value::String(text.to_owned());
    match format!("value = {text}").parse::<Table>() {
        Ok(mut table) if table.len() == 1 => match table.remove("value") {
            Some(Value::Datetime(_)) | None => string(),
            Some(value) => value,
        },
        _ => string(),
    }
}

/// The content of a file, without white space around it.
fn read(file: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let text = text.trim();
    ensure!(!text.is_empty(), "the file {} is empty: write the value into it", file.display());
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_all(file: &str, variables: &[(&str, &str)]) -> anyhow::Result<Table> {
        let mut file: Table = file.parse().unwrap();
        let variables: Vec<_> = variables.iter().map(|(name, value)| Variable::new(name, value)).collect();
        set(&mut file, &variables)?;
        Ok(file)
    }

    #[test]
    fn variables_override_the_file_and_add_to_it() {
        let file = "[queues.mysql]\nbroker = 'redis://old'\nqueue = 'q'\n[[intake]]\nqueue = 'first'\n";
        let variables = [
            ("WINDLASS_QUEUES__mysql__BROKER", "redis://new"),
            ("WINDLASS_QUEUES__resource__WINDOW", "5"),
            ("WINDLASS_INTAKE__0__QUEUE", "changed"),
            ("WINDLASS_INTAKE__1__QUEUE", "second"),
            ("WINDLASS_TASK_LIST__0__FLOWS__create", "c"),
            ("WINDLASS_EVENTS__KEEP", "7d"),
            ("WINDLASS_DEVICES__LEARN", "true"),
            ("WINDLASS_DEVICES__CLIENT_ID", "\"12\""),
            ("WINDLASS_DEVICES__TOPICS", "['a/+', \"b\"]"),
        ];
        let wanted = "devices = { learn = true, client_id = '12', topics = ['a/+', 'b'] }
            events = { keep = '7d' }
            [queues]
            mysql = { broker = 'redis://new', queue = 'q' }
            resource = { window = 5 }
            [[intake]]
            queue = 'changed'
            [[intake]]
            queue = 'second'
            [[task_list]]
            flows = { create = 'c' }";
        assert_eq!(set_all(file, &variables).unwrap(), wanted.parse::<Table>().unwrap());
    }

    #[test]
    fn values_that_only_look_like_toml_are_strings() {
        for text in ["5m", "a = 1", "1\nother = 2", "2026-01-01", "amqp://me:secret@host/", "", "#", "'"] {
            assert_eq!(value(text), Value::String(text.to_owned()));
        }
    }

    #[test]
    fn a_file_has_the_value() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("url");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            set_all("", &[("WINDLASS_EVENTS__BROKER__FILE", path.to_str().unwrap())])
        };
        assert_eq!(read("kafka://h:1\n").unwrap()["events"]["broker"].as_str(), Some("kafka://h:1"));
        assert!(format!("{:#}", read(" \n").unwrap_err()).contains("is empty"));
        std::fs::remove_file(&path).unwrap();
        let missing = set_all("", &[("WINDLASS_EVENTS__BROKER__FILE", path.to_str().unwrap())]).unwrap_err();
        let missing = format!("{missing:#}");
        assert!(
            missing.contains("WINDLASS_EVENTS__BROKER__FILE") && missing.contains("cannot read"),
            "{missing}"
        );
    }

    #[test]
    fn names_without_a_place_are_refused() {
        for (name, hint) in [
            ("WINDLASS_EVENTS__", "two underscores"),
            ("WINDLASS_EVENTS___TOPIC", "two underscores"),
            ("WINDLASS_INTAKE__2__QUEUE", "from 0 to 1"),
            ("WINDLASS_INTAKE__QUEUE", "from 0 to 1"),
            ("WINDLASS_INTAKE__0", "no key"),
            ("WINDLASS_EVENTS__TOPIC__NAME", "no keys below it"),
        ] {
            let error =
                set_all("[events]\ntopic = 't'\n[[intake]]\nqueue = 'q'\n", &[(name, "x")]).unwrap_err();
            let error = format!("{error:#}");
            assert!(error.contains(name) && error.contains(hint), "{error}");
        }
        assert_eq!(path("WINDLASS_SERVER_LISTEN"), None);
        assert_eq!(path("OTHER__NAME"), None);
    }
}
