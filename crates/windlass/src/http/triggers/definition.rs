//! From the document of a trigger to its definition.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use windlass_api as api;
use windlass_core::{
    CatchUp, Expression, Json, Millis, Overlap, Secret, Signature, Timing, TopicFilter, TriggerDefinition,
    TriggerSchedule, TriggerSource, TriggerTopic, TriggeredFlow,
};

use crate::http::{
    answer::problem::Refused,
    request,
    submit::{check_labels, priority},
};

/// What a secret in the form of Standard Webhooks begins with.
const STANDARD_PREFIX: &str = "whsec_";

/// The window of a catch-up where the document does not say.
const WINDOW_DEFAULT: Millis = Millis::from_secs(3600);

/// The time zone of a cron expression where the document does not say.
const TIMEZONE_DEFAULT: &str = "UTC";

/// Labels that the trigger itself gives its tasks.
const LABELS_OWN: [&str; 2] = ["trigger", "instant"];

/// What the id of a message may be computed from.
const NAMES_OF_ID: [&str; 3] = ["topic", "levels", "payload"];

/// Reads a document.
pub(super) fn read(document: api::TriggerDocument) -> Result<TriggerDefinition, Refused> {
    let source = source(&document)?;
    let flows = document.flows.into_iter().enumerate();
    let names: &[&str] = match &source {
        TriggerSource::Schedule(_) => &["trigger"],
        TriggerSource::Http(_) | TriggerSource::Intake => &["trigger", "body"],
        TriggerSource::Mqtt(_) => &["trigger", "topic", "levels", "payload"],
    };
    let flows = flows.map(|(index, flow)| self::flow(index, flow, names)).collect::<Result<_, _>>()?;
    Ok(TriggerDefinition { source, flows, classic: document.classic.unwrap_or(false) })
}

fn source(document: &api::TriggerDocument) -> Result<TriggerSource, Refused> {
    let has_intake = document.intake.unwrap_or(false);
    let timing = match (&document.cron, document.every, &document.http, &document.mqtt, has_intake) {
        (Some(cron), None, None, None, false) => Timing::Cron {
            expression: cron.trim().into(),
            timezone: document.timezone.as_deref().unwrap_or(TIMEZONE_DEFAULT).into(),
        },
        (None, Some(every), None, None, false) => Timing::Every { interval: Millis(every.ms) },
        (None, None, Some(http), None, false) => {
            refuse_schedule(document, "http")?;
            return Ok(TriggerSource::Http(signature(http)?));
        }
        (None, None, None, Some(mqtt), false) => {
            refuse_schedule(document, "mqtt")?;
            return Ok(TriggerSource::Mqtt(topic(mqtt)?));
        }
        (None, None, None, None, true) => {
            refuse_schedule(document, "intake")?;
            return Ok(TriggerSource::Intake);
        }
        (None, None, None, None, false) => {
            return Err(Refused::malformed(
                "the trigger has nothing that fires it: give it `cron`, `every`, `http`, `mqtt` or `intake: true`",
            ));
        }
        _ => {
            return Err(Refused::malformed(
                "the trigger has more than one of `cron`, `every`, `http`, `mqtt` and `intake`: use one trigger for each",
            ));
        }
    };
    if document.timezone.is_some() && document.cron.is_none() {
        return Err(Refused::malformed("`timezone` is for `cron`: an interval has none; remove it"));
    }
    let within = document.catch_up_window.map_or(WINDOW_DEFAULT, |window| Millis(window.ms));
    let catch_up = match document.catch_up.unwrap_or(api::TriggerCatchUp::None) {
        api::TriggerCatchUp::None if document.catch_up_window.is_some() => {
            return Err(Refused::malformed(
                "`catch_up_window` needs `catch_up: one` or `catch_up: all`: without it nothing is caught up",
            ));
        }
        api::TriggerCatchUp::None => CatchUp::None,
        api::TriggerCatchUp::One => CatchUp::One { within },
        api::TriggerCatchUp::All => CatchUp::All { within },
    };
    Ok(TriggerSource::Schedule(TriggerSchedule {
        timing,
        jitter: Millis(document.jitter.map_or(0, |jitter| jitter.ms)),
        catch_up,
        overlap: match document.overlap.unwrap_or(api::TriggerOverlap::Allow) {
            api::TriggerOverlap::Allow => Overlap::Allow,
            api::TriggerOverlap::Skip => Overlap::Skip,
            api::TriggerOverlap::Queue => Overlap::Queue,
            api::TriggerOverlap::CancelOther => Overlap::CancelOther,
        },
    }))
}

/// Refuses what is for schedules where `source` fires the trigger.
fn refuse_schedule(document: &api::TriggerDocument, source: &str) -> Result<(), Refused> {
    let scheduled = [
        ("jitter", document.jitter.is_some()),
        ("catch_up", document.catch_up.is_some()),
        ("catch_up_window", document.catch_up_window.is_some()),
        ("overlap", document.overlap.is_some()),
        ("timezone", document.timezone.is_some()),
    ];
    match scheduled.iter().find(|(_, is_there)| *is_there) {
        Some((key, _)) => Err(Refused::malformed(format!(
            "`{key}` is for schedules, and this trigger has `{source}`: remove it; `unique` of a flow keeps tasks from \
             running at the same time"
        ))),
        None => Ok(()),
    }
}

fn topic(mqtt: &api::TriggerMqtt) -> Result<TriggerTopic, Refused> {
    let filter = TopicFilter::new(&mqtt.topic)
        .map_err(|error| Refused::malformed(format!("`mqtt.topic`: {error}")))?;
    let compile = |source: &String| {
        let id =
            Expression::compile(source).map_err(|error| Refused::malformed(format!("`mqtt.id`: {error}")))?;
        check_names(&id, &NAMES_OF_ID, "`mqtt.id`").map(|()| id)
    };
    Ok(TriggerTopic { filter, id: mqtt.id.as_ref().map(compile).transpose()? })
}

fn check_names(expression: &Expression, names: &[&str], place: &str) -> Result<(), Refused> {
    match expression.names().find(|name| !names.contains(name)) {
        Some(unknown) => Err(Refused::malformed(format!(
            "{place}: unknown name {unknown:?}: expressions of this trigger read `{}`",
            names.join("`, `")
        ))),
        None => Ok(()),
    }
}

fn signature(http: &api::TriggerHttp) -> Result<Signature, Refused> {
    let is_unsigned = http.unsigned.unwrap_or(false);
    match (&http.secret, &http.header) {
        (None, None) if is_unsigned => Ok(Signature::Unsigned),
        (None, _) => Err(Refused::malformed(
            "`http` needs `secret`, by which requests are signed; `unsigned: true` accepts requests from anybody",
        )),
        (Some(_), _) if is_unsigned => {
            Err(Refused::malformed("`http` has a `secret` and `unsigned: true`: remove one of them"))
        }
        (Some(secret), header) => {
            let secret = self::secret(secret)?;
            let Some(header) = header else { return Ok(Signature::Standard { secret }) };
            let name = axum::http::HeaderName::from_bytes(header.as_bytes()).map_err(|_| {
                Refused::malformed("`http.header` is not the name of a header, such as X-Signature")
            })?;
            Ok(Signature::Hmac { secret, header: name.as_str().into() })
        }
    }
}

fn secret(text: &str) -> Result<Secret, Refused> {
    if !text.starts_with(STANDARD_PREFIX) {
        return Ok(Secret(text.as_bytes().to_vec()));
    }
    // The message must not contain the secret.
    let invalid = || Refused::malformed("`http.secret` begins with whsec_ and goes on with invalid base64");
    standard_secret(text).ok_or_else(invalid)
}

/// A secret of Standard Webhooks: `whsec_` and base64.
pub(crate) fn standard_secret(text: &str) -> Option<Secret> {
    STANDARD.decode(text.strip_prefix(STANDARD_PREFIX)?).map(Secret).ok()
}

fn flow(index: usize, flow: api::TriggerFlow, names: &[&str]) -> Result<TriggeredFlow, Refused> {
    let at = |field: &str| format!("`flows[{index}].{field}`");
    let params = match flow.params {
        Some(params) => Json::parse(&serde_json::Value::Object(params).to_string())
            .map_err(|error| Refused::malformed(format!("{}: {error}", at("params"))))?,
        None => Json::empty(),
    };
    let mut map = BTreeMap::new();
    for (name, source) in flow.map {
        let expression = Expression::compile(&source)
            .map_err(|error| Refused::malformed(format!("{}: {error}", at(&format!("map.{name}")))))?;
        check_names(&expression, names, &at(&format!("map.{name}")))?;
        map.insert(name, expression);
    }
    check_labels(&flow.labels, LABELS_OWN.len())?;
    Ok(TriggeredFlow {
        flow: request::name(&at("flow"), &flow.flow)?,
        params,
        map,
        labels: flow.labels,
        priority: priority(flow.priority)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<TriggerDefinition, Refused> {
        super::read(request::parse(text)?)
    }

    fn refused(text: &str) -> String {
        read(text).map(|_| ()).expect_err(text).problem().detail
    }

    #[test]
    fn a_document_is_read() {
        let definition = read(
            r#"{"cron": "0 3 * * *", "timezone": "Europe/Berlin", "jitter": "30s", "catch_up": "one",
                "overlap": "cancel_other", "flows": [{"flow": "report", "params": {"a": 1},
                "map": {"day": "trigger.instant"}, "labels": {"team": "x"}, "priority": 3}]}"#,
        )
        .unwrap();
        assert_eq!(definition.check(), Ok(()));
        let schedule = definition.schedule().unwrap();
        assert_eq!(schedule.catch_up, CatchUp::One { within: WINDOW_DEFAULT });
        assert_eq!((schedule.jitter, schedule.overlap), (Millis(30_000), Overlap::CancelOther));
        assert_eq!(definition.flows[0].params.as_str(), r#"{"a":1}"#);
    }

    #[test]
    fn secrets_are_decoded_and_never_repeated() {
        let http = |http: &str| format!(r#"{{"http": {http}, "flows": [{{"flow": "f"}}]}}"#);
        let source = |text: &str| read(&http(text)).unwrap().source;
        let key = STANDARD.encode([7; 24]);
        assert_eq!(
            source(&format!(r#"{{"secret": "whsec_{key}"}}"#)),
            TriggerSource::Http(Signature::Standard { secret: Secret(vec![7; 24]) })
        );
        let TriggerSource::Http(Signature::Hmac { header, .. }) =
            source(r#"{"secret": "twenty-four-characters-at", "header": "X-Hub-Signature-256"}"#)
        else {
            panic!("it has a header")
        };
        assert_eq!(&*header, "x-hub-signature-256");
        for bad in
            [r#"{"secret": "whsec_no base64!"}"#, r#"{"secret": "whsec_no base64!", "unsigned": true}"#]
        {
            assert!(!refused(&http(bad)).contains("no base64!"), "{}", refused(&http(bad)));
        }
        assert!(refused(&http("{}")).contains("needs `secret`"));
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let with = |rest: &str| format!(r#"{{{rest} "flows": [{{"flow": "f"}}]}}"#);
        for (rest, part) in [
            ("", "nothing that fires it"),
            (r#""cron": "* * * * *", "every": "1h","#, "more than one"),
            (r#""every": "1h", "timezone": "UTC","#, "an interval has none"),
            (r#""every": "1h", "catch_up_window": "1h","#, "needs `catch_up"),
            (r#""http": {"unsigned": true}, "overlap": "skip","#, "`overlap` is for schedules"),
            (r#""mqtt": {"topic": "a"}, "intake": true,"#, "more than one"),
            (r#""mqtt": {"topic": "a"}, "jitter": "1s","#, "this trigger has `mqtt`"),
            (r#""intake": true, "catch_up": "one","#, "this trigger has `intake`"),
            (r#""intake": false,"#, "nothing that fires it"),
            (r#""mqtt": {"topic": "a/#/b"},"#, "`mqtt.topic`: the filter"),
            (r#""mqtt": {"topic": "a", "id": "1 +"},"#, "`mqtt.id`"),
            (r#""mqtt": {"topic": "a", "id": "trigger.name"},"#, "unknown name \"trigger\""),
            (r#""every": "1h", "crom": 1,"#, "unknown field `crom`"),
        ] {
            assert!(refused(&with(rest)).contains(part), "{}", refused(&with(rest)));
        }
        let flow = |flow: &str| refused(&format!(r#"{{"every": "1h", "flows": [{flow}]}}"#));
        assert!(flow(r#"{"flow": "no name"}"#).contains("`flows[0].flow`"));
        assert!(flow(r#"{"flow": "f", "map": {"a": "1 +"}}"#).contains("`flows[0].map.a`"));
        assert!(flow(r#"{"flow": "f", "map": {"a": "body.x"}}"#).contains("unknown name \"body\""));
    }
}
