//! Calls that fail: what is logged about it, and the token that is read again when the server refuses it.

use std::time::{Duration, Instant};

use tracing::{debug, error, info, warn};

use crate::{Client, Error, pacing::Pacing};

/// How often the file with the token is read while the server refuses the token.
const READ_TOKEN_EVERY: Duration = Duration::from_secs(1);

/// Why calls fail.
#[derive(Debug, PartialEq, Eq)]
enum Cause {
    /// The server is unavailable or overloaded.
    Unavailable,
    /// The server does not accept the token, or not for the queues of the worker.
    Token,
    /// It did not accept an earlier token than the present one.
    EarlierToken,
    /// Anything else that does not pass by itself: its message without digits, to compare.
    Other(String),
}

impl Cause {
    fn of(error: &Error) -> Self {
        if error.refuses_token() {
            Self::Token
        } else if error.is_temporary() && error.tls_refusal().is_none() {
            Self::Unavailable
        } else {
            // Messages about certificates have the time and how long ago it was.
            Self::Other(error.to_string().replace(|letter: char| letter.is_ascii_digit(), ""))
        }
    }
}

/// When the next call may be made.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// After the delays of its kind of calls.
    AsPaced,
    /// At once: it has another token than the one that failed.
    AtOnce,
    /// Not before this time, whatever its kind.
    NotBefore(Instant),
}

/// The calls of one session that have failed since the last one that succeeded.
#[derive(Debug)]
pub(super) struct Outage {
    /// Why, as logged; none = the last call succeeded. An outage may last, so each cause is logged once.
    cause: Option<Cause>,
    /// The delays while the token is refused.
    token_pacing: Pacing,
    /// When the refused token is tried again; in the past if it was not refused.
    retry_at: Instant,
    /// When the present token was read; none = before the session.
    token_read_at: Option<Instant>,
    /// When the file with the token is read again; none = the token is not refused, or is in no file.
    pub(super) token_due: Option<Instant>,
}

impl Outage {
    pub(super) fn none() -> Self {
        Self {
            cause: None,
            token_pacing: Pacing::for_refused_tokens(),
            retry_at: Instant::now(),
            token_read_at: None,
            token_due: None,
        }
    }

    /// Whether the last call failed.
    pub(super) fn is_on(&self) -> bool {
        self.cause.is_some()
    }

    /// A call succeeded.
    pub(super) fn is_over(&mut self) {
        if self.cause.take().is_some() {
            info!("calls to the server succeed again");
            *self = Self { token_read_at: self.token_read_at, ..Self::none() };
        }
    }

    /// A call that was sent at this time has failed.
    pub(super) fn failed(&mut self, sent_at: Instant, error: &Error, client: Option<&Client>) -> Next {
        if !error.refuses_token() {
            self.log(error, client);
            return Next::AsPaced;
        }
        let now = Instant::now();
        // The call may have had the token before.
        let has_another = self.token_read_at.is_some_and(|read_at| sent_at < read_at);
        if has_another || self.reads_another_token(now, client) {
            return Next::AtOnce;
        }
        self.log(error, client);
        // Calls that were made together are refused together, which counts as one refusal.
        if self.retry_at <= now {
            self.retry_at = now + self.token_pacing.failed();
        }
        Next::NotBefore(self.retry_at)
    }

    /// Reads the file with the token if that is due. True if it has another token now.
    pub(super) fn read_token_if_due(&mut self, now: Instant, client: Option<&Client>) -> bool {
        self.token_due.is_some_and(|due| due <= now) && self.reads_another_token(now, client)
    }

    fn reads_another_token(&mut self, now: Instant, client: Option<&Client>) -> bool {
        let Some((client, file)) = client.and_then(|client| Some((client, client.token_file()?))) else {
            return false;
        };
        if !client.reads_another_token() {
            self.token_due = Some(now + READ_TOKEN_EVERY);
            return false;
        }
        info!(file = %file.display(), "the server refused the token; trying the new one in its file");
        *self = Self { cause: Some(Cause::EarlierToken), token_read_at: Some(now), ..Self::none() };
        true
    }

    fn log(&mut self, error: &Error, client: Option<&Client>) {
        let cause = Cause::of(error);
        if self.cause.as_ref() == Some(&cause) {
            debug!(%error, "a call failed again; retrying");
            return;
        }
        match (&cause, client.and_then(Client::token_file)) {
            (Cause::Unavailable, _) => warn!(%error, "a call was lost; retrying until the server answers"),
            (Cause::Token, Some(file)) => error!(
                %error,
                file = %file.display(),
                "the server refuses the token of this worker: write a valid one into the file, which is read again every second"
            ),
            (Cause::Token, None) => error!(
                %error,
                "the server refuses the token of this worker: start the worker again with a valid one; retrying meanwhile"
            ),
            (Cause::Other(_) | Cause::EarlierToken, _) => {
                error!(%error, "calls fail until this is corrected; retrying")
            }
        }
        self.cause = Some(cause);
    }
}
