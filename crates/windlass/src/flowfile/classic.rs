//! The classic catalogue: one JSON map of all flows. Its timeouts apply to all attempts of a step together.
//!
//! ```json
//! { "create_instance": [
//!     { "normal":   {"module": "mysql", "command": "init_instance", "timeout": 1800, "retry": 3},
//!       "rollback": {"module": "mysql", "command": "clean_instance", "timeout": 900, "retry": 3} } ],
//!   "resize": { "retry_by": "module", "steps": [ … ] } }
//! ```
//!
//! A flow is the list of its steps, or a map with the list and `retry_by`.

use std::collections::HashSet;

use windlass_api::{
    ActionDocument, ActionSettings, BackoffKind, FlowDocument, RetryDocument, RetrySettings, RollbackParams,
    StepDocument,
};
use windlass_core::{DEVICE_MODULE, FLOW_MODULE, STEPS_MAX};

use super::{
    document::RETRY_BY,
    error::{Fault, quote, too_many_steps},
    fields::Fields,
    place::Places,
    tree::{Entry, Node, Value},
};

/// Whether this is a catalogue and not a single flow: no key is `flow` or `steps`, every value is a list or a
/// map, and at least one is a list or a map with `steps`. Other maps are mistakes in a catalogue.
pub(super) fn is_catalogue(root: &Node) -> bool {
    let Value::Map(entries) = &root.value else {
        return false;
    };
    let is_flow = |value: &Value| match value {
        Value::List(_) => true,
        Value::Map(entries) => entries.iter().any(|entry| entry.key == "steps"),
        _ => false,
    };
    entries.iter().any(|entry| is_flow(&entry.value.value))
        && entries.iter().all(|entry| {
            matches!(entry.value.value, Value::List(_) | Value::Map(_))
                && !matches!(entry.key.as_str(), "flow" | "steps")
        })
}

/// All flows of a catalogue, and the places of their parts in the text.
pub(super) fn flows(root: Node) -> Result<Vec<(FlowDocument, Places)>, Fault> {
    match root.value {
        Value::Map(entries) => entries.into_iter().map(flow).collect(),
        _ => Ok(Vec::new()),
    }
}

fn flow(entry: Entry) -> Result<(FlowDocument, Places), Fault> {
    let mut places = Places::default();
    places.note(String::new(), entry.key_at);
    let (steps, retry_by) = match entry.value.value {
        Value::Map(_) => {
            let mut fields = Fields::of(entry.value, "a classic flow", &["retry_by", "steps"])?;
            (fields.need("steps", "the list of its steps")?, fields.choice("retry_by", &RETRY_BY)?)
        }
        _ => (entry.value, None),
    };
    let Value::List(nodes) = steps.value else {
        return Err(steps.unexpected(&entry.key, "a list of steps"));
    };
    // Checked before the names are made: that takes quadratic time for steps with the same command.
    if nodes.len() > STEPS_MAX {
        return Err(Fault::new(entry.key_at, too_many_steps(nodes.len())));
    }
    let mut names = HashSet::new();
    let mut steps = Vec::with_capacity(nodes.len());
    for (index, node) in nodes.into_iter().enumerate() {
        let path = format!("steps[{index}]");
        places.note(path.clone(), node.at);
        let mut fields = Fields::of(node, "a classic step", &["normal", "rollback"])?;
        let normal = fields.need("normal", "what the step does: module, command, timeout, retry")?;
        let normal = action(normal, &path, &mut places)?;
        let rollback = match fields.take("rollback") {
            Some(node) => Some(action(node, &format!("{path}.rollback"), &mut places)?),
            None => None,
        };
        steps.push(StepDocument {
            name: unlike(&normal.command, &mut names),
            run: normal.settings.run,
            timeout: normal.settings.timeout,
            deadline: normal.settings.deadline,
            retry: normal.settings.retry,
            rollback: rollback.map(|action| ActionDocument::Full(Box::new(action.settings))),
            ..StepDocument::default()
        });
    }
    // Classic steps share their parameters in both directions.
    let rollback_params = Some(RollbackParams::Shared);
    let document =
        FlowDocument { flow: Some(entry.key), retry_by, rollback_params, steps, ..FlowDocument::default() };
    Ok((document, places))
}

struct Action {
    command: String,
    settings: ActionSettings,
}

fn action(node: Node, path: &str, places: &mut Places) -> Result<Action, Fault> {
    note(&node, path, places);
    let mut fields = Fields::of(node, "a classic action", &["module", "command", "timeout", "retry"])?;
    let module_node = fields.need("module", "the queue it goes to")?;
    let module_at = module_node.at;
    let module = super::fields::text(module_node, "module")?;
    if module.contains('.') {
        return Err(Fault::new(
            module_at,
            format!("the module {} has a dot: modules must not contain one", quote(&module)),
        ));
    }
    if module == FLOW_MODULE || module == DEVICE_MODULE {
        let message =
            format!("the module `{module}` is reserved: no worker serves it, so give it another name");
        return Err(Fault::new(module_at, message));
    }
    let command = fields.need_text("command", "the command of the module")?;
    // The classic timeout covers all attempts of the step together; one attempt may use all of it.
    let timeout = fields.span("timeout")?;
    Ok(Action {
        settings: ActionSettings {
            run: Some(format!("{module}.{command}")),
            start_within: None,
            timeout,
            deadline: timeout,
            retry: Some(RetryDocument::Full(RetrySettings {
                max: fields.count("retry")?.unwrap_or(0),
                backoff: Some(BackoffKind::None),
                base: None,
                cap: None,
            })),
            ..ActionSettings::default()
        },
        command,
    })
}

/// Notes the places of an action's parts, under their names in the document.
fn note(node: &Node, path: &str, places: &mut Places) {
    places.note(path.to_owned(), node.at);
    let Value::Map(entries) = &node.value else {
        return;
    };
    for entry in entries {
        let names: &[&str] = match entry.key.as_str() {
            "command" => &["run", "name"],
            "timeout" => &["timeout", "deadline"],
            "retry" => &["retry"],
            _ => &[],
        };
        for name in names {
            places.note(format!("{path}.{name}"), entry.value.at);
        }
    }
}

/// The name of a step: its command, with a number from 2 if another step has that name.
fn unlike(command: &str, names: &mut HashSet<String>) -> String {
    let numbered = (2_u32..).map(|number| format!("{command}-{number}"));
    let name = std::iter::once(command.to_owned()).chain(numbered).find(|name| !names.contains(name));
    let name = name.unwrap_or_else(|| command.to_owned());
    names.insert(name.clone());
    name
}
