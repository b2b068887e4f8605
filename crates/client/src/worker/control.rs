//! Shared state of a running handler and the driver.

use std::{
    mem,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::{Notify, mpsc::UnboundedSender};
use windlass_api::Progress;

use super::{Outcome, Token, secrets::Hidden};

/// The most log bytes of one attempt: the amount that the server stores.
const LOG_BYTES_MAX: usize = 64 * 1024;

/// The last line of a log that was cut. It still fits into the amount that the server stores.
const LOG_CUT: &str = "(cut here: an attempt may log 64 KiB)";

/// A message of a job to the driver.
#[derive(Debug)]
pub(super) enum Word {
    /// The handler has ended.
    Ended(Token, Outcome),
    /// The job has log lines or progress to collect.
    News(Token),
}

/// The connection between one running handler and the driver.
#[derive(Debug)]
pub(super) struct JobControl {
    token: Token,
    cancelled: AtomicBool,
    wake: Notify,
    said: Mutex<Said>,
    driver: UnboundedSender<Word>,
}

/// Log lines and progress that the driver has not collected yet.
#[derive(Debug, Default)]
struct Said {
    lines: Vec<String>,
    progress: Option<Progress>,
    /// The log bytes of the whole attempt, collected or not.
    log_bytes: usize,
    log_cut: bool,
    /// Whether the driver knows that there is something to collect.
    announced: bool,
    /// The values of secrets, which lines and progress must not contain.
    hidden: Hidden,
}

impl JobControl {
    pub(super) fn new(token: Token, driver: UnboundedSender<Word>) -> Self {
        Self { token, cancelled: AtomicBool::new(false), wake: Notify::new(), said: Mutex::default(), driver }
    }

    pub(super) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.wake.notify_waiters();
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    pub(super) async fn cancelled(&self) {
        // Create the `notified` before the check: a cancel between check and wait then still wakes it.
        let notified = self.wake.notified();
        if !self.is_cancelled() {
            notified.await;
        }
    }

    /// Hides these values in what comes from now on.
    pub(super) fn hide(&self, hidden: &Hidden) {
        self.said().hidden.extend(hidden);
    }

    pub(super) fn progress(&self, progress: Progress) {
        let mut said = self.said();
        let message = progress.message.map(|message| said.hidden.in_text(message));
        let progress = Progress { message, ..progress };
        said.progress = Some(progress);
        self.announce(&mut said);
    }

    pub(super) fn log(&self, line: String) {
        let mut said = self.said();
        if said.log_cut {
            return;
        }
        let line = said.hidden.in_text(line);
        let bytes = said.log_bytes + line.len();
        if bytes > LOG_BYTES_MAX - LOG_CUT.len() {
            said.log_cut = true;
            said.lines.push(LOG_CUT.to_owned());
        } else {
            said.log_bytes = bytes;
            said.lines.push(line);
        }
        self.announce(&mut said);
    }

    /// Takes the lines and progress since the last call.
    pub(super) fn collect(&self) -> (Vec<String>, Option<Progress>) {
        let mut said = self.said();
        said.announced = false;
        (mem::take(&mut said.lines), said.progress.take())
    }

    fn announce(&self, said: &mut Said) {
        if !mem::replace(&mut said.announced, true) {
            // Sending fails only if the driver is gone; then the news does not matter.
            let _ = self.driver.send(Word::News(self.token.clone()));
        }
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        // No holder of this mutex panics; and a partial log is still worth sending.
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    #[test]
    fn news_is_announced_once_until_it_is_collected() {
        let (sender, mut inbox) = mpsc::unbounded_channel();
        let control = JobControl::new("t".into(), sender);
        control.log("one".to_owned());
        control.log("two".to_owned());
        control.progress(Progress { value: Some(0.5), message: None });
        assert!(matches!(inbox.try_recv(), Ok(Word::News(_))));
        assert!(inbox.try_recv().is_err());
        assert_eq!(
            control.collect(),
            (vec!["one".to_owned(), "two".to_owned()], Some(Progress { value: Some(0.5), message: None }))
        );
        assert_eq!(control.collect(), (vec![], None));
        control.log("three".to_owned());
        assert!(matches!(inbox.try_recv(), Ok(Word::News(_))));
    }

    #[test]
    fn a_log_is_cut_once_even_if_it_was_collected_meanwhile() {
        let (sender, _inbox) = mpsc::unbounded_channel();
        let control = JobControl::new("t".into(), sender);
        let mut lines = Vec::new();
        for _ in 0..100 {
            control.log("x".repeat(1024));
            lines.extend(control.collect().0);
        }
        assert_eq!(lines.iter().filter(|line| *line == LOG_CUT).count(), 1);
        assert_eq!(lines.last().map(String::as_str), Some(LOG_CUT));
        assert!(lines.iter().map(String::len).sum::<usize>() <= LOG_BYTES_MAX);
        assert_eq!(lines.len(), 64);
    }

    #[tokio::test]
    async fn a_cancel_wakes_those_who_wait_and_those_who_come_later() {
        let (sender, _inbox) = mpsc::unbounded_channel();
        let control = JobControl::new("t".into(), sender);
        tokio::join!(control.cancelled(), control.cancelled(), async { control.cancel() });
        control.cancelled().await;
    }
}
