//! Converts a tree to its document.

use windlass_api::{
    ActionDocument, ActionSettings, BackoffKind, FlowDocument, LockDocument, LockExpression, OnConflict,
    OnFailure, OnPartial, OnPartialDocument, RetryBy, RetryDocument, RetrySettings, RollbackParams,
    StepDocument, UniqueDocument, UniqueSettings, UniqueWhile, WhileOffline,
};

use super::{
    error::{Fault, quote},
    fields::{Fields, count, text},
    tree::{Node, Value},
};

const FLOW_KEYS: [&str; 14] = [
    "flow",
    "params",
    "retry_by",
    "on_failure",
    "deadline",
    "unique",
    "exclusive",
    "retention",
    "rollback_params",
    "deaths_max",
    "secret",
    "key",
    "steps",
    "on_error",
];

const STEP_KEYS: [&str; 22] = [
    "name",
    "run",
    "wait",
    "device",
    "topic",
    "args",
    "done",
    "offline",
    "settle",
    "when",
    "each",
    "parallel",
    "on_partial",
    "delay",
    "start_within",
    "timeout",
    "deadline",
    "retry",
    "key",
    "locks",
    "rollback",
    "after",
];

const ACTION_KEYS: [&str; 10] =
    ["run", "topic", "args", "done", "offline", "settle", "start_within", "timeout", "deadline", "retry"];

/// The values of `retry_by`.
pub(super) const RETRY_BY: [(&str, RetryBy); 2] = [("engine", RetryBy::Engine), ("module", RetryBy::Module)];

/// The values of `offline`.
const WHILE_OFFLINE: [(&str, WhileOffline); 2] = [("wait", WhileOffline::Wait), ("fail", WhileOffline::Fail)];

const PARTIAL_HINT: &str = "fail, continue, or the number that must succeed";

/// One flow.
pub(super) fn flow(root: Node) -> Result<FlowDocument, Fault> {
    let mut fields = Fields::of(root, "a flow", &FLOW_KEYS)?;
    Ok(FlowDocument {
        flow: fields.text("flow")?,
        params: fields.take("params").map(|node| object(node, "params")).transpose()?,
        retry_by: fields.choice("retry_by", &RETRY_BY)?,
        on_failure: fields
            .choice("on_failure", &[("rollback", OnFailure::Rollback), ("hold", OnFailure::Hold)])?,
        deadline: fields.span("deadline")?,
        unique: fields.take("unique").map(unique).transpose()?,
        exclusive: fields.take("exclusive").map(|node| lock(node, "exclusive")).transpose()?,
        retention: fields.span("retention")?,
        rollback_params: fields.choice(
            "rollback_params",
            &[
                ("step", RollbackParams::Step),
                ("step_and_result", RollbackParams::StepAndResult),
                ("shared", RollbackParams::Shared),
            ],
        )?,
        deaths_max: fields.count("deaths_max")?,
        secret: fields.take("secret").map(secret).transpose()?.unwrap_or_default(),
        key: fields.text("key")?,
        steps: steps(
            fields.need("steps", "list its steps, as in `steps: [{name: init, run: mysql.init}]`")?,
        )?,
        on_error: fields.take("on_error").map(|node| action(node, "on_error")).transpose()?,
    })
}

fn object(node: Node, key: &'static str) -> Result<serde_json::Map<String, serde_json::Value>, Fault> {
    if !matches!(node.value, Value::Map(_)) {
        return Err(node.unexpected(key, "a map of keys, such as {size: 3}"));
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
    let mut fields = Fields::of(node, "a step", &STEP_KEYS)?;
    Ok(StepDocument {
        name: fields.need_text("name", "a name that no other step has")?,
        run: fields.text("run")?,
        wait: fields.text("wait")?,
        device: fields.take("device").map(|node| lock(node, "device")).transpose()?,
        topic: fields.take("topic").map(|node| lock(node, "topic")).transpose()?,
        args: fields.take("args").map(|node| object(node, "args")).transpose()?,
        done: fields.text("done")?,
        offline: fields.choice("offline", &WHILE_OFFLINE)?,
        settle: fields.span("settle")?,
        when: fields.text("when")?,
        each: fields.text("each")?,
        parallel: fields.count("parallel")?,
        on_partial: fields.take("on_partial").map(on_partial).transpose()?,
        delay: fields.span("delay")?,
        start_within: fields.span("start_within")?,
        timeout: fields.span("timeout")?,
        deadline: fields.span("deadline")?,
        retry: fields.take("retry").map(retry).transpose()?,
        key: fields.text("key")?,
        locks: fields.take("locks").map(locks).transpose()?,
        rollback: fields.take("rollback").map(|node| action(node, "rollback")).transpose()?,
        after: fields.take("after").map(after).transpose()?,
    })
}

fn unique(node: Node) -> Result<UniqueDocument, Fault> {
    if !matches!(node.value, Value::Map(_)) {
        return match node.value {
            Value::List(_) => Err(node.unexpected("unique", "an expression, or a map with `key`")),
            _ => text(node, "unique").map(UniqueDocument::Short),
        };
    }
    let mut fields = Fields::of(node, "`unique`", &["key", "while", "for", "on_conflict"])?;
    Ok(UniqueDocument::Full(UniqueSettings {
        key: fields.need_text("key", "an expression that has the same value for duplicate tasks")?,
        during: fields.choice(
            "while",
            &[
                ("pending", UniqueWhile::Pending),
                ("running", UniqueWhile::Running),
                ("finished", UniqueWhile::Finished),
            ],
        )?,
        period: fields.span("for")?,
        on_conflict: fields
            .choice("on_conflict", &[("return", OnConflict::Return), ("fail", OnConflict::Fail)])?,
    }))
}

fn on_partial(node: Node) -> Result<OnPartialDocument, Fault> {
    match &node.value {
        Value::Number(_) => count(&node, "on_partial").map(OnPartialDocument::AtLeast),
        Value::Text(word) => match word.as_str() {
            "fail" => Ok(OnPartialDocument::Word(OnPartial::Fail)),
            "continue" => Ok(OnPartialDocument::Word(OnPartial::Continue)),
            _ => {
                let message = format!("`on_partial` is {}, and must be {PARTIAL_HINT}", quote(word));
                Err(Fault::new(node.at, message))
            }
        },
        _ => Err(node.unexpected("on_partial", PARTIAL_HINT)),
    }
}

fn locks(node: Node) -> Result<Vec<LockDocument>, Fault> {
    match node.value {
        Value::List(nodes) => nodes
            .into_iter()
            .enumerate()
            .map(|(index, node)| lock(node, &format!("locks[{index}]")))
            .collect(),
        _ => {
            Err(node
                .unexpected("locks", "a list of names, such as [licence, {expression: \"'host-' + host\"}]"))
        }
    }
}

fn lock(node: Node, path: &str) -> Result<LockDocument, Fault> {
    if !matches!(node.value, Value::Map(_)) {
        return text(node, path).map(LockDocument::Name);
    }
    let mut fields = Fields::of(node, "a lock", &["expression"])?;
    let expression =
        fields.need_text("expression", "an expression that computes its name from the parameters")?;
    Ok(LockDocument::Expression(LockExpression { expression }))
}

fn secret(node: Node) -> Result<Vec<String>, Fault> {
    names(node, "secret", "a list of names of parameters, such as [password, key]")
}

fn after(node: Node) -> Result<Vec<String>, Fault> {
    names(node, "after", "a list of names of steps, such as [check, init], or [] for none")
}

fn names(node: Node, key: &'static str, hint: &'static str) -> Result<Vec<String>, Fault> {
    match node.value {
        Value::List(nodes) => {
            let names = nodes.into_iter().enumerate();
            names.map(|(index, node)| text(node, &format!("{key}[{index}]"))).collect()
        }
        _ => Err(node.unexpected(key, hint)),
    }
}

/// The rollback action of a step, or the `on_error` action.
fn action(node: Node, key: &'static str) -> Result<ActionDocument, Fault> {
    if matches!(node.value, Value::Text(_)) {
        return text(node, key).map(ActionDocument::Short);
    }
    if !matches!(node.value, Value::Map(_)) {
        return Err(node.unexpected(key, "MODULE.COMMAND, or a map with `run`"));
    }
    let what = if key == "rollback" { "a rollback" } else { "`on_error`" };
    let mut fields = Fields::of(node, what, &ACTION_KEYS)?;
    Ok(ActionDocument::Full(Box::new(ActionSettings {
        run: fields.text("run")?,
        topic: fields.take("topic").map(|node| lock(node, "topic")).transpose()?,
        args: fields.take("args").map(|node| object(node, "args")).transpose()?,
        done: fields.text("done")?,
        offline: fields.choice("offline", &WHILE_OFFLINE)?,
        settle: fields.span("settle")?,
        start_within: fields.span("start_within")?,
        timeout: fields.span("timeout")?,
        deadline: fields.span("deadline")?,
        retry: fields.take("retry").map(retry).transpose()?,
    })))
}

fn retry(node: Node) -> Result<RetryDocument, Fault> {
    if matches!(node.value, Value::Number(_)) {
        return count(&node, "retry").map(RetryDocument::Short);
    }
    if !matches!(node.value, Value::Map(_)) {
        return Err(node.unexpected("retry", "a number such as 3, or a map with `max`"));
    }
    let mut fields = Fields::of(node, "a retry", &["max", "backoff", "base", "cap"])?;
    let max = fields.need("max", "the number of retries")?;
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
