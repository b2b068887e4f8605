//! A tree into the document it stands for.

use windlass_api::{
    BackoffKind, FlowDocument, OnFailure, RetryBy, RetryDocument, RetrySettings, RollbackDocument,
    RollbackSettings, StepDocument,
};

use super::{
    error::Fault,
    fields::{Fields, count, text},
    tree::{Node, Value},
};

const RUN_HINT: &str = "write MODULE.COMMAND, such as mysql.init_instance";

/// One flow.
pub(super) fn flow(root: Node) -> Result<FlowDocument, Fault> {
    let mut fields = Fields::of(root, "a flow", &["flow", "params", "retry_by", "on_failure", "steps"])?;
    Ok(FlowDocument {
        flow: fields.text("flow")?,
        params: fields.take("params").map(params).transpose()?,
        retry_by: fields.choice("retry_by", &[("engine", RetryBy::Engine), ("module", RetryBy::Module)])?,
        on_failure: fields
            .choice("on_failure", &[("rollback", OnFailure::Rollback), ("hold", OnFailure::Hold)])?,
        steps: steps(
            fields.need("steps", "list what it does, as in `steps: [{name: init, run: mysql.init}]`")?,
        )?,
    })
}

fn params(node: Node) -> Result<serde_json::Map<String, serde_json::Value>, Fault> {
    if !matches!(node.value, Value::Map(_)) {
        return Err(node.unexpected("params", "a map of keys, such as {size: 3}"));
    }
    match node.into_json() {
        serde_json::Value::Object(params) => Ok(params),
        _ => Ok(serde_json::Map::new()),
    }
}

fn steps(node: Node) -> Result<Vec<StepDocument>, Fault> {
    match node.value {
        Value::List(nodes) => nodes.into_iter().map(step).collect(),
        _ => Err(node.unexpected("steps", "a list of steps, each with `name` and `run`")),
    }
}

fn step(node: Node) -> Result<StepDocument, Fault> {
    let known = ["name", "run", "timeout", "deadline", "retry", "rollback", "after"];
    let mut fields = Fields::of(node, "a step", &known)?;
    Ok(StepDocument {
        name: fields.need_text("name", "a name unlike those of the other steps")?,
        run: fields.need_text("run", RUN_HINT)?,
        timeout: fields.span("timeout")?,
        deadline: fields.span("deadline")?,
        retry: fields.take("retry").map(retry).transpose()?,
        rollback: fields.take("rollback").map(rollback).transpose()?,
        after: fields.take("after").map(after).transpose()?,
    })
}

fn after(node: Node) -> Result<Vec<String>, Fault> {
    match node.value {
        Value::List(nodes) => nodes
            .into_iter()
            .enumerate()
            .map(|(index, node)| text(node, &format!("after[{index}]")))
            .collect(),
        _ => Err(node.unexpected("after", "a list of names of steps, such as [check, init], or [] for none")),
    }
}

fn rollback(node: Node) -> Result<RollbackDocument, Fault> {
    if matches!(node.value, Value::Text(_)) {
        return text(node, "rollback").map(RollbackDocument::Short);
    }
    if !matches!(node.value, Value::Map(_)) {
        return Err(node.unexpected("rollback", "MODULE.COMMAND, or a map with `run`"));
    }
    let mut fields = Fields::of(node, "a rollback", &["run", "timeout", "deadline", "retry"])?;
    Ok(RollbackDocument::Full(RollbackSettings {
        run: fields.need_text("run", RUN_HINT)?,
        timeout: fields.span("timeout")?,
        deadline: fields.span("deadline")?,
        retry: fields.take("retry").map(retry).transpose()?,
    }))
}

fn retry(node: Node) -> Result<RetryDocument, Fault> {
    if matches!(node.value, Value::Number(_)) {
        return count(&node, "retry").map(RetryDocument::Short);
    }
    if !matches!(node.value, Value::Map(_)) {
        return Err(node.unexpected("retry", "a number such as 3, or a map with `max`"));
    }
    let mut fields = Fields::of(node, "a retry", &["max", "backoff", "base", "cap"])?;
    let max = fields.need("max", "how often a failure is tried again")?;
    Ok(RetryDocument::Full(RetrySettings {
        max: count(&max, "max")?,
        backoff: fields.choice(
            "backoff",
            &[
                ("exponential", BackoffKind::Exponential),
                ("fixed", BackoffKind::Fixed),
                ("none", BackoffKind::None),
            ],
        )?,
        base: fields.span("base")?,
        cap: fields.span("cap")?,
    }))
}
