//! Converts the end of an attempt to a report: the worker's own reasons, and the limits of the API.

use std::time::Duration;

use windlass_api::{Payload, Progress, Report, ReportError, ReportOutcome, Span};

use super::{Failure, Outcome};

/// The server's limit for a step's result.
const RESULT_BYTES_MAX: usize = 256 * 1024;

/// The server's limit for a message.
const MESSAGE_BYTES_MAX: usize = 4 * 1024;

/// The reason why the worker stopped an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The server asked for it, or another worker has claimed the attempt.
    Cancelled,
    /// Its time was over.
    TimedOut(Duration),
    /// The lease may be over.
    LeaseLapsed,
    /// Leadership is at risk, or lost.
    Deposed,
    /// The worker shuts down and has waited long enough.
    Drained,
}

/// The outcome to report, given the reason for a stop, if any, and the handler's outcome.
pub(super) fn settle(stop: Option<Stop>, said: Outcome) -> Outcome {
    match (stop, said) {
        (Some(Stop::TimedOut(timeout)), _) => timed_out(timeout),
        // An unavailable server or a stopped worker is not the step's fault: this must not count as a retry.
        (Some(stop @ (Stop::LeaseLapsed | Stop::Deposed | Stop::Drained)), Outcome::Failed(failure))
            if failure.retryable =>
        {
            interrupted(stop, Some(&failure.message))
        }
        (_, said) => said,
    }
}

/// The outcome of an attempt whose handler did not end after it was stopped.
pub(super) fn abandon(stop: Stop) -> Outcome {
    match stop {
        Stop::TimedOut(timeout) => timed_out(timeout),
        Stop::Cancelled => {
            Outcome::Failed(Failure::new("cancelled; the handler did not end and was dropped"))
        }
        Stop::LeaseLapsed | Stop::Deposed | Stop::Drained => interrupted(stop, None),
    }
}

fn timed_out(timeout: Duration) -> Outcome {
    let span = Span::from_ms(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
    Outcome::Failed(Failure::new(format!("timed out after {span}")).with_code(Failure::TIMED_OUT))
}

fn interrupted(stop: Stop, said: Option<&str>) -> Outcome {
    let reason = match stop {
        Stop::LeaseLapsed => "the worker lost its server and stopped the attempt",
        Stop::Deposed => "the worker lost its leadership and stopped the attempt",
        _ => "the worker was shut down and stopped the attempt",
    };
    let message = said.map_or_else(|| reason.to_owned(), |said| format!("{reason}: {said}"));
    Outcome::RetryLater { delay: Some(Duration::ZERO), message: Some(message) }
}

/// The report of a finished attempt.
pub(super) fn of_outcome(token: &str, outcome: Outcome, logs: Vec<String>) -> Report {
    let mut report = Report {
        token: token.to_owned(),
        outcome: ReportOutcome::Succeeded,
        result: None,
        error: None,
        delay_ms: None,
        progress: None,
        logs,
    };
    match outcome {
        Outcome::Succeeded(result) => match check_result(result.as_ref()) {
            Ok(()) => report.result = result,
            Err(failure) => return of_outcome(token, Outcome::Failed(failure), report.logs),
        },
        Outcome::Failed(failure) => {
            report.outcome = ReportOutcome::Failed;
            report.error = Some(ReportError {
                message: cut(failure.message),
                code: Some(failure.code),
                retryable: failure.retryable,
            });
        }
        Outcome::RetryLater { delay, message } => {
            report.outcome = ReportOutcome::RetryLater;
            report.delay_ms = delay.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
            report.error =
                message.map(|message| ReportError { message: cut(message), code: None, retryable: true });
        }
        Outcome::Declined => report.outcome = ReportOutcome::Declined,
    }
    report
}

/// The report of a running attempt.
pub(super) fn of_news(token: &str, progress: Option<Progress>, logs: Vec<String>) -> Report {
    let progress = progress.map(|progress| Progress { message: progress.message.map(cut), ..progress });
    Report {
        token: token.to_owned(),
        outcome: ReportOutcome::Running,
        result: None,
        error: None,
        delay_ms: None,
        progress,
        logs,
    }
}

fn check_result(result: Option<&Payload>) -> Result<(), Failure> {
    let Some(text) = result.map(|result| result.get()) else { return Ok(()) };
    if !text.starts_with('{') {
        return Err(Failure::new("the result is not a JSON object"));
    }
    if text.len() > RESULT_BYTES_MAX {
        let bytes = text.len();
        return Err(Failure::permanent(format!(
            "the result has {bytes} bytes: the limit is {RESULT_BYTES_MAX}; store it elsewhere and return its location"
        )));
    }
    Ok(())
}

fn cut(mut message: String) -> String {
    message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
    message
}

#[cfg(test)]
mod tests {
    use serde_json::{json, value::to_raw_value};

    use super::*;

    fn error(outcome: Outcome) -> ReportError {
        of_outcome("t", outcome, vec![]).error.unwrap()
    }

    #[test]
    fn a_report_says_what_the_handler_said() {
        let result = to_raw_value(&json!({"ip": "10.0.0.7"})).unwrap();
        for (outcome, wire) in [
            (Outcome::Succeeded(None), json!({"token": "t", "outcome": "succeeded"})),
            (
                Outcome::Succeeded(Some(result)),
                json!({"token": "t", "outcome": "succeeded", "result": {"ip": "10.0.0.7"}}),
            ),
            (
                Outcome::Failed(Failure { message: "no".to_owned(), code: 7, retryable: false }),
                json!({"token": "t", "outcome": "failed", "error": {"message": "no", "code": 7, "retryable": false}}),
            ),
            (
                Outcome::RetryLater { delay: Some(Duration::from_secs(2)), message: None },
                json!({"token": "t", "outcome": "retry_later", "delay_ms": 2000}),
            ),
            (Outcome::Declined, json!({"token": "t", "outcome": "declined"})),
        ] {
            assert_eq!(serde_json::to_value(of_outcome("t", outcome, vec![])).unwrap(), wire);
        }
    }

    #[test]
    fn what_the_server_would_not_take_is_a_failure_that_says_so() {
        let error_of =
            |result: serde_json::Value| error(Outcome::Succeeded(Some(to_raw_value(&result).unwrap())));
        assert!(error_of(json!([1])).retryable);
        let large = error_of(json!({"x": "x".repeat(RESULT_BYTES_MAX)}));
        assert!(!large.retryable && large.message.contains("262144"), "{large:?}");
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let error = error(Outcome::Failed(Failure::new("é".repeat(MESSAGE_BYTES_MAX) + "x")));
        assert_eq!(error.message, "é".repeat(MESSAGE_BYTES_MAX / 2));
    }

    #[test]
    fn a_timeout_stands_whatever_the_handler_says() {
        let stop = Some(Stop::TimedOut(Duration::from_secs(90)));
        for said in [Outcome::Succeeded(None), Outcome::Declined, Outcome::Failed(Failure::new("killed"))] {
            let error = error(settle(stop, said));
            assert_eq!(
                (error.message.as_str(), error.code, error.retryable),
                ("timed out after 1m 30s", Some(124), true)
            );
        }
    }

    #[test]
    fn an_interruption_spends_no_retry_and_hides_neither_a_success_nor_a_final_failure() {
        for stop in [Stop::LeaseLapsed, Stop::Deposed, Stop::Drained] {
            let said = Outcome::Failed(Failure::new("signal 15").with_code(143));
            let report = of_outcome("t", settle(Some(stop), said), vec![]);
            assert_eq!((report.outcome, report.delay_ms), (ReportOutcome::RetryLater, Some(0)));
            assert!(report.error.unwrap().message.contains("signal 15"));
            assert!(matches!(settle(Some(stop), Outcome::Succeeded(None)), Outcome::Succeeded(None)));
            let last = settle(Some(stop), Outcome::Failed(Failure::permanent("bad data")));
            assert!(matches!(last, Outcome::Failed(_)));
        }
    }

    #[test]
    fn a_cancelled_attempt_is_reported_as_it_ended() {
        let said = settle(Some(Stop::Cancelled), Outcome::Failed(Failure::new("killed")));
        assert_eq!(error(said).message, "killed");
        assert_eq!(of_outcome("t", abandon(Stop::Cancelled), vec![]).outcome, ReportOutcome::Failed);
    }
}
