//! One way: results of attempts are published to a results queue, without an answer.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use serde_json::value::to_raw_value;
use tokio::time::Instant;
use tracing::{info, warn};
use windlass_api::{
    CODE_FINAL, CODE_RETRY_LATER, ExchangeAnswer, Payload, Report, ReportAnswer, ReportError, ReportOutcome,
    ReportStatus, ResultEvent, ResultMessage,
};
use windlass_brokers::{Broker, BrokerError, Message, Queue};

use super::hands::{Hands, StepOf};
use crate::{
    pacing::Pacing,
    worker::{
        calls::{Call, Returned, State},
        counterpart::{Asks, Counterpart, NumberedCall},
        outbox::{Item, Kind},
    },
};

/// The results queue of a broker. A confirmed message counts as accepted.
pub(super) struct Results {
    broker: Arc<dyn Broker>,
    queue: Queue,
    hands: Arc<Hands>,
}

impl Results {
    pub(super) fn new(broker: Arc<dyn Broker>, queue: Queue, hands: Arc<Hands>) -> Self {
        Self { broker, queue, hands }
    }

    /// The result as a message. Each event of an attempt has its own id, so that a broker can deduplicate
    /// repeated messages.
    fn message(&self, item: &Item) -> Message {
        let task = self.hands.step(&item.token).map(|step| step.task).unwrap_or_default();
        let event = if item.kind == Kind::Taking { "started" } else { "ended" };
        let message = Message::new(format!("{}/{event}", item.token), task, item.report.get().to_owned());
        if self.broker.has_headers(&self.queue) {
            message.with_header("content-type", "application/json")
        } else {
            message
        }
    }
}

impl Counterpart for Results {
    fn name(&self) -> &str {
        self.broker.name()
    }

    fn session(&self) -> &str {
        &self.queue.name
    }

    fn grants_leases(&self) -> bool {
        false
    }

    fn doubt(&mut self) {}

    fn write(&self, report: &Report, kind: Kind) -> serde_json::Result<Option<Payload>> {
        let step = self.hands.step(&report.token);
        let Some(result) = step.and_then(|step| result_of(report, kind, step)) else { return Ok(None) };
        to_raw_value(&result).map(Some)
    }

    fn poll(
        &mut self,
        _state: &State<'_>,
        _wait: Duration,
        _timeout: Duration,
        _asks: Asks,
    ) -> Option<NumberedCall> {
        None
    }

    /// Resolves once the broker has confirmed or refused each message, for any length of time.
    fn report(&mut self, state: &State<'_>, batch: Vec<Item>) -> BoxFuture<'static, Returned> {
        let messages: Vec<Message> = batch.iter().map(|item| self.message(item)).collect();
        let (broker, queue) = (self.broker.clone(), self.queue.clone());
        let sent_at = state.now;
        Box::pin(async move {
            let refusals = publish(&*broker, &queue, messages).await;
            let reports = batch.iter().zip(refusals).map(|(item, detail)| ReportAnswer {
                token: item.token.to_string(),
                status: if detail.is_some() { ReportStatus::Invalid } else { ReportStatus::Accepted },
                detail,
            });
            let answer = ExchangeAnswer { reports: reports.collect(), ..ExchangeAnswer::default() };
            Returned { sent_at, answer: Ok(answer), call: Call::Reports(batch) }
        })
    }
}

/// Publishes until each message is confirmed or permanently refused; returns the reasons of refusals.
async fn publish(broker: &dyn Broker, queue: &Queue, messages: Vec<Message>) -> Vec<Option<String>> {
    let mut refusals = vec![None; messages.len()];
    let mut open: Vec<(usize, Message)> = messages.into_iter().enumerate().collect();
    let mut pacing = Pacing::default();
    let mut away_since = None;
    loop {
        let (places, messages): (Vec<usize>, Vec<Message>) = open.into_iter().unzip();
        let outcomes = broker.publish(queue, &messages).await;
        let mut problem = None;
        open = Vec::new();
        for ((place, message), outcome) in places.into_iter().zip(messages).zip(outcomes) {
            match outcome {
                Ok(()) => {}
                Err(error @ BrokerError::TooLarge { .. }) => refusals[place] = Some(error.to_string()),
                Err(error) => {
                    problem = Some(error);
                    open.push((place, message));
                }
            }
        }
        let Some(problem) = problem else { break };
        // Logged once per outage: it may last, and an operator must see why nothing happens.
        if away_since.is_none() {
            away_since = Some(Instant::now());
            warn!(broker = broker.name(), %queue, error = %problem, "cannot publish results; retrying until they are published");
        }
        tokio::time::sleep(pacing.failed()).await;
    }
    if let Some(since) = away_since {
        info!(broker = broker.name(), %queue, after = ?since.elapsed(), "publishing results again");
    }
    refusals
}

/// The result message for a report. None if a results queue cannot express it: then the step message goes
/// back to the queue.
fn result_of(report: &Report, kind: Kind, step: StepOf) -> Option<ResultMessage> {
    let StepOf { task, cursor, direction } = step;
    let mut result = ResultMessage {
        task_id: task,
        cursor,
        direction,
        event: ResultEvent::Failed,
        code: 0,
        message: None,
        parameters: None,
        token: Some(report.token.clone()),
    };
    match report.outcome {
        ReportOutcome::Running if kind == Kind::Taking => result.event = ResultEvent::Started,
        ReportOutcome::Succeeded => {
            result.event = ResultEvent::Succeeded;
            result.parameters = report.result.clone();
        }
        ReportOutcome::Failed => {
            let (code, message) = report.error.as_ref().map(told).unwrap_or_default();
            result.code = code;
            result.message = Some(message);
        }
        // With a delay of 0 the worker stops, not the step waits: another worker must get the message.
        ReportOutcome::RetryLater if report.delay_ms != Some(0) => {
            result.code = CODE_RETRY_LATER;
            result.message = report.error.as_ref().map(|error| error.message.clone());
        }
        ReportOutcome::Running | ReportOutcome::RetryLater | ReportOutcome::Declined => return None,
    }
    Some(result)
}

/// Code and message of a failure. Only the code determines whether it is retryable. Where the code of the
/// failure would be wrong, it is replaced and appended to the message.
fn told(error: &ReportError) -> (i32, String) {
    let code = error.code.unwrap_or(1);
    let says_final = code == CODE_FINAL;
    match (error.retryable, says_final || code == CODE_RETRY_LATER) {
        (true, false) => (code, error.message.clone()),
        (false, _) if says_final => (code, error.message.clone()),
        (true, true) => (1, format!("{} (code {code})", error.message)),
        (false, _) if code == 1 => (CODE_FINAL, error.message.clone()),
        (false, _) => (CODE_FINAL, format!("{} (code {code})", error.message)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use windlass_api::Direction;

    use super::*;
    use crate::worker::{Failure, Outcome, report};

    fn told_of(outcome: Outcome) -> Option<String> {
        let step = StepOf { task: "t-1".to_owned(), cursor: 2, direction: Direction::Forward };
        let result = result_of(&report::of_outcome("a.b", outcome, vec![]), Kind::Final, step)?;
        Some(serde_json::to_string(&result).unwrap())
    }

    #[test]
    fn an_outcome_is_told_in_the_words_of_the_results_queue() {
        let result = to_raw_value(&serde_json::json!({"ip": "10.0.0.7"})).unwrap();
        for (outcome, rest) in [
            (
                Outcome::Succeeded(Some(result)),
                r#""succeeded","Code":0,"Message":null,"Parameters":{"ip":"10.0.0.7"}"#,
            ),
            (
                Outcome::Failed(Failure::new("no room").with_code(7)),
                r#""failed","Code":7,"Message":"no room""#,
            ),
            (Outcome::Failed(Failure::permanent("no")), r#""failed","Code":65,"Message":"no""#),
            (
                Outcome::Failed(Failure::permanent("no").with_code(9)),
                r#""failed","Code":65,"Message":"no (code 9)""#,
            ),
            (
                Outcome::Failed(Failure::new("odd").with_code(65)),
                r#""failed","Code":1,"Message":"odd (code 65)""#,
            ),
            (Failure::retry_later("not yet").into(), r#""failed","Code":75,"Message":"not yet""#),
        ] {
            let expected = format!(r#"{{"TaskId":"t-1","Cursor":2,"Type":0,"Event":{rest},"Token":"a.b"}}"#);
            assert_eq!(told_of(outcome), Some(expected));
        }
    }

    #[test]
    fn what_the_worker_did_not_do_is_for_another() {
        let stopped = Outcome::RetryLater { delay: Some(Duration::ZERO), message: None };
        assert_eq!((told_of(Outcome::Declined), told_of(stopped)), (None, None));
    }

    #[test]
    fn it_is_told_that_an_attempt_begins_but_not_that_it_goes_on() {
        let step = || StepOf { task: "t-1".to_owned(), cursor: 0, direction: Direction::Rollback };
        let news = report::of_news("a.b", None, vec!["line".to_owned()]);
        assert!(result_of(&news, Kind::Running, step()).is_none());
        let result = result_of(&news, Kind::Taking, step()).unwrap();
        assert_eq!((result.event, result.direction), (ResultEvent::Started, Direction::Rollback));
    }
}
