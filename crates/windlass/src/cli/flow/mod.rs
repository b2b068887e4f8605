//! `windlass flow`: flow definitions.

mod check;
mod commands;
mod diff;

use std::{path::PathBuf, str::FromStr};

use clap::{Args, Subcommand};
use jiff::Timestamp;
use windlass_api::{Flow, FlowApplied, FlowChange, FlowDocument, List};

use super::{
    connection::{ConnectionArgs, Context},
    exit::Exit,
    output::Style,
};
use crate::{
    cli::output::{
        table::{Cell, Color, Table},
        time::age,
    },
    flowfile,
};
use check::{CheckedFlow, read_files};

/// Commands for flows.
#[derive(Debug, Subcommand)]
pub(crate) enum FlowCommand {
    /// Store the flows of files; a changed flow gets a new version, and running tasks keep theirs
    Apply(FilesArg),
    /// List the flows
    List {
        /// Include the flows of tasks that were submitted with their own steps
        #[arg(long)]
        all: bool,
    },
    /// Print a flow as a flow file
    Show {
        /// The newest version of a flow, or the one named
        #[arg(value_name = "NAME[@VERSION]")]
        flow: FlowName,
    },
    /// Check flow files; needs no server
    Check {
        #[command(flatten)]
        files: FilesArg,
        /// Module folder, as a worker serves it: warn about commands that it lacks; may be given more than
        /// once
        #[arg(long, value_name = "DIR")]
        modules: Vec<PathBuf>,
    },
    /// Print the JSON Schema of a flow, for editors; needs no server
    Schema,
    /// Show the changes that applying files would make, or the changes between two versions; exits with 1 if
    /// flows differ
    Diff {
        /// Flow files or folders of them, or two versions: backup@1 backup@2
        #[arg(required = true, value_name = "FILE|DIR|NAME@VERSION")]
        names: Vec<String>,
    },
}

/// Flow files, and folders of them.
#[derive(Debug, Args)]
pub(crate) struct FilesArg {
    /// Flow files: YAML, TOML or JSON; a file may contain several flows. A folder means all flow files in it
    #[arg(required = true, value_name = "FILE|DIR")]
    files: Vec<PathBuf>,
}

/// `NAME` or `NAME@VERSION`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FlowName {
    name: String,
    version: Option<u32>,
}

impl FromStr for FlowName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((name, version)) = text.split_once('@') else {
            return Ok(Self { name: text.to_owned(), version: None });
        };
        let version = version
            .parse()
            .map_err(|_| format!("invalid version \"{version}\": use a number, for example {name}@3"))?;
        Ok(Self { name: name.to_owned(), version: Some(version) })
    }
}

impl FlowCommand {
    /// Runs the command.
    pub(crate) async fn run(self, connection: &ConnectionArgs) -> anyhow::Result<Exit> {
        match self {
            Self::Check { files, modules } => check::run(&files.files, &modules, &connection.output()),
            Self::Schema => {
                super::output::write(&flowfile::schema())?;
                Ok(Exit::Done)
            }
            Self::Apply(FilesArg { files }) => apply(&files, &connection.open()?).await,
            Self::List { all } => list(all, &connection.open()?).await,
            Self::Diff { names } => diff::run(&names, &connection.open()?).await,
            Self::Show { flow } => show(&flow, &connection.open()?).await,
        }
    }
}

/// Applies the flows of all files. Checks all of them first: a mistake in the last file must not leave only
/// some of them applied.
async fn apply(files: &[PathBuf], context: &Context) -> anyhow::Result<Exit> {
    let (mut flows, mut refused) = (Vec::new(), false);
    for flow in read_files(files, &[]) {
        match flow {
            Ok(flow) => flows.push(flow),
            Err(error) => {
                eprintln!("{error}");
                refused = true;
            }
        }
    }
    if refused {
        anyhow::bail!("nothing was applied");
    }
    // The server applies one flow per call, so it may refuse one after it has stored others.
    let mut applied = Vec::new();
    for flow in &flows {
        match context.client.apply_flow(&flow.name, &flow.document).await {
            Ok(answer) => applied.push(answer),
            Err(error) => {
                if let Some(names) = so_far(&applied, &flows) {
                    eprintln!("{names}");
                }
                let place = format!("{}: flow {}", flow.file.display(), flow.name);
                return Err(anyhow::Error::from(error).context(place));
            }
        }
    }
    context
        .output
        .show(&List { items: applied, next: None }, |list, style| render_applied(&list.items, style))?;
    Ok(Exit::Done)
}

/// Which flows are applied, and which are not; nothing if the first one was refused.
fn so_far(applied: &[FlowApplied], flows: &[CheckedFlow]) -> Option<String> {
    if applied.is_empty() {
        return None;
    }
    let done: Vec<String> = applied.iter().map(|flow| format!("{}@{}", flow.name, flow.version)).collect();
    let rest: Vec<&str> = flows[applied.len()..].iter().map(|flow| &*flow.name).collect();
    Some(format!("applied: {}; not applied: {}", done.join(", "), rest.join(", ")))
}

async fn list(all: bool, context: &Context) -> anyhow::Result<Exit> {
    let client = &context.client;
    let flows = if all { client.all_flows().await? } else { client.flows().await? };
    context.output.show(&flows, |flows, style| render_list(&flows.items, Timestamp::now(), style))?;
    Ok(Exit::Done)
}

async fn show(flow: &FlowName, context: &Context) -> anyhow::Result<Exit> {
    let flow = context.client.flow(&flow.name, flow.version).await?;
    let file = flow_file(&flow)?;
    context.output.show(&flow, |_, _| file)?;
    Ok(Exit::Done)
}

/// The flow as a file that `flow apply` accepts.
fn flow_file(flow: &Flow) -> anyhow::Result<String> {
    let mut document: FlowDocument = serde_json::from_str(flow.definition.get())?;
    document.flow = Some(flow.name.clone());
    Ok(format!(
        "# version {}, applied {}\n{}",
        flow.version,
        flow.created_at,
        serde_saphyr::to_string(&document)?
    ))
}

fn render_applied(flows: &[FlowApplied], style: Style) -> String {
    let mut table = Table::new(["FLOW", "VERSION", "CHANGE"]);
    for flow in flows {
        let change = match flow.change {
            FlowChange::Created => Cell::colored("created", Some(Color::Good)),
            FlowChange::Updated => Cell::colored("updated", Some(Color::Good)),
            FlowChange::Unchanged => Cell::colored("unchanged", Some(Color::Faint)),
        };
        table.row([(&flow.name).into(), flow.version.to_string().into(), change]);
    }
    table.text(style)
}

fn render_list(flows: &[Flow], now: Timestamp, style: Style) -> String {
    let mut table = Table::new(["FLOW", "VERSION", "APPLIED", "STEPS"]);
    for flow in flows {
        table.row([
            (&flow.name).into(),
            flow.version.to_string().into(),
            age(flow.created_at, now).into(),
            step_names(flow).into(),
        ]);
    }
    table.text(style)
}

/// The names of a flow's steps, in order.
fn step_names(flow: &Flow) -> String {
    let document: Option<FlowDocument> = serde_json::from_str(flow.definition.get()).ok();
    let steps = document.map(|document| document.steps).unwrap_or_default();
    steps.into_iter().map(|step| step.name).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use jiff::SignedDuration;

    use super::*;
    use crate::flowfile::{self, Format};

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

    #[test]
    fn a_flow_is_shown_as_a_file_that_can_be_applied() {
        let format = Format::Yaml;
        let source = flowfile::read(GOOD, format).unwrap().remove(0);
        let flow = Flow {
            name: "create_instance".to_owned(),
            version: 3,
            created_at: Timestamp::constant(1_900_000_000, 0),
            definition: serde_json::value::to_raw_value(&source.document).unwrap(),
        };
        let file = flow_file(&flow).unwrap();
        assert_snapshot!(file, @"
        # version 3, applied 2030-03-17T17:46:40Z
        flow: create_instance
        steps:
        - name: check
          run: resource.check_resource
        - name: init
          run: mysql.init_instance
          timeout: 30m
          retry: 3
          rollback: mysql.clean_instance
        ");
        let again = flowfile::read(&file, format).unwrap().remove(0);
        assert_eq!(
            serde_json::to_value(&again.document).unwrap(),
            serde_json::to_value(&source.document).unwrap()
        );

        let now = flow.created_at + SignedDuration::from_hours(30);
        assert_snapshot!(render_list(&[flow], now, Style::PLAIN), @"
        FLOW             VERSION  APPLIED  STEPS
        create_instance  3        1d ago   check init
        ");
    }

    #[test]
    fn flows_are_named_with_or_without_version() {
        let named = |name: &str, version| Ok(FlowName { name: name.to_owned(), version });
        assert_eq!("backup".parse(), named("backup", None));
        assert_eq!("backup@12".parse(), named("backup", Some(12)));
        for wrong in ["backup@", "backup@new", "backup@-1"] {
            assert!(wrong.parse::<FlowName>().is_err(), "{wrong}");
        }
    }
}
