//! Rollout files: in the formats of flow files, with one rollout per document.

use std::collections::{BTreeMap, HashSet};

use windlass_api::{RolloutAbortOf, RolloutDocument, RolloutOnAbort, RolloutRate, RolloutThreshold};

use super::{
    FILE_BYTES_MAX, FlowError, Format,
    error::{Fault, quote},
    fields::{Fields, text},
    json, toml,
    tree::{Node, Value},
    trigger::{params, whole},
    yaml,
};

const ROLLOUT_KEYS: [&str; 10] = [
    "rollout",
    "flow",
    "params",
    "priority",
    "select",
    "rate",
    "max_running",
    "abort",
    "on_abort",
    "group_by",
];

const RATE_KEYS: [&str; 5] = ["per_minute", "base", "factor", "per_minute_max", "after"];

const THRESHOLD_KEYS: [&str; 4] = ["of", "percent", "count", "at_least"];

/// Reads one file: a YAML text with one rollout per document, or a JSON or TOML text with one rollout.
///
/// # Errors
/// The first mistake, with its line and column.
pub fn read_rollouts(text: &str, format: Format) -> Result<Vec<RolloutDocument>, FlowError> {
    if text.len() > FILE_BYTES_MAX {
        return Err(FlowError::new(format!(
            "the rollout file has {} bytes: the limit is {FILE_BYTES_MAX}; split it",
            text.len()
        )));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    rollouts(text, format).map_err(|fault| fault.locate(text))
}

fn rollouts(text: &str, format: Format) -> Result<Vec<RolloutDocument>, Fault> {
    let roots = match format {
        Format::Yaml => yaml::trees(text)?,
        Format::Json => vec![json::tree(text)?],
        Format::Toml => vec![toml::tree(text)?],
    };
    let (mut rollouts, mut names) = (Vec::new(), HashSet::new());
    for root in roots {
        let at = root.at;
        if matches!(&root.value, Value::Map(entries) if entries.is_empty()) {
            continue;
        }
        let rollout = rollout(root)?;
        if let Some(name) = rollout.rollout.as_ref().filter(|name| !names.insert((*name).clone())) {
            return Err(Fault::new(at, format!("duplicate rollout {}: use different names", quote(name))));
        }
        rollouts.push(rollout);
    }
    if rollouts.is_empty() {
        let hint = "the file contains no rollout: a rollout has `rollout`, its name, `flow` and `select`";
        return Err(Fault::new(0, hint));
    }
    Ok(rollouts)
}

fn rollout(root: Node) -> Result<RolloutDocument, Fault> {
    let mut fields = Fields::of(root, "a rollout", &ROLLOUT_KEYS)?;
    Ok(RolloutDocument {
        rollout: Some(fields.need_text("rollout", "the name of the rollout")?),
        flow: fields.need_text("flow", "the flow that is started for each device")?,
        params: fields.take("params").map(params).transpose()?,
        priority: fields.take("priority").map(|node| whole(&node, "priority")).transpose()?,
        select: labels(fields.need("select", "the labels of the devices, as in `select: {site: nord}`")?)?,
        rate: fields.take("rate").map(rate).transpose()?,
        max_running: fields.count("max_running")?,
        abort: fields.take("abort").map(thresholds).transpose()?.unwrap_or_default(),
        on_abort: fields
            .choice("on_abort", &[("stop", RolloutOnAbort::Stop), ("rollback", RolloutOnAbort::Rollback)])?,
        group_by: fields.text("group_by")?,
    })
}

fn rate(node: Node) -> Result<RolloutRate, Fault> {
    let mut fields = Fields::of(node, "`rate`", &RATE_KEYS)?;
    let factor = |node: Node| match &node.value {
        Value::Number(number) if number.as_f64().is_some() => Ok(number.as_f64()),
        _ => Err(node.unexpected("factor", "a number, such as 1.5")),
    };
    Ok(RolloutRate {
        per_minute: fields.count("per_minute")?,
        base: fields.count("base")?,
        factor: fields.take("factor").map(factor).transpose()?.flatten(),
        per_minute_max: fields.count("per_minute_max")?,
        after: fields.count("after")?,
    })
}

fn thresholds(node: Node) -> Result<Vec<RolloutThreshold>, Fault> {
    match node.value {
        Value::List(nodes) => nodes.into_iter().map(threshold).collect(),
        _ => {
            Err(node
                .unexpected("abort", "a list of thresholds, as in `abort: [{percent: 10, at_least: 20}]`"))
        }
    }
}

fn threshold(node: Node) -> Result<RolloutThreshold, Fault> {
    let mut fields = Fields::of(node, "an abort threshold", &THRESHOLD_KEYS)?;
    let of = fields.choice(
        "of",
        &[
            ("failed", RolloutAbortOf::Failed),
            ("timed_out", RolloutAbortOf::TimedOut),
            ("any", RolloutAbortOf::Any),
        ],
    )?;
    Ok(RolloutThreshold {
        of: of.unwrap_or_default(),
        percent: fields.count("percent")?,
        count: fields.count("count")?,
        at_least: fields.count("at_least")?,
    })
}

fn labels(node: Node) -> Result<BTreeMap<String, String>, Fault> {
    match node.value {
        Value::Map(entries) => {
            entries.into_iter().map(|entry| Ok((entry.key.clone(), text(entry.value, &entry.key)?))).collect()
        }
        _ => Err(node.unexpected("select", "a map of labels, as in `{site: nord}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
rollout: valves
flow: update
params: { version: 2 }
select: { site: nord }
rate: { base: 10, factor: 1.5, per_minute_max: 600, after: 100 }
max_running: 50
abort:
  - { of: failed, percent: 10, at_least: 20 }
  - { count: 5 }
on_abort: rollback
group_by: model
";

    #[test]
    fn a_file_is_the_document_of_the_contract() {
        let rollouts = read_rollouts(GOOD, Format::Yaml).unwrap();
        let json = serde_json::to_string(&rollouts[0]).unwrap();
        insta::assert_snapshot!(json, @r#"{"rollout":"valves","flow":"update","params":{"version":2},"select":{"site":"nord"},"rate":{"base":10,"factor":1.5,"per_minute_max":600,"after":100},"max_running":50,"abort":[{"of":"failed","percent":10,"at_least":20},{"of":"any","count":5}],"on_abort":"rollback","group_by":"model"}"#);
        // What a server shows is a file as well.
        let again = read_rollouts(&json, Format::Json).unwrap();
        assert_eq!(serde_json::to_string(&again[0]).unwrap(), json);
    }

    #[test]
    fn mistakes_have_their_places() {
        let error = |text: &str| {
            let error = read_rollouts(text, Format::Yaml).unwrap_err();
            format!("{}:{} {}", error.line.unwrap(), error.column.unwrap(), error.message)
        };
        insta::assert_snapshot!(error(&GOOD.replace("on_abort", "onabort")), @r#"11:1 unknown key "onabort" in a rollout: did you mean `on_abort`? Known are `rollout`, `flow`, `params`, `priority`, `select`, `rate`, `max_running`, `abort`, `on_abort` and `group_by`"#);
        insta::assert_snapshot!(error(&GOOD.replace("rollback", "undo")), @r#"11:11 `on_abort` is "undo", and must be stop or rollback"#);
        insta::assert_snapshot!(error(&GOOD.replace("base: 10", "base: -1")), @"6:15 `base`: -1 is negative: write 0 or more");
        insta::assert_snapshot!(error(&GOOD.replace("site: nord", "site: 3")), @r#"5:17 `site` must be a string: put it in quotes, as in "3""#);
        insta::assert_snapshot!(error("rollout: a\nflow: f\n"), @"1:1 a rollout needs `select`: the labels of the devices, as in `select: {site: nord}`");
        insta::assert_snapshot!(error("\n"), @"1:1 the file contains no rollout: a rollout has `rollout`, its name, `flow` and `select`");
    }
}
