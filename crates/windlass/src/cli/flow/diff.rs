//! `windlass flow diff`: what applying would change, or what has changed between two versions.

use std::{fmt::Write as _, path::PathBuf};

use serde::Serialize;
use serde_json::Value;
use windlass_api::{FlowDocument, List};
use windlass_client::Error as ClientError;
use windlass_core::Flow;

use super::{FlowName, check::read_files};
use crate::{
    cli::{
        connection::Context,
        exit::{Exit, UsageError},
        output::{Style, one_line, table::Color},
    },
    flowfile::{self, Difference, differences},
};

/// Compares what `names` stand for: two versions of flows, or files with what is applied.
pub(super) async fn run(names: &[String], context: &Context) -> anyhow::Result<Exit> {
    let compared = match versions(names)? {
        Some([before, after]) => vec![of_versions(&before, &after, context).await?],
        None => of_files(names, context).await?,
    };
    let exit = if compared.iter().all(|flow| flow.same) { Exit::Done } else { Exit::Failed };
    context.output.show(&List { items: compared, next: None }, |list, style| {
        list.items.iter().map(|flow| flow.text(style)).collect()
    })?;
    Ok(exit)
}

/// The two versions that are named, if versions are named and not files.
fn versions(names: &[String]) -> Result<Option<[FlowName; 2]>, UsageError> {
    let named = |name: &String| name.parse().ok().filter(|name: &FlowName| name.version.is_some());
    let versions: Vec<FlowName> = names.iter().map_while(named).collect();
    match <[FlowName; 2]>::try_from(versions) {
        Ok(both) if names.len() == 2 => Ok(Some(both)),
        Err(none) if none.is_empty() => Ok(None),
        _ => Err(UsageError(
            "compare files with what is applied, or two versions, as in `windlass flow diff backup@1 backup@2`"
                .to_owned(),
        )),
    }
}

async fn of_versions(before: &FlowName, after: &FlowName, context: &Context) -> anyhow::Result<Compared> {
    let flows = [stored(before, context).await?, stored(after, context).await?];
    let differences = differences(&flows[0], &flows[1]);
    let label = |flow: &Flow| format!("{}@{}", flow.name, flow.version);
    Ok(Compared {
        flow: after.name.clone(),
        before: Some(label(&flows[0])),
        after: label(&flows[1]),
        same: differences.is_empty(),
        differences,
    })
}

async fn of_files(files: &[String], context: &Context) -> anyhow::Result<Vec<Compared>> {
    let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
    let (mut compared, mut refused) = (Vec::new(), Vec::new());
    for flow in read_files(&files, &[]) {
        match flow {
            Ok(flow) => {
                let name = FlowName { name: flow.name.clone(), version: None };
                let applied = match stored(&name, context).await {
                    Ok(flow) => Some(flow),
                    Err(error) if Exit::of_error(&error) == Exit::NotFound => None,
                    Err(error) => return Err(error),
                };
                let written = compiled(&flow.document)?;
                let differences =
                    applied.as_ref().map(|applied| differences(applied, &written)).unwrap_or_default();
                compared.push(Compared {
                    same: applied.is_some() && differences.is_empty(),
                    before: applied.map(|flow| format!("{}@{}", flow.name, flow.version)),
                    after: flow.file.display().to_string(),
                    flow: flow.name,
                    differences,
                });
            }
            Err(error) => refused.push(error.to_string()),
        }
    }
    if refused.is_empty() { Ok(compared) } else { Err(UsageError(refused.join("\n")).into()) }
}

/// A flow as the server has it.
async fn stored(name: &FlowName, context: &Context) -> anyhow::Result<Flow> {
    let stored: Result<_, ClientError> = context.client.flow(&name.name, name.version).await;
    let stored = stored?;
    let mut document: FlowDocument = serde_json::from_str(stored.definition.get())?;
    document.flow = Some(stored.name);
    Ok(Flow { version: stored.version, ..compiled(&document)? })
}

fn compiled(document: &FlowDocument) -> anyhow::Result<Flow> {
    Ok(flowfile::compile_document(document)?)
}

/// A flow, and what differs.
#[derive(Debug, Serialize)]
struct Compared {
    flow: String,
    /// What is applied, as NAME@VERSION; nothing for a flow that is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<String>,
    /// The other version, or the file.
    after: String,
    same: bool,
    differences: Vec<Difference>,
}

impl Compared {
    /// A line for each difference, under one that says what is compared.
    fn text(&self, style: Style) -> String {
        let Some(before) = &self.before else {
            let new = Color::Good.paint("new", style);
            return format!("{}: flow {} is {new}\n", self.after, self.flow);
        };
        if self.same {
            return format!("{before} → {}: the same\n", self.after);
        }
        let mut text = format!("{before} → {}\n", self.after);
        for difference in &self.differences {
            let (sign, color) = match difference {
                Difference { key: None, before: None, .. } => ("+", Color::Good),
                Difference { key: None, after: None, .. } => ("-", Color::Bad),
                _ => ("~", Color::Warning),
            };
            // Writing to memory does not fail.
            let _ = writeln!(text, "  {} {}", color.paint(sign, style), line(difference));
        }
        text
    }
}

fn line(difference: &Difference) -> String {
    let Difference { step, key, before, after } = difference;
    let step = step.as_ref().map(|step| format!("step {step}: ")).unwrap_or_default();
    let Some(key) = key else {
        let whole = before.as_ref().or(after.as_ref());
        return format!("{step}{}", whole.map(keys).unwrap_or_default());
    };
    let value = |value: &Option<Value>| value.as_ref().map_or_else(|| "(left out)".to_owned(), short);
    format!("{step}{key}: {} → {}", value(before), value(after))
}

/// The keys of a step on a line.
fn keys(step: &Value) -> String {
    let keys = step.as_object().into_iter().flatten();
    keys.map(|(key, value)| format!("{key}: {}", short(value))).collect::<Vec<_>>().join(", ")
}

/// A value as flow files have it, on a line.
fn short(value: &Value) -> String {
    match value {
        Value::String(text) => one_line(text),
        Value::Array(items) => format!("[{}]", items.iter().map(short).collect::<Vec<_>>().join(", ")),
        Value::Object(_) => format!("{{ {} }}", keys(value)),
        other => other.to_string(),
    }
}
