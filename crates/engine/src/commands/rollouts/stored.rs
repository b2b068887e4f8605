//! How rollouts are stored: the number of the format, and JSON.

use std::sync::Arc;

use windlass_core::Rollout;
use windlass_store::{Record, StoreError};

/// The format of this version.
const FORMAT: u8 = 1;

/// The body of a record.
pub(crate) fn encode(rollout: &Rollout) -> Arc<[u8]> {
    let mut body = vec![FORMAT];
    // Writing plain values to memory cannot fail; if it did, the record would be damaged, and reported as such.
    let _ = serde_json::to_writer(&mut body, rollout);
    body.into()
}

/// The rollout of a record, with the version of the record: an import gives records new versions, and leaves their bodies as
/// they are.
///
/// # Errors
/// When the record is damaged, or a newer version has written it.
pub fn decode(record: &Record) -> Result<Rollout, StoreError> {
    let damaged = |why: &dyn std::fmt::Display| {
        let name = &record.name;
        StoreError::Damaged(format!(
            "the record of the rollout {name} cannot be read: {why}; remove it, and look for its tasks by the label \
             rollout={name}"
        ))
    };
    match record.body.split_first() {
        Some((&FORMAT, json)) => {
            let rollout: Rollout = serde_json::from_slice(json).map_err(|error| damaged(&error))?;
            Ok(Rollout { version: record.version, ..rollout })
        }
        Some((format, _)) => Err(damaged(&format_args!("it has the unknown format {format}"))),
        None => Err(damaged(&"it is empty")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use windlass_core::{
        AbortLimit, AbortOf, AbortThreshold, Actor, Json, Name, OnAbort, OpenDevice, ROLLOUT_GROUPS_MAX,
        ROLLOUT_PARAMS_BYTES_MAX, ROLLOUT_RUNNING_MAX, RolloutCommand, RolloutDefinition, RolloutRate,
        SELECTOR_LABELS_MAX, THRESHOLDS_MAX, TaskId, Timestamp,
    };
    use windlass_store::{RECORD_BYTES_MAX, RecordKind};

    use super::*;

    /// A rollout as the first version stored it.
    const STORED: &str = r#"{"name":"valves","version":1700000000003,"definition":{"flow":"update","params":"{\"v\": 2}","priority":-1,"selector":{"site":"nord"},"rate":{"Exponential":{"base":5,"factor_percent":150,"per_minute_max":600,"after":10}},"max_running":50,"abort":[{"of":"Failed","limit":{"Percent":10},"at_least":20},{"of":"Any","limit":{"Count":3},"at_least":0}],"on_abort":"RollBack","group_by":"model"},"flow_version":3,"by":{"name":"ops","claimed":true},"created_at":1700000000000,"stage":"Paused","paused":{"at":1700000060000,"by":null,"reason":"lunch"},"abort":null,"ended_at":null,"cursor":"valve-7","next_at":1700000050000,"open":[["valve-7",340282366920938463463374607431768211455,1]],"before":null,"is_listed":false,"groups":[{"value":null,"counts":{"matched":1,"started":0,"succeeded":0,"failed":0,"timed_out":0,"cancelled":0,"refused":0,"stuck":0,"gone":0,"rolled_back":0,"kept":0,"rollback_stuck":0}},{"value":"p7","counts":{"matched":9,"started":2,"succeeded":1,"failed":0,"timed_out":0,"cancelled":0,"refused":0,"stuck":0,"gone":0,"rolled_back":0,"kept":0,"rollback_stuck":0}}]}"#;

    fn record(body: &[u8]) -> Record {
        let name = Name::new("valves").unwrap();
        Record { kind: RecordKind::Rollout, name, version: 1_700_000_000_003, body: body.into() }
    }

    #[test]
    fn a_rollout_of_the_first_format_is_read_and_written_unchanged() {
        let record = record(&[&[FORMAT], STORED.as_bytes()].concat());
        let rollout = decode(&record).unwrap();
        let device = Name::new("valve-7").unwrap();
        assert_eq!(rollout.open, [OpenDevice(device, TaskId(u128::MAX), 1)]);
        assert_eq!(encode(&rollout), record.body);
    }

    #[test]
    fn a_record_of_another_format_is_not_read() {
        for body in [&[][..], &[2, b'{', b'}'], &[FORMAT, b'{'], &[FORMAT, b'{', b'}']] {
            let error = decode(&record(body)).unwrap_err().to_string();
            assert!(error.contains("look for its tasks"), "{error}");
        }
    }

    #[test]
    fn the_largest_rollout_has_room_in_a_record() {
        // The longest way to write a byte of a string.
        let longest = |bytes: usize| "\u{1}".repeat(bytes);
        let label = |index: usize| format!("{index:03}{}", longest(125));
        let params = Json::parse(&format!("{{\"a\":\"{}\"}}", "x".repeat(ROLLOUT_PARAMS_BYTES_MAX - 8)));
        let threshold =
            AbortThreshold { of: AbortOf::TimedOut, limit: AbortLimit::Percent(100), at_least: u32::MAX };
        let definition = RolloutDefinition {
            flow: Name::new(&"f".repeat(128)).unwrap(),
            params: params.unwrap(),
            priority: -10,
            selector: (0..SELECTOR_LABELS_MAX).map(|index| (label(index), label(index))).collect(),
            rate: RolloutRate::Exponential {
                base: 10_000,
                factor_percent: 1_000,
                per_minute_max: 60_000,
                after: u32::MAX,
            },
            max_running: ROLLOUT_RUNNING_MAX,
            abort: vec![threshold; THRESHOLDS_MAX],
            on_abort: OnAbort::RollBack,
            group_by: Some(label(0).into()),
        };
        assert_eq!(definition.check(), Ok(()));
        let by = Some(Actor { name: "x".repeat(128).into(), claimed: true });
        let groups: BTreeMap<_, _> =
            (0..2 * ROLLOUT_GROUPS_MAX).map(|index| (Some(label(index).into()), 100_000_u64)).collect();
        let name = Name::new(&"r".repeat(128)).unwrap();
        let now = Timestamp(1_700_000_000_000);
        let rollout = Rollout::new(name, (definition, u32::MAX), groups, by.clone(), now);
        assert_eq!(rollout.groups.len(), ROLLOUT_GROUPS_MAX);
        let device = |index: usize| {
            let device = Name::new(&format!("{index:03}{}", "d".repeat(117))).unwrap();
            (device, TaskId(u128::MAX), Some(label(index % ROLLOUT_GROUPS_MAX).into()))
        };
        let devices: Vec<_> = (0..ROLLOUT_RUNNING_MAX as usize).map(device).collect();
        let cursor = devices[999].0.clone();
        let rollout = rollout.apply(RolloutCommand::Start { devices, cursor }, now).unwrap();
        let reason = Some("x".repeat(1024).into());
        let rollout = rollout.apply(RolloutCommand::Pause { by, reason }, now).unwrap();
        let bytes = encode(&rollout).len();
        assert!(bytes <= RECORD_BYTES_MAX, "{bytes}");
    }
}
