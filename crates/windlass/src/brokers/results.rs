//! Reads the results that modules send over a broker, reports them to the engine, and acknowledges each one
//! once it is durable.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::time;
use windlass_api::{CODE_FINAL, CODE_RETRY_LATER, ResultEvent, ResultMessage, TOKEN_HEADER};
use windlass_brokers::{Broker, Delivery, Queue};
use windlass_core::{Failure, Json, Outcome};
use windlass_engine::{
    Engine, ReportStatus, Said, WorkerReport, is_token,
    services::{RESULTS_GROUP, Unreadable},
};
use windlass_store::Clock as _;

use super::{
    consume::{Consumption, Handle},
    machinery,
    settings::MessageFormat,
};
use crate::{clock::SystemClock, http::request::RESULT_BYTES_MAX};

/// The most results read at once.
const ROUND_MAX: usize = 1_000;

/// The pause before a failed store call is repeated.
const FAILED_PAUSE: Duration = Duration::from_millis(500);

/// The message of a failure for which the module gives no reason.
const NO_REASON: &str = "the module gave no reason";

/// Reports the results of one queue to the engine.
struct Results {
    engine: Arc<Engine>,
    clock: Arc<SystemClock>,
    format: MessageFormat,
}

/// Reads the results on a queue, for ever.
pub(super) async fn run(
    engine: Arc<Engine>,
    broker: Arc<dyn Broker>,
    queue: Queue,
    format: MessageFormat,
    clock: Arc<SystemClock>,
) {
    while let Err(error) = engine.begin_hearing_from_afar(clock.now()).await {
        tracing::warn!(%error, "cannot record in the store that modules answer over brokers; retrying");
        time::sleep(FAILED_PAUSE).await;
    }
    let consumption = Consumption {
        engine: engine.clone(),
        clock: clock.clone(),
        broker,
        queue,
        binding: None,
        group: RESULTS_GROUP,
        in_flight_max: ROUND_MAX,
        what: "results of modules",
        useless: "is not a valid result",
        handler: Arc::new(Results { engine, clock, format }),
    };
    consumption.run().await;
}

#[async_trait]
impl Handle for Results {
    async fn handle(&self, deliveries: &[Delivery]) -> Vec<Result<(), Unreadable>> {
        let (mut reports, mut told) = (Vec::new(), Vec::new());
        for delivery in deliveries {
            told.push(
                report(delivery, self.format).map(|report| reports.push(report)).map_err(Unreadable::Refused),
            );
        }
        if let Err(why) = self.hear(reports).await {
            let later =
                |told: Result<(), Unreadable>| told.and_then(|()| Err(Unreadable::Later(why.clone())));
            told = told.into_iter().map(later).collect();
        }
        told
    }
}

impl Results {
    /// Reports to the engine. Returns the reason when this must be retried later.
    async fn hear(&self, reports: Vec<WorkerReport>) -> Result<(), String> {
        if reports.is_empty() {
            return Ok(());
        }
        let answers = self.engine.hear_from_afar(reports, self.clock.now()).await;
        let answers = answers.map_err(|error| error.to_string())?;
        let late = answers.iter().filter(|answer| answer.status != ReportStatus::Accepted).count();
        if late > 0 {
            tracing::debug!(late, of = answers.len(), "results of modules came too late or twice");
        }
        Ok(())
    }
}

/// Reads the report in a message, or returns why it is invalid.
fn report(delivery: &Delivery, format: MessageFormat) -> Result<WorkerReport, String> {
    let body = &delivery.message.body;
    let message: ResultMessage = match format {
        MessageFormat::Step | MessageFormat::Job => serde_json::from_slice(body)
            .map_err(|error| format!("it is not a result of a module: {error}"))?,
        MessageFormat::Machinery => machinery::step::result(body)?,
    };
    let beside = delivery.message.header(TOKEN_HEADER);
    let token = message.token.as_deref().or(beside).ok_or_else(|| {
        format!("it has no token: send back the header `{TOKEN_HEADER}` of the step's message, or its field `Token`")
    })?;
    if !is_token(token) {
        let characters = token.chars().count();
        return Err(format!(
            "its token, of {characters} characters, is not the token of a step: send back the token of the step's message unchanged"
        ));
    }
    let token = token.to_owned();
    Ok(WorkerReport { token, said: Ok(said(message)), logs: Vec::new() })
}

fn said(message: ResultMessage) -> Said {
    let reason = message.message.filter(|text| !text.is_empty());
    match message.event {
        ResultEvent::Started => Said::Running(None),
        ResultEvent::Succeeded => {
            let result = message.parameters.map(|raw| match raw.get().len() {
                bytes if bytes > RESULT_BYTES_MAX => {
                    Err(format!("it has {bytes} bytes, and may have {RESULT_BYTES_MAX}"))
                }
                _ => Json::from_raw(&raw).map_err(|error| error.to_string()),
            });
            match result.transpose() {
                Ok(result) => Said::Ended(Outcome::Succeeded(result.filter(|json| !json.is_empty()))),
                // The module cannot be asked for a corrected result, and would send the same one after a
                // retry.
                Err(fault) => {
                    let failure = Failure::new(&format!("its result cannot be used: {fault}"), 1, false);
                    Said::Ended(Outcome::Failed(failure))
                }
            }
        }
        ResultEvent::Failed if message.code == CODE_RETRY_LATER => {
            let message = Failure::new(&reason.unwrap_or_default(), 1, true).message;
            Said::Ended(Outcome::RetryLater { delay: None, message })
        }
        ResultEvent::Failed => {
            let code = if message.code == 0 { 1 } else { message.code };
            let reason = reason.as_deref().unwrap_or(NO_REASON);
            Said::Ended(Outcome::Failed(Failure::new(reason, code, code != CODE_FINAL)))
        }
    }
}

#[cfg(test)]
mod tests {
    use windlass_brokers::{Message, Receipt};

    use super::*;

    const STEP: MessageFormat = MessageFormat::Step;

    fn delivery(fields: &str, token: Option<&str>) -> Delivery {
        let body = format!(r#"{{"TaskId":"t","Cursor":0,"Type":0,{fields}}}"#);
        let mut message = Message::new("1", "t", body);
        if let Some(token) = token {
            message = message.with_header(TOKEN_HEADER, token);
        }
        Delivery { message, receipt: Receipt("1".into()), deliveries: None }
    }

    /// A well-formed token.
    fn token() -> String {
        "A".repeat(68)
    }

    fn said_of(fields: &str) -> Said {
        report(&delivery(fields, Some(&token())), STEP).unwrap().said.unwrap()
    }

    fn failure_of(fields: &str) -> Failure {
        match said_of(fields) {
            Said::Ended(Outcome::Failed(failure)) => failure,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn events_are_reports() {
        assert!(matches!(said_of(r#""Event":"started""#), Said::Running(None)));
        let done = said_of(r#""Event":"succeeded","Parameters":{"Ip":"10.0.0.7"}"#);
        assert!(
            matches!(done, Said::Ended(Outcome::Succeeded(Some(json))) if json.as_str() == r#"{"Ip":"10.0.0.7"}"#)
        );
        let failed = failure_of(r#""Event":"failed","Code":3,"Message":"no such disk""#);
        assert_eq!((failed.code, &*failed.message, failed.retryable), (3, "no such disk", true));
        assert!(!failure_of(r#""Event":"failed","Code":65"#).retryable);
        assert_eq!(failure_of(r#""Event":"failed""#).code, 1);
        let later = said_of(r#""Event":"failed","Code":75"#);
        assert!(matches!(later, Said::Ended(Outcome::RetryLater { .. })));
    }

    #[test]
    fn a_result_that_cannot_be_used_fails_the_attempt() {
        let failure = failure_of(r#""Event":"succeeded","Parameters":[1]"#);
        assert!(
            !failure.retryable && failure.message.starts_with("its result cannot be used"),
            "{failure:?}"
        );
    }

    #[test]
    fn what_is_no_answer_says_why() {
        let error = report(&delivery(r#""Event":"started""#, None), STEP).unwrap_err();
        assert!(error.contains("windlass-token"), "{error}");
        let error = report(&delivery(r#""Event":"ended""#, Some(&token())), STEP).unwrap_err();
        assert!(error.contains("unknown variant `ended`"), "{error}");
        let error = report(&delivery(r#""Event":"started","Token":"c.d""#, None), STEP).unwrap_err();
        assert!(error.contains("of 3 characters, is not the token of a step"), "{error}");
        let fields = format!(r#""Event":"started","Token":"{}""#, token());
        assert_eq!(report(&delivery(&fields, None), STEP).unwrap().token, token());
    }
}
