//! Reads what was too large for the broker from the server, which keeps it.

use std::time::Duration;

use tokio::time::sleep;
use tracing::{debug, warn};
use windlass_api::Problem;
use windlass_brokers::{Message, Receipt};

use super::incoming::Incoming;
use crate::{Client, Error, pacing::Pacing};

/// Where only a person can help: the time to the second try. It doubles from try to try.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// The longest of these times.
const REFUSED_PAUSE_MAX: Duration = Duration::from_secs(30);

/// What became of a message that refers to its parameters.
pub(super) enum Fetched {
    /// It has them.
    Whole(Receipt, Box<Incoming>),
    /// The server has no such attempt any more.
    Gone(Receipt),
    /// The server will never have them, for this reason.
    Useless(Receipt, Message, String),
}

/// What an answer other than the parameters means.
#[derive(Debug, PartialEq, Eq)]
enum Meaning {
    /// The attempt is no more.
    Gone,
    /// The message is of no use: with the reason.
    Useless(String),
    /// The server is away, or asks for time.
    Soon,
    /// Not before somebody does something: says what.
    OnceMended(String),
}

/// Reads the whole of a message. A server that is away is waited for, as is one that does not let this worker read; of that
/// people are told, once. Meanwhile the message keeps its slot: who may not read may not report either, and so could run
/// nothing else in it.
pub(super) async fn fetch(server: Client, receipt: Receipt, message: Message, incoming: Incoming) -> Fetched {
    let (mut pacing, mut refused_pause, mut is_told) = (Pacing::default(), REFUSED_PAUSE, false);
    loop {
        let error = match server.step_message(&incoming.attempt.token).await {
            Ok(whole) => return Fetched::Whole(receipt, Box::new(incoming.complete(whole))),
            Err(error) => error,
        };
        let pause = match meaning(&error) {
            Meaning::Gone => {
                debug!(key = message.key, "a message refers to an attempt that is no more");
                return Fetched::Gone(receipt);
            }
            Meaning::Useless(reason) => return Fetched::Useless(receipt, message, reason),
            Meaning::Soon => {
                debug!("the parameters of a message cannot be read yet");
                pacing.failed()
            }
            Meaning::OnceMended(why) => {
                if !std::mem::replace(&mut is_told, true) {
                    let (task, server) = (&incoming.attempt.task, server.server());
                    warn!(
                        task,
                        server, why, "the parameters of a step cannot be read; it waits until they can"
                    );
                }
                let pause = refused_pause;
                refused_pause = (refused_pause * 2).min(REFUSED_PAUSE_MAX);
                pause
            }
        };
        sleep(pause).await;
    }
}

/// What an error means. Nothing of it is shown that could have the token in it.
fn meaning(error: &Error) -> Meaning {
    match error {
        error if error.is_temporary() => Meaning::Soon,
        Error::Refused(problem) if matches!(problem.status, 401 | 403) => Meaning::OnceMended(format!(
            "it does not let this worker in: check the worker's token, and what stands before the server ({})",
            problem.detail
        )),
        // Something else than a server of Windlass knows nothing of the message.
        Error::Refused(problem) if problem.name() == Problem::UNEXPLAINED => Meaning::OnceMended(format!(
            "no server of Windlass answers: check the address and what stands before the server ({})",
            problem.detail
        )),
        Error::Refused(problem) if matches!(problem.status, 404 | 409 | 410) => Meaning::Gone,
        Error::Refused(problem) => {
            Meaning::Useless(format!("the server does not give its parameters: {}", problem.detail))
        }
        Error::Malformed { detail, .. } => Meaning::OnceMended(format!(
            "the answer is not understood: check that it is a server of Windlass of this version ({detail})"
        )),
        error => Meaning::OnceMended(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, name: &str) -> Meaning {
        meaning(&Error::Refused(Problem::new(status, name, "", "so it is")))
    }

    #[test]
    fn what_the_server_says_of_a_message_settles_it() {
        for status in [404, 409, 410] {
            assert_eq!(refused(status, "attempt-unknown"), Meaning::Gone, "{status}");
        }
        for status in [400, 413, 422] {
            assert!(
                matches!(refused(status, "malformed"), Meaning::Useless(why) if why.contains("so it is"))
            );
        }
    }

    #[test]
    fn what_time_heals_is_tried_again_soon() {
        for status in [408, 425, 429, 500, 502, 503, 507] {
            assert_eq!(refused(status, "unexplained"), Meaning::Soon, "{status}");
        }
        let source = "refused".into();
        assert_eq!(meaning(&Error::Unreachable { server: String::new(), source }), Meaning::Soon);
    }

    #[test]
    fn what_people_must_mend_says_what_and_not_the_token() {
        let why = |meaning: Meaning| match meaning {
            Meaning::OnceMended(why) => why,
            other => panic!("{other:?}"),
        };
        for status in [401, 403] {
            assert!(why(refused(status, "unexplained")).contains("check the worker's token"), "{status}");
        }
        for status in [302, 400, 404, 405] {
            assert!(why(refused(status, "unexplained")).contains("check the address"), "{status}");
        }
        let call = "GET /v1/worker/attempts/secret".to_owned();
        let malformed = Error::Malformed { server: String::new(), call, detail: "a < at 0".to_owned() };
        let why = why(meaning(&malformed));
        assert!(why.contains("a < at 0") && !why.contains("secret"), "{why}");
    }
}
