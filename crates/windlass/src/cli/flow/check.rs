//! `windlass flow check`: reports what `apply` would refuse, without a server.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
    path::{Path, PathBuf},
};

use serde::Serialize;
use windlass_api::{FlowDocument, List};

use super::commands;
use crate::{
    cli::{
        exit::Exit,
        output::{Output, Style, table::Color},
    },
    flowfile::{self, FlowError, Format},
    modules::Catalogue,
};

/// Checks the flows of all files and folders.
pub(super) fn run(files: &[PathBuf], folders: &[PathBuf], output: &Output) -> anyhow::Result<Exit> {
    let folders = folders.iter().map(|folder| Catalogue::read(folder)).collect::<Result<Vec<_>, _>>()?;
    let flows = read_files(files, &folders);
    let exit = if flows.iter().all(Result::is_ok) { Exit::Done } else { Exit::Failed };
    let findings = List { items: flows.iter().map(Finding::new).collect(), next: None };
    output.show(&findings, |_, style| flows.iter().map(|flow| line(flow, style)).collect())?;
    Ok(exit)
}

/// A valid flow of a file.
pub(super) struct CheckedFlow {
    /// The file it is from.
    pub(super) file: PathBuf,
    /// Its name.
    pub(super) name: String,
    /// The number of its steps.
    steps: usize,
    /// Possible mistakes in it.
    warnings: Vec<String>,
    /// The document to apply.
    pub(super) document: FlowDocument,
}

/// An error in a file, or in one flow of it.
#[derive(Debug)]
pub(super) struct FileError {
    file: PathBuf,
    error: FlowError,
}

/// Reads and checks the flows of all files, and of the flow files of folders. Warns about each command that the
/// module folders lack.
pub(super) fn read_files(files: &[PathBuf], folders: &[Catalogue]) -> Vec<Result<CheckedFlow, FileError>> {
    let mut names: HashMap<String, PathBuf> = HashMap::new();
    let mut unlike_others = |flow: CheckedFlow| match names.entry(flow.name.clone()) {
        Entry::Vacant(entry) => {
            entry.insert(flow.file.clone());
            Ok(flow)
        }
        // Applying both would keep only one of them, and nobody would notice which.
        Entry::Occupied(other) => {
            let message = format!("flow {} is in {} as well", flow.name, other.get().display());
            Err(FileError { file: flow.file, error: FlowError::new(message) })
        }
    };
    let flows: Vec<_> = files.iter().flat_map(|file| read_flows(file, folders)).collect();
    flows.into_iter().map(|flow| flow.and_then(&mut unlike_others)).collect()
}

/// Reads and checks the flows of a file, or those of all flow files of a folder.
fn read_flows(path: &Path, folders: &[Catalogue]) -> Vec<Result<CheckedFlow, FileError>> {
    if !path.is_dir() {
        return read_flows_of_file(path, folders);
    }
    let refuse =
        |message: String| vec![Err(FileError { file: path.to_owned(), error: FlowError::new(message) })];
    match flowfile::flow_files(path) {
        Ok(files) if files.is_empty() => refuse(
            "the folder has no flow files: name one whose files end in .yaml, .json or .toml".to_owned(),
        ),
        Ok(files) => files.iter().flat_map(|file| read_flows_of_file(file, folders)).collect(),
        Err(error) => refuse(format!("cannot read the folder: {error}")),
    }
}

fn read_flows_of_file(file: &Path, folders: &[Catalogue]) -> Vec<Result<CheckedFlow, FileError>> {
    // Each mistake is a finding of its own.
    let findings = |checked: Result<CheckedFlow, FlowError>| match checked {
        Ok(flow) => vec![Ok(flow)],
        Err(error) => {
            let alone = |error: &FlowError| FlowError { others: Vec::new(), ..error.clone() };
            error.all().map(|error| Err(FileError { file: file.to_owned(), error: alone(error) })).collect()
        }
    };
    match read(file) {
        Ok(sources) => {
            sources.into_iter().flat_map(|source| findings(check(file, source, folders))).collect()
        }
        Err(error) => findings(Err(error)),
    }
}

fn read(file: &Path) -> Result<Vec<flowfile::Source>, FlowError> {
    if !file.exists() {
        return Err(FlowError::new("there is no such file or folder".to_owned()));
    }
    let format = Format::of_path(file)?;
    let text =
        std::fs::read_to_string(file).map_err(|error| FlowError::new(format!("cannot read it: {error}")))?;
    flowfile::read(&text, format)
}

fn check(file: &Path, source: flowfile::Source, folders: &[Catalogue]) -> Result<CheckedFlow, FlowError> {
    let flow = flowfile::compile(&source)?;
    let mut warnings = flowfile::warnings(&flow);
    warnings.extend(commands::warnings(&flow, folders));
    Ok(CheckedFlow {
        file: file.to_owned(),
        name: flow.name.as_str().to_owned(),
        steps: flow.steps.len(),
        warnings,
        document: source.document,
    })
}

impl fmt::Display for FileError {
    /// Uses the format `FILE:LINE:COLUMN`, which editors can open.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: error: {}", self.place(), self.error.message)
    }
}

impl FileError {
    fn place(&self) -> String {
        let mut place = self.file.display().to_string();
        for number in [self.error.line, self.error.column].into_iter().map_while(|number| number) {
            place.push_str(&format!(":{number}"));
        }
        place
    }
}

/// A finding as a line of text.
fn line(flow: &Result<CheckedFlow, FileError>, style: Style) -> String {
    match flow {
        Ok(CheckedFlow { file, name, steps, warnings, .. }) => {
            let plural = if *steps == 1 { "" } else { "s" };
            let ok = Color::Good.paint("ok", style);
            let mut lines = format!("{}: {ok}: flow {name}, {steps} step{plural}\n", file.display());
            for warning in warnings {
                let word = Color::Warning.paint("warning", style);
                lines.push_str(&format!("{}: {word}: flow {name}, {warning}\n", file.display()));
            }
            lines
        }
        Err(error) => {
            format!("{}: {}: {}\n", error.place(), Color::Bad.paint("error", style), error.error.message)
        }
    }
}

/// A finding as JSON.
#[derive(Debug, Default, Serialize)]
struct Finding<'a> {
    file: String,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    flow: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<usize>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    warnings: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<u64>,
}

impl<'a> Finding<'a> {
    fn new(flow: &'a Result<CheckedFlow, FileError>) -> Self {
        match flow {
            Ok(flow) => Self {
                file: flow.file.display().to_string(),
                ok: true,
                flow: Some(&flow.name),
                steps: Some(flow.steps),
                warnings: &flow.warnings,
                ..Self::default()
            },
            Err(FileError { file, error }) => Self {
                file: file.display().to_string(),
                error: Some(&error.message),
                line: error.line,
                column: error.column,
                ..Self::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    const GOOD: &str = "
flow: create_instance
steps:
  - name: check
    run: resource.check_resource
  - name: init
    run: mysql.init_instance
    timeout: 30m
    retry: 3
    rollback: mysql.clean_instance
---
flow: drop_instance
steps: [{name: drop, run: mysql.drop_instance}]
";

    fn findings(files: &[(&str, &str)]) -> String {
        let folder = tempfile::tempdir().unwrap();
        findings_of(&written(folder.path(), files), folder.path())
    }

    fn written(folder: &Path, files: &[(&str, &str)]) -> Vec<PathBuf> {
        let write = |(name, text): &(&str, &str)| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        files.iter().map(write).collect()
    }

    fn findings_of(paths: &[PathBuf], folder: &Path) -> String {
        let lines: String = read_files(paths, &[]).iter().map(|flow| line(flow, Style::PLAIN)).collect();
        lines.replace(&folder.display().to_string(), "DIR")
    }

    #[test]
    fn every_flow_of_a_file_is_checked() {
        assert_snapshot!(findings(&[("good.yaml", GOOD)]), @"
        DIR/good.yaml: ok: flow create_instance, 2 steps
        DIR/good.yaml: ok: flow drop_instance, 1 step
        ");
    }

    #[test]
    fn a_folder_is_its_flow_files_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let flow = |name: &str| format!("flow: {name}\nsteps: [{{name: one, run: m.one}}]\n");
        written(folder.path(), &[("b.yml", &flow("b")), ("a.yaml", &flow("a")), ("notes.txt", "no flow")]);
        for inner in ["empty", "inner.yaml"] {
            std::fs::create_dir(folder.path().join(inner)).unwrap();
        }
        written(&folder.path().join("inner.yaml"), &[("c.yaml", &flow("c"))]);
        let paths = [folder.path().to_owned(), folder.path().join("empty")];
        assert_snapshot!(findings_of(&paths, folder.path()), @"
        DIR/a.yaml: ok: flow a, 1 step
        DIR/b.yml: ok: flow b, 1 step
        DIR/empty: error: the folder has no flow files: name one whose files end in .yaml, .json or .toml
        ");
    }

    #[test]
    fn a_flow_in_two_files_is_refused() {
        let drop = "flow: drop_instance\nsteps: [{name: drop, run: mysql.drop_now}]\n";
        assert_snapshot!(findings(&[("good.yaml", GOOD), ("other.yaml", drop)]), @"
        DIR/good.yaml: ok: flow create_instance, 2 steps
        DIR/good.yaml: ok: flow drop_instance, 1 step
        DIR/other.yaml: error: flow drop_instance is in DIR/good.yaml as well
        ");
    }

    #[test]
    fn a_flow_that_can_run_may_be_warned_about() {
        let typo = "flow: pay\nparams: {amount: 1}\nsteps: [{name: pay, run: m.pay, when: ammount > 3}]\n";
        assert_snapshot!(findings(&[("typo.yaml", typo)]), @"
        DIR/typo.yaml: ok: flow pay, 1 step
        DIR/typo.yaml: warning: flow pay, step pay: `ammount > 3` reads `ammount`, which `params` does not declare: did you mean `amount`?
        ");
    }

    #[test]
    fn a_command_that_its_module_folder_lacks_is_warned_about() {
        let folder = tempfile::tempdir().unwrap();
        for command in ["init_instance", "clean_instance"] {
            let path = folder.path().join("mysql").join(command);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        let file = folder.path().join("good.yaml");
        std::fs::write(&file, GOOD.replace("mysql.clean_instance", "mysql.clean_instanec")).unwrap();
        let flows = read_files(&[file], &[Catalogue::read(folder.path()).unwrap()]);
        let warnings: Vec<_> = flows.iter().flat_map(|flow| &flow.as_ref().unwrap().warnings).collect();
        // Another worker may serve `resource`.
        assert_eq!(
            warnings,
            [
                "step init: the folder of module mysql has no command `clean_instanec`: did you mean `mysql.clean_instance`?",
                "step drop: the folder of module mysql has no command `drop_instance`: it has clean_instance, init_instance",
            ]
        );
    }

    #[test]
    fn programs_get_line_and_column() {
        let error = FlowError { line: Some(3), column: Some(7), ..FlowError::new("no".to_owned()) };
        let flow = Err(FileError { file: "a.yaml".into(), error });
        assert_eq!(
            serde_json::to_value(Finding::new(&flow)).unwrap(),
            serde_json::json!({"file": "a.yaml", "ok": false, "error": "no", "line": 3, "column": 7})
        );
    }

    #[test]
    fn errors_say_where() {
        let unknown_key = GOOD.replace("timeout:", "timeuot:");
        let negative = GOOD.replace("30m", "-30m");
        let files =
            [("unknown.yaml", unknown_key.as_str()), ("negative.yaml", &negative), ("flow.txt", GOOD)];
        assert_snapshot!(findings(&files), @r#"
        DIR/unknown.yaml:8:5: error: unknown key "timeuot" in a step: did you mean `timeout`? Known are `name`, `run`, `wait`, `device`, `topic`, `args`, `done`, `offline`, `settle`, `when`, `each`, `parallel`, `on_partial`, `delay`, `start_within`, `timeout`, `deadline`, `retry`, `key`, `locks`, `rollback` and `after`
        DIR/negative.yaml:8:14: error: `timeout`: "-30m" is negative: a duration is 0 or more
        DIR/flow.txt: error: unknown format of DIR/flow.txt: use the extension .yaml, .json or .toml
        "#);
        // Each step with a mistake is reported.
        let two = "flow: f\nsteps:\n  - { name: a, run: m }\n  - { name: b, run: m.b }\n  - { name: c, run: m.c, when: '1 +' }\n";
        assert_snapshot!(findings(&[("two.yaml", two)]), @r#"
    DIR/two.yaml:3:21: error: "m" names no command: write MODULE.COMMAND, such as mysql.init_instance
    DIR/two.yaml:5:32: error: `when`: it ends where a value should be (column 4 of the expression)
    "#);
        let missing = read_flows(Path::new("no/such.yaml"), &[]);
        assert!(
            line(&missing[0], Style::PLAIN)
                .starts_with("no/such.yaml: error: there is no such file or folder")
        );
    }
}
