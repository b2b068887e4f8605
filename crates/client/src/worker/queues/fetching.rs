//! Reads parameters that were too large for the broker from the server.

use tokio::time::sleep;
use tracing::{debug, warn};
use windlass_api::Problem;
use windlass_brokers::{Message, Receipt};

use super::incoming::Incoming;
use crate::{Client, Error, pacing::Pacing};

/// The result of reading the parameters of a message.
pub(super) enum Fetched {
    /// The complete attempt.
    Whole(Receipt, Box<Incoming>),
    /// The attempt no longer exists.
    Gone(Receipt),
    /// The server permanently refuses the parameters, for this reason.
    Useless(Receipt, Message, String),
}

/// The meaning of an error.
#[derive(Debug, PartialEq, Eq)]
enum Meaning {
    /// The attempt no longer exists.
    Gone,
    /// The message is unusable, for this reason.
    Useless(String),
    /// The server is unavailable or overloaded.
    Soon,
    /// An operator must fix a problem first.
    OnceMended(String),
}

/// Reads the complete message. Retries while the server is unavailable or refuses this worker; the latter is
/// logged once. Meanwhile the message occupies its slot: a worker that may not read may not report either, so
/// it could not run another attempt in that slot.
pub(super) async fn fetch(server: Client, receipt: Receipt, message: Message, incoming: Incoming) -> Fetched {
    let (mut pacing, mut refused_pacing, mut is_told) =
        (Pacing::default(), Pacing::for_refused_tokens(), false);
    loop {
        let error = match server.step_message(&incoming.attempt.token).await {
            Ok(whole) => return Fetched::Whole(receipt, Box::new(incoming.complete(whole))),
            Err(error) => error,
        };
        let pause = match meaning(&error) {
            Meaning::Gone => {
                debug!(key = message.key, "a message refers to an attempt that no longer exists");
                return Fetched::Gone(receipt);
            }
            Meaning::Useless(reason) => return Fetched::Useless(receipt, message, reason),
            Meaning::Soon => {
                debug!("cannot read the parameters of a message yet; retrying");
                pacing.failed()
            }
            Meaning::OnceMended(why) => {
                if !std::mem::replace(&mut is_told, true) {
                    let (task, server) = (&incoming.attempt.task, server.server());
                    warn!(task, server, why, "cannot read the parameters of a step; retrying");
                }
                refused_pacing.failed()
            }
        };
        sleep(pause).await;
    }
}

/// The meaning of an error. The reasons contain nothing that may include the token.
fn meaning(error: &Error) -> Meaning {
    match error {
        error if error.is_temporary() => Meaning::Soon,
        Error::Refused(problem) if error.refuses_token() || problem.status == 403 => {
            Meaning::OnceMended(format!(
                "it does not accept this worker: check the worker's token and the proxies before the server ({})",
                problem.detail
            ))
        }
        // An answer of something other than a Windlass server says nothing about the message.
        Error::Refused(problem) if problem.name() == Problem::UNEXPLAINED => Meaning::OnceMended(format!(
            "no Windlass server answers: check the address and the proxies before the server ({})",
            problem.detail
        )),
        Error::Refused(problem) if matches!(problem.status, 404 | 409 | 410) => Meaning::Gone,
        Error::Refused(problem) => {
            Meaning::Useless(format!("the server refuses its parameters: {}", problem.detail))
        }
        Error::Malformed { detail, .. } => Meaning::OnceMended(format!(
            "unexpected answer: check that it is a Windlass server of this version ({detail})"
        )),
        error => Meaning::OnceMended(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, name: &str) -> Meaning {
        meaning(&Error::Refused(Box::new(Problem::new(status, name, "", "so it is"))))
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
        assert!(why(refused(429, "too-many-failures")).contains("check the worker's token"));
        for status in [302, 400, 404, 405] {
            assert!(why(refused(status, "unexplained")).contains("check the address"), "{status}");
        }
        let call = "GET /v1/worker/attempts/secret".to_owned();
        let malformed = Error::Malformed { server: String::new(), call, detail: "a < at 0".to_owned() };
        let why = why(meaning(&malformed));
        assert!(why.contains("a < at 0") && !why.contains("secret"), "{why}");
    }
}
