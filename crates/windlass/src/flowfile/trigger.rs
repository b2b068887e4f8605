//! Trigger files: in the formats of flow files, with one trigger per document.

use std::collections::{BTreeMap, HashSet};

use windlass_api::{TriggerCatchUp, TriggerDocument, TriggerFlow, TriggerHttp, TriggerMqtt, TriggerOverlap};

use super::{
    FILE_BYTES_MAX, FlowError, Format,
    error::{Fault, quote},
    fields::{Fields, text},
    json, toml,
    tree::{Node, Value},
    yaml,
};

const TRIGGER_KEYS: [&str; 13] = [
    "trigger",
    "cron",
    "timezone",
    "every",
    "jitter",
    "catch_up",
    "catch_up_window",
    "overlap",
    "http",
    "mqtt",
    "intake",
    "classic",
    "flows",
];

const FLOW_KEYS: [&str; 5] = ["flow", "params", "map", "labels", "priority"];

const HTTP_KEYS: [&str; 3] = ["secret", "header", "unsigned"];

const MQTT_KEYS: [&str; 2] = ["topic", "id"];

/// Reads one file: a YAML text with one trigger per document, or a JSON or TOML text with one trigger.
///
/// # Errors
/// The first mistake, with its line and column.
pub fn read_triggers(text: &str, format: Format) -> Result<Vec<TriggerDocument>, FlowError> {
    if text.len() > FILE_BYTES_MAX {
        return Err(FlowError::new(format!(
            "the trigger file has {} bytes: the limit is {FILE_BYTES_MAX}; split it",
            text.len()
        )));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    triggers(text, format).map_err(|fault| fault.locate(text))
}

fn triggers(text: &str, format: Format) -> Result<Vec<TriggerDocument>, Fault> {
    let roots = match format {
        Format::Yaml => yaml::trees(text)?,
        Format::Json => vec![json::tree(text)?],
        Format::Toml => vec![toml::tree(text)?],
    };
    let (mut triggers, mut names) = (Vec::new(), HashSet::new());
    for root in roots {
        let at = root.at;
        if matches!(&root.value, Value::Map(entries) if entries.is_empty()) {
            continue;
        }
        let trigger = trigger(root)?;
        if let Some(name) = trigger.trigger.as_ref().filter(|name| !names.insert((*name).clone())) {
            let message = format!("duplicate trigger {}: use different names", quote(name));
            return Err(Fault::new(at, message));
        }
        triggers.push(trigger);
    }
    if triggers.is_empty() {
        let hint = "the file contains no trigger: a trigger has `trigger`, its name, one of `cron`, `every`, \
                    `http`, `mqtt` and `intake`, and `flows`";
        return Err(Fault::new(0, hint));
    }
    Ok(triggers)
}

fn trigger(root: Node) -> Result<TriggerDocument, Fault> {
    let mut fields = Fields::of(root, "a trigger", &TRIGGER_KEYS)?;
    Ok(TriggerDocument {
        trigger: Some(fields.need_text("trigger", "the name of the trigger")?),
        cron: fields.text("cron")?,
        timezone: fields.text("timezone")?,
        every: fields.span("every")?,
        jitter: fields.span("jitter")?,
        catch_up: fields.choice(
            "catch_up",
            &[("none", TriggerCatchUp::None), ("one", TriggerCatchUp::One), ("all", TriggerCatchUp::All)],
        )?,
        catch_up_window: fields.span("catch_up_window")?,
        overlap: fields.choice(
            "overlap",
            &[
                ("allow", TriggerOverlap::Allow),
                ("skip", TriggerOverlap::Skip),
                ("queue", TriggerOverlap::Queue),
                ("cancel_other", TriggerOverlap::CancelOther),
            ],
        )?,
        http: fields.take("http").map(http).transpose()?,
        mqtt: fields.take("mqtt").map(mqtt).transpose()?,
        intake: fields.take("intake").map(|node| flag(&node, "intake")).transpose()?,
        classic: fields.take("classic").map(|node| flag(&node, "classic")).transpose()?,
        flows: flows(fields.need("flows", "list the flows it starts, as in `flows: [{flow: report}]`")?)?,
    })
}

fn http(node: Node) -> Result<TriggerHttp, Fault> {
    let mut fields = Fields::of(node, "`http`", &HTTP_KEYS)?;
    Ok(TriggerHttp {
        secret: fields.text("secret")?,
        header: fields.text("header")?,
        unsigned: fields.take("unsigned").map(|node| flag(&node, "unsigned")).transpose()?,
    })
}

fn mqtt(node: Node) -> Result<TriggerMqtt, Fault> {
    let mut fields = Fields::of(node, "`mqtt`", &MQTT_KEYS)?;
    let topic = fields.need_text("topic", "a topic filter, such as site/+/alarm")?;
    Ok(TriggerMqtt { topic, id: fields.text("id")? })
}

fn flows(node: Node) -> Result<Vec<TriggerFlow>, Fault> {
    match node.value {
        Value::List(nodes) => nodes.into_iter().map(flow).collect(),
        _ => Err(node.unexpected("flows", "a list of flows, each with `flow`, its name")),
    }
}

fn flow(node: Node) -> Result<TriggerFlow, Fault> {
    let mut fields = Fields::of(node, "a flow of a trigger", &FLOW_KEYS)?;
    Ok(TriggerFlow {
        flow: fields.need_text("flow", "the name of a flow")?,
        params: fields.take("params").map(params).transpose()?,
        map: texts(&mut fields, "map")?,
        labels: texts(&mut fields, "labels")?,
        priority: fields.take("priority").map(|node| whole(&node, "priority")).transpose()?,
    })
}

pub(super) fn params(node: Node) -> Result<serde_json::Map<String, serde_json::Value>, Fault> {
    match &node.value {
        Value::Map(_) => match node.into_json() {
            serde_json::Value::Object(params) => Ok(params),
            _ => Ok(serde_json::Map::new()),
        },
        _ => Err(node.unexpected("params", "a map of keys, such as {size: 3}")),
    }
}

/// A map of strings.
fn texts(fields: &mut Fields, key: &str) -> Result<BTreeMap<String, String>, Fault> {
    let Some(node) = fields.take(key) else { return Ok(BTreeMap::new()) };
    match node.value {
        Value::Map(entries) => {
            entries.into_iter().map(|entry| Ok((entry.key.clone(), text(entry.value, &entry.key)?))).collect()
        }
        _ => Err(node.unexpected(key, "a map of keys with strings")),
    }
}

fn flag(node: &Node, key: &str) -> Result<bool, Fault> {
    match node.value {
        Value::Bool(value) => Ok(value),
        _ => Err(node.unexpected(key, "true or false")),
    }
}

pub(super) fn whole(node: &Node, key: &str) -> Result<i64, Fault> {
    let number = match &node.value {
        Value::Number(number) => number.as_i64(),
        _ => None,
    };
    number.ok_or_else(|| node.unexpected(key, "a whole number, such as 3"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
trigger: nightly
cron: '0 3 * * *'
timezone: Europe/Berlin
jitter: 30s
catch_up: one
catch_up_window: 6h
overlap: skip
flows:
  - flow: report
    params: {size: 3}
    map: {day: trigger.instant}
    labels: {team: a}
    priority: 2
---
trigger: deploy
http: {secret: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw}
flows: [{flow: deploy}]
";

    #[test]
    fn a_file_has_several_triggers() {
        let triggers = read_triggers(GOOD, Format::Yaml).unwrap();
        let json = serde_json::to_string(&triggers[0]).unwrap();
        insta::assert_snapshot!(json, @r#"{"trigger":"nightly","cron":"0 3 * * *","timezone":"Europe/Berlin","jitter":"30s","catch_up":"one","catch_up_window":"6h","overlap":"skip","flows":[{"flow":"report","params":{"size":3},"map":{"day":"trigger.instant"},"labels":{"team":"a"},"priority":2}]}"#);
        assert_eq!(triggers[1].trigger.as_deref(), Some("deploy"));
        // What the server shows is a file as well.
        let again = read_triggers(&json, Format::Json).unwrap();
        assert_eq!(serde_json::to_string(&again[0]).unwrap(), json);
        let text = "trigger: t\nmqtt: {topic: site/+/alarm, id: payload.id}\nflows: [{flow: f}]\n";
        let json = serde_json::to_string(&read_triggers(text, Format::Yaml).unwrap()[0]).unwrap();
        insta::assert_snapshot!(json, @r#"{"trigger":"t","mqtt":{"topic":"site/+/alarm","id":"payload.id"},"flows":[{"flow":"f"}]}"#);
        let toml = "trigger = \"t\"\nevery = \"90s\"\n[[flows]]\nflow = \"f\"\n";
        assert_eq!(read_triggers(toml, Format::Toml).unwrap()[0].every.unwrap().ms, 90_000);
    }

    #[test]
    fn mistakes_have_their_places() {
        let error = |text: &str| {
            let error = read_triggers(text, Format::Yaml).unwrap_err();
            format!("{}:{} {}", error.line.unwrap(), error.column.unwrap(), error.message)
        };
        insta::assert_snapshot!(error(&GOOD.replace("overlap", "overlapp")), @r#"8:1 unknown key "overlapp" in a trigger: did you mean `overlap`? Known are `trigger`, `cron`, `timezone`, `every`, `jitter`, `catch_up`, `catch_up_window`, `overlap`, `http`, `mqtt`, `intake`, `classic` and `flows`"#);
        insta::assert_snapshot!(error(&GOOD.replace("skip", "never")), @r#"8:10 `overlap` is "never", and must be allow, skip, queue or cancel_other"#);
        insta::assert_snapshot!(error(&GOOD.replace("labels: {team: a}", "labels: {team: 3}")), @r#"13:20 `team` must be a string: put it in quotes, as in "3""#);
        insta::assert_snapshot!(error(&GOOD.replace("deploy\nhttp", "nightly\nhttp")), @r#"16:1 duplicate trigger "nightly": use different names"#);
        insta::assert_snapshot!(error("trigger: a\n"), @"1:1 a trigger needs `flows`: list the flows it starts, as in `flows: [{flow: report}]`");
        insta::assert_snapshot!(error("\n"), @"1:1 the file contains no trigger: a trigger has `trigger`, its name, one of `cron`, `every`, `http`, `mqtt` and `intake`, and `flows`");
    }
}
