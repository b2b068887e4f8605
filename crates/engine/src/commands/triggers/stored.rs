//! How triggers are stored: the number of the format, and JSON.

use std::sync::Arc;

use windlass_core::Trigger;
use windlass_store::{Record, StoreError};

/// The format of this version.
const FORMAT: u8 = 1;

/// The body of a record.
pub(crate) fn encode(trigger: &Trigger) -> Arc<[u8]> {
    let mut body = vec![FORMAT];
    // Writing plain values to memory cannot fail; if it did, the record would be damaged, and reported as such.
    let _ = serde_json::to_writer(&mut body, trigger);
    body.into()
}

/// The trigger of a record, with the version of the record: an import gives records new versions, and leaves their bodies
/// unchanged.
///
/// # Errors
/// When the record is damaged, or a newer version has written it.
pub fn decode(record: &Record) -> Result<Trigger, StoreError> {
    let damaged = |why: &dyn std::fmt::Display| {
        StoreError::Damaged(format!(
            "the record of the trigger {} cannot be read: {why}; apply the trigger again, or remove it",
            record.name
        ))
    };
    match record.body.split_first() {
        Some((&FORMAT, json)) => {
            let trigger: Trigger = serde_json::from_slice(json).map_err(|error| damaged(&error))?;
            Ok(Trigger { version: record.version, ..trigger })
        }
        Some((format, _)) => Err(damaged(&format_args!("it has the unknown format {format}"))),
        None => Err(damaged(&"it is empty")),
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::{CatchUp, Name, TriggerSource};
    use windlass_store::RecordKind;

    use super::*;

    /// A trigger as the first version stored it.
    const STORED: &str = r#"{"name":"nightly","version":1700000000003,"definition":{"source":{"Schedule":{"timing":{"Cron":{"expression":"0 3 * * *","timezone":"Europe/Berlin"}},"jitter":30000,"catch_up":{"One":{"within":3600000}},"overlap":"Queue"}},"flows":[{"flow":"report","params":"{\"a\": 1}","map":{"day":"trigger.instant"},"labels":{"team":"x"},"priority":2}],"classic":false},"paused":{"at":1700000060000,"by":{"name":"ops","claimed":true}},"created_at":1700000000000,"changed_at":1700000000000,"since":1700000000000,"decided":1700000050000,"waiting":[1700000050000],"started":[340282366920938463463374607431768211455],"fired":1700000040000}"#;

    #[test]
    fn a_trigger_of_the_first_format_is_read_and_written_unchanged() {
        let body = Arc::from([&[FORMAT], STORED.as_bytes()].concat());
        let name = Name::new("nightly").unwrap();
        let record = Record { kind: RecordKind::Trigger, name, version: 1_700_000_000_003, body };
        let trigger = decode(&record).unwrap();
        let TriggerSource::Schedule(schedule) = &trigger.definition.source else { panic!("a schedule") };
        assert!(matches!(schedule.catch_up, CatchUp::One { .. }));
        assert_eq!(encode(&trigger), record.body);
    }

    #[test]
    fn triggers_of_messages_are_read_and_written_unchanged() {
        let with = |source: &str| {
            let (begin, rest) = STORED.split_once(r#""source":"#).unwrap();
            let (_, end) = rest.split_once(r#","flows""#).unwrap();
            format!(r#"{begin}"source":{source},"flows"{end}"#)
        };
        for source in [
            r#""Intake""#,
            r#"{"Mqtt":{"filter":"site/+/alarm","id":"string(payload.id)"}}"#,
            r##"{"Mqtt":{"filter":"#","id":null}}"##,
        ] {
            let body = Arc::from([&[FORMAT], with(source).as_bytes()].concat());
            let name = Name::new("nightly").unwrap();
            let record = Record { kind: RecordKind::Trigger, name, version: 1_700_000_000_003, body };
            let trigger = decode(&record).unwrap();
            assert_eq!(trigger.definition.check(), Ok(()));
            assert_eq!(encode(&trigger), record.body, "{source}");
        }
    }

    #[test]
    fn a_record_of_another_format_is_not_read() {
        let record = |body: &[u8]| Record {
            kind: RecordKind::Trigger,
            name: Name::new("t").unwrap(),
            version: 1,
            body: body.into(),
        };
        for body in [&[][..], &[2, b'{', b'}'], &[FORMAT, b'{'], &[FORMAT, b'{', b'}']] {
            let error = decode(&record(body)).unwrap_err().to_string();
            assert!(error.contains("apply the trigger again"), "{error}");
        }
    }
}
