//! The tasks of a rollout: what they are given, and under which keys.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};
use windlass_core::{
    Actor, DEVICE_LABELS_PARAM, DEVICE_PARAM, Device, Input, Json, Name, Rollout, RolloutDefinition, Task,
    planted::{Bug, is_planted},
};
use windlass_store::{Now, SubmitKey};

use crate::Submission;

/// The label with the name of the rollout.
pub(crate) const ROLLOUT_LABEL: &str = "rollout";

/// The label with the name of the device.
const DEVICE_LABEL: &str = "device";

/// The label with the group of the device, if the rollout has groups.
const GROUP_LABEL: &str = "group";

/// Who starts, cancels and rolls back the tasks of a rollout. No client can claim to be it.
pub(crate) fn actor(rollout: &Name) -> Actor {
    Actor { name: format!("rollout {rollout}").into(), claimed: false }
}

/// The group of a device with these labels.
pub(crate) fn group_of(
    definition: &RolloutDefinition,
    labels: &BTreeMap<String, String>,
) -> Option<Box<str>> {
    labels.get(definition.group_by.as_deref()?).map(|value| value.as_str().into())
}

/// The task of a device.
pub(crate) fn submission(rollout: &Rollout, device: &Device, now: Now) -> Submission {
    let definition = &rollout.definition;
    let mut labels = BTreeMap::from([
        (ROLLOUT_LABEL.to_owned(), rollout.name.to_string()),
        (DEVICE_LABEL.to_owned(), device.name.to_string()),
    ]);
    if let Some(group) = group_of(definition, &device.labels) {
        labels.insert(GROUP_LABEL.to_owned(), group.into());
    }
    let own = serde_json::json!({
        DEVICE_PARAM: device.name.as_str(),
        DEVICE_LABELS_PARAM: device.labels,
    });
    let params = Json::merge(&[definition.params.clone(), Json::from_stored(&own.to_string())]);
    let by = Some(actor(&rollout.name));
    let input = Input { labels, priority: definition.priority, by, ..Input::new(params, now.wall) };
    Submission {
        flow: definition.flow.clone(),
        version: Some(rollout.flow_version),
        input,
        key: (!is_planted(Bug::RolloutKeyForgotten)).then(|| key(rollout, &device.name)),
        fingerprint_before: None,
    }
}

/// The device of a task that this rollout has started, and its group. Reruns and tasks of others may have the same labels.
pub(crate) fn device_of(rollout: &Rollout, task: &Task) -> Option<(Name, Option<Box<str>>)> {
    let input = &task.input;
    if input.rerun_of.is_some() || input.by.as_ref() != Some(&actor(&rollout.name)) {
        return None;
    }
    let device = Name::new(input.labels.get(DEVICE_LABEL)?).ok()?;
    Some((device, input.labels.get(GROUP_LABEL).map(|group| group.as_str().into())))
}

/// The idempotency key of a task: each device has one task in a rollout.
fn key(rollout: &Rollout, device: &Name) -> SubmitKey {
    let mut hash = Sha256::new();
    let created_at = rollout.created_at.0.to_be_bytes();
    for part in [b"rollout", rollout.name.as_bytes(), &created_at[..], device.as_bytes()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    SubmitKey { scope: hash.finalize().into(), fingerprint: [0; 32] }
}
