//! Devices: from documents and files to what the engine stores.

use std::collections::{BTreeMap, HashSet};

use windlass_api::{DeviceDocument, DevicePresence};
use windlass_core::{Device, Millis, Name, PresenceRule};

use super::{
    FlowError, Format,
    error::{Fault, quote},
    fields::{Fields, text},
    json, toml,
    tree::{Node, Value},
    yaml,
};

/// The longest file of devices, in bytes.
const DEVICE_FILE_BYTES_MAX: usize = 16 << 20;

/// The payloads of status topics where a declaration does not say.
pub(crate) const STATUS_DEFAULT: [&str; 2] = ["online", "offline"];

/// The longest part of a label's key that an error names, in characters.
const NAMED_MAX: usize = 100;

const DEVICE_KEYS: [&str; 4] = ["name", "labels", "presence", "echoes_attempt"];

const PRESENCE_KEYS: [&str; 4] = ["topic", "online", "offline", "keep_alive"];

/// Reads one file: a device, a list of devices, or a map with `devices`; in YAML also several of these documents.
///
/// # Errors
/// The first mistake, with its line and column.
pub fn read_devices(text: &str, format: Format) -> Result<Vec<DeviceDocument>, FlowError> {
    if text.len() > DEVICE_FILE_BYTES_MAX {
        return Err(FlowError::new(format!(
            "the file of devices has {} bytes: the limit is {DEVICE_FILE_BYTES_MAX}; split it",
            text.len()
        )));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    documents(text, format).map_err(|fault| fault.locate(text))
}

fn documents(text: &str, format: Format) -> Result<Vec<DeviceDocument>, Fault> {
    let roots = match format {
        Format::Yaml => yaml::trees(text)?,
        Format::Json => vec![json::tree(text)?],
        Format::Toml => vec![toml::tree(text)?],
    };
    let (mut devices, mut names) = (Vec::new(), HashSet::new());
    for node in roots.into_iter().map(nodes).collect::<Result<Vec<_>, _>>()?.into_iter().flatten() {
        let at = node.at;
        let device = document(node)?;
        self::device(&device).map_err(|message| Fault::new(at, message))?;
        if let Some(name) = device.name.as_ref().filter(|name| !names.insert((*name).clone())) {
            return Err(Fault::new(at, format!("duplicate device {}: use different names", quote(name))));
        }
        devices.push(device);
    }
    if devices.is_empty() {
        let hint =
            "the file contains no device: write a device with `name`, or a list of them under `devices`";
        return Err(Fault::new(0, hint));
    }
    Ok(devices)
}

/// The devices of a document of a file.
fn nodes(root: Node) -> Result<Vec<Node>, Fault> {
    match &root.value {
        Value::Map(entries) if entries.is_empty() => Ok(Vec::new()),
        Value::Map(entries) if entries.iter().any(|entry| entry.key == "devices") => {
            let mut fields = Fields::of(root, "a file of devices", &["devices"])?;
            fields.take("devices").map_or_else(|| Ok(Vec::new()), list)
        }
        Value::List(_) => list(root),
        _ => Ok(vec![root]),
    }
}

fn list(node: Node) -> Result<Vec<Node>, Fault> {
    match node.value {
        Value::List(nodes) => Ok(nodes),
        _ => Err(node.unexpected("devices", "a list of devices")),
    }
}

fn document(node: Node) -> Result<DeviceDocument, Fault> {
    let mut fields = Fields::of(node, "a device", &DEVICE_KEYS)?;
    Ok(DeviceDocument {
        name: Some(fields.need_text("name", "the name of the device")?),
        labels: fields.take("labels").map(labels).transpose()?.unwrap_or_default(),
        presence: fields.take("presence").map(presence).transpose()?,
        echoes_attempt: match fields.take("echoes_attempt") {
            None => false,
            Some(Node { value: Value::Bool(echoes), .. }) => echoes,
            Some(node) => return Err(node.unexpected("echoes_attempt", "true or false")),
        },
    })
}

fn labels(node: Node) -> Result<BTreeMap<String, String>, Fault> {
    let Value::Map(entries) = node.value else {
        return Err(node.unexpected("labels", "a map of strings"));
    };
    // The name of a key in a message is cut: a label may have any length before it is checked.
    let named = |key: &str| key.chars().take(NAMED_MAX).collect::<String>();
    entries.into_iter().map(|entry| Ok((text(entry.value, &named(&entry.key))?, entry.key))).try_fold(
        BTreeMap::new(),
        |mut labels, label| {
            let (value, key) = label?;
            labels.insert(key, value);
            Ok(labels)
        },
    )
}

fn presence(node: Node) -> Result<DevicePresence, Fault> {
    let at = node.at;
    let mut fields = Fields::of(node, "`presence`", &PRESENCE_KEYS)?;
    let presence = DevicePresence {
        topic: fields.text("topic")?,
        online: fields.text("online")?,
        offline: fields.text("offline")?,
        keep_alive: fields.span("keep_alive")?,
    };
    rule(&presence).map_err(|message| Fault::new(at, message))?;
    Ok(presence)
}

/// The device that a document declares.
///
/// # Errors
/// What is wrong with it, and what to do.
pub fn device(document: &DeviceDocument) -> Result<Device, String> {
    let name = document.name.as_deref().ok_or("a device needs `name`")?;
    let device = Device {
        name: Name::new(name).map_err(|error| format!("`name`: {error}"))?,
        labels: document.labels.clone(),
        presence: document.presence.as_ref().map_or(Ok(PresenceRule::Always), rule)?,
        echoes_attempt: document.echoes_attempt,
    };
    device.check()?;
    Ok(device)
}

fn rule(presence: &DevicePresence) -> Result<PresenceRule, String> {
    let DevicePresence { topic, online, offline, keep_alive } = presence;
    let payload = |written: &Option<String>, default: &str| -> Box<str> {
        written.as_deref().unwrap_or(default).into()
    };
    match (topic, keep_alive) {
        (Some(_), Some(_)) => {
            Err("`presence` has both `topic` and `keep_alive`: a device has one of them".to_owned())
        }
        (None, None) => Err(
            "`presence` needs `topic` or `keep_alive`: leave `presence` out for a device that is not watched"
                .to_owned(),
        ),
        (None, Some(span)) if online.is_none() && offline.is_none() => {
            Ok(PresenceRule::KeepAlive(Millis(span.ms)))
        }
        (None, Some(_)) => Err("`presence`: `online` and `offline` go with `topic`: remove them".to_owned()),
        (Some(topic), None) => Ok(PresenceRule::Topic {
            topic: topic.as_str().into(),
            online: payload(online, STATUS_DEFAULT[0]),
            offline: payload(offline, STATUS_DEFAULT[1]),
        }),
    }
}

/// How the presence of a device is declared.
#[must_use]
pub fn presence_document(rule: &PresenceRule) -> Option<DevicePresence> {
    match rule {
        PresenceRule::Always => None,
        PresenceRule::Topic { topic, online, offline } | PresenceRule::Learned { topic, online, offline } => {
            Some(DevicePresence {
                topic: Some(topic.to_string()),
                online: Some(online.to_string()),
                offline: Some(offline.to_string()),
                keep_alive: None,
            })
        }
        PresenceRule::KeepAlive(span) => Some(DevicePresence {
            keep_alive: Some(windlass_api::Span::from_ms(span.0)),
            ..DevicePresence::default()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str, format: Format) -> Vec<String> {
        let devices = read_devices(text, format).unwrap();
        devices.into_iter().filter_map(|device| device.name).collect()
    }

    fn refusal(yaml: &str) -> String {
        let error = read_devices(yaml, Format::Yaml).expect_err(yaml);
        format!("{}:{}: {}", error.line.unwrap(), error.column.unwrap(), error.message)
    }

    #[test]
    fn a_file_has_one_device_or_a_list_in_every_format() {
        assert_eq!(names("name: a\nlabels: {site: nord}\n", Format::Yaml), ["a"]);
        assert_eq!(names("- name: a\n- name: b\n", Format::Yaml), ["a", "b"]);
        assert_eq!(names("devices: [{name: a}]\n---\nname: b\n", Format::Yaml), ["a", "b"]);
        assert_eq!(names(r#"[{"name":"a"},{"name":"b"}]"#, Format::Json), ["a", "b"]);
        assert_eq!(names("[[devices]]\nname = \"a\"\n[[devices]]\nname = \"b\"\n", Format::Toml), ["a", "b"]);
        assert_eq!(names("name = \"a\"\nechoes_attempt = true\n", Format::Toml), ["a"]);
    }

    #[test]
    fn presence_is_a_topic_or_a_keep_alive_and_stays_the_same_as_a_document() {
        let text = "
- { name: a, presence: { topic: a/status } }
- { name: b, presence: { topic: b/status, online: up, offline: '' } }
- { name: c, presence: { keep_alive: 60s } }
- { name: d }
";
        let devices = read_devices(text, Format::Yaml).unwrap();
        let rules: Vec<PresenceRule> =
            devices.iter().map(|document| device(document).unwrap().presence).collect();
        assert!(
            matches!(&rules[0], PresenceRule::Topic { online, offline, .. } if &**online == "online" && &**offline == "offline")
        );
        assert!(
            matches!(&rules[1], PresenceRule::Topic { online, offline, .. } if &**online == "up" && offline.is_empty())
        );
        assert_eq!(rules[2..], [PresenceRule::KeepAlive(Millis(60_000)), PresenceRule::Always]);
        for rule in &rules {
            let again = presence_document(rule)
                .map_or(PresenceRule::Always, |document| super::rule(&document).unwrap());
            assert_eq!(again, *rule);
        }
    }

    #[test]
    fn every_mistake_has_its_place() {
        for (yaml, message) in [
            ("- name: a\n- name: a\n", "2:3: duplicate device \"a\""),
            ("- name: a\n- labels: {}\n", "2:3: a device needs `name`"),
            ("name: a\nlabel: {}\n", "2:1: unknown key \"label\""),
            ("name: a\nlabels: {rev: 3}\n", "2:15: `rev` must be a string"),
            ("name: a b\n", "1:1: `name`: invalid name \"a b\""),
            ("name: a\npresence: {}\n", "2:11: `presence` needs `topic` or `keep_alive`"),
            ("name: a\npresence: {topic: a, keep_alive: 1m}\n", "2:11: `presence` has both"),
            ("name: a\npresence: {keep_alive: 1m, online: x}\n", "2:11: `presence`: `online` and `offline`"),
            ("name: a\npresence: {keep_alive: soon}\n", "2:24: `keep_alive`"),
            ("name: a\npresence: {keep_alive: 0s}\n", "1:1: `presence.keep_alive` must be longer than 0"),
            ("name: a\npresence: {topic: a/#}\n", "1:1: `presence.topic`: the topic \"a/#\" has a wildcard"),
            ("name: a\nechoes_attempt: 1\n", "2:17: `echoes_attempt` is a number"),
            ("devices: {name: a}\n", "1:10: `devices` is a map of keys"),
            ("devices: []\n", "1:1: the file contains no device"),
            ("", "1:1: the file contains no device"),
        ] {
            let refusal = refusal(yaml);
            assert!(refusal.starts_with(message), "{yaml}: {refusal}");
        }
    }

    #[test]
    fn files_of_many_devices_are_read() {
        const DEVICES: usize = 20_000;
        let device = |n: usize| format!(r#"{{ "name": "dev-{n}", "labels": {{ "site": "s{}" }} }}"#, n % 10);
        let devices = |count| (0..count).map(device).collect::<Vec<_>>().join(",\n");
        let all = format!("[{}]", devices(DEVICES));
        assert_eq!(read_devices(&all, Format::Json).unwrap().len(), DEVICES);
        let some = format!("devices: [{}]", devices(DEVICES / 4));
        assert_eq!(read_devices(&some, Format::Yaml).unwrap().len(), DEVICES / 4);
        let long = " ".repeat(DEVICE_FILE_BYTES_MAX + 1);
        assert!(read_devices(&long, Format::Json).unwrap_err().message.contains("split it"));
    }
}
