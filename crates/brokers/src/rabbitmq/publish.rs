//! Sending messages, so that each is known to be where it is to go or is reported.
//!
//! The queue or exchange is made before the first message for it, and again when the server says that it is gone.
//! Each batch has a channel to itself meanwhile, see [`Outlet`].

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::time::sleep;

use crate::{
    BrokerError, Message,
    rabbitmq::{
        link::Link,
        outlet::{Outcome, Outlet},
        properties, queues,
        target::{Letter, Target},
    },
};

/// Channels kept for the next batches.
const IDLE_MAX: usize = 16;

/// The default of servers since version 4, and what is sensible for a queue.
pub(super) const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes under way at once. Each such piece of a batch has [`ANSWER_MAX`](super::link::ANSWER_MAX) to be confirmed, which a disk can do.
const TOGETHER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Where messages leave from.
pub(super) struct Publisher {
    /// The connection that messages leave by, and nothing else: a server that runs out of memory stops reading it.
    sending: Arc<Link>,
    /// The one by which queues and exchanges are made.
    asking: Arc<Link>,
    idle: Mutex<Vec<Outlet>>,
    /// What was there once, and need not be made before each batch.
    known: Mutex<HashSet<Target>>,
}

impl Publisher {
    pub(super) fn new(sending: Arc<Link>, asking: Arc<Link>) -> Self {
        Self { sending, asking, idle: Mutex::default(), known: Mutex::default() }
    }

    pub(super) async fn publish(&self, target: &Target, letters: &[Letter<'_>]) -> Vec<Outcome> {
        let mut outcomes: Vec<Outcome> = letters.iter().map(check).collect();
        let good = indices(&outcomes, Result::is_ok);
        if let Err(error) = self.ensure(target).await {
            set(&mut outcomes, &good, &error);
            return outcomes;
        }
        self.send(target, letters, &good, &mut outcomes).await;

        let missing = indices(&outcomes, |outcome| matches!(outcome, Err(BrokerError::NoQueue(_))));
        if !missing.is_empty() {
            // It was deleted since. Once more, then; if that does not help, somebody works against us.
            self.known().remove(target);
            sleep(queues::REMAKE_AFTER).await;
            match self.ensure(target).await {
                Ok(()) => self.send(target, letters, &missing, &mut outcomes).await,
                Err(error) => set(&mut outcomes, &missing, &error),
            }
        }

        let large = indices(&outcomes, |outcome| matches!(outcome, Err(BrokerError::TooLarge { .. })));
        let large: Vec<usize> = large.into_iter().filter(|at| good.binary_search(at).is_ok()).collect();
        if large.len() > 1 {
            // The server has a lower limit than usual, and closed the channel on all for the sake of one.
            for at in large {
                self.send(target, letters, &[at], &mut outcomes).await;
            }
        }
        outcomes
    }

    /// Sends these of the messages, and notes what became of each.
    async fn send(&self, target: &Target, letters: &[Letter<'_>], which: &[usize], outcomes: &mut [Outcome]) {
        let mut rest = which;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(fitting(letters, rest));
            let batch: Vec<Letter<'_>> = now.iter().map(|at| letters[*at]).collect();
            for (at, outcome) in now.iter().zip(self.send_together(target, &batch).await) {
                outcomes[*at] = outcome;
            }
            let gone = |at: &usize| match &outcomes[*at] {
                Err(error @ BrokerError::Unreachable(_)) => Some(error.clone()),
                _ => None,
            };
            if let Some(error) = now.iter().find_map(gone) {
                // Each piece would wait as long in vain.
                return set(outcomes, later, &error);
            }
            rest = later;
        }
    }

    async fn send_together(&self, target: &Target, batch: &[Letter<'_>]) -> Vec<Outcome> {
        match self.outlet().await {
            Ok(outlet) => {
                let sent = outlet.send(target, batch).await;
                self.give_back(outlet, &sent);
                sent
            }
            Err(error) => vec![Err(error); batch.len()],
        }
    }

    /// Makes a queue or exchange unless it was there already.
    async fn ensure(&self, target: &Target) -> Outcome {
        if !self.known().contains(target) {
            target.declare(&self.asking).await?;
            self.known().insert(target.clone());
        }
        Ok(())
    }

    /// A channel of which nobody else knows.
    async fn outlet(&self) -> Result<Outlet, BrokerError> {
        while let Some(outlet) = self.idle().pop() {
            if outlet.is_open() {
                return Ok(outlet);
            }
        }
        Outlet::open(&self.sending).await
    }

    /// Keeps a channel on which nothing is under way any more.
    fn give_back(&self, outlet: Outlet, sent: &[Outcome]) {
        let is_settled = sent.iter().all(|outcome| matches!(outcome, Ok(()) | Err(BrokerError::NoQueue(_))));
        let mut idle = self.idle();
        if is_settled && outlet.is_open() && idle.len() < IDLE_MAX {
            idle.push(outlet);
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Outlet>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashSet<Target>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bytes(message: &Message) -> usize {
    let headers = message.headers.iter().map(|(name, value)| name.len() + value.len());
    message.body.len() + headers.sum::<usize>()
}

/// How many of these messages, from the first on, are sent together: one at least.
fn fitting(letters: &[Letter<'_>], which: &[usize]) -> usize {
    let mut room = TOGETHER_BYTES_MAX;
    let fits = |at: &&usize| {
        let left = room.checked_sub(bytes(letters[**at].message));
        room = left.unwrap_or_default();
        left.is_some()
    };
    which.iter().take_while(fits).count().max(1)
}

/// Whether a message can be sent at all.
fn check(letter: &Letter<'_>) -> Outcome {
    let message = letter.message;
    let bytes = bytes(message);
    if bytes > MESSAGE_BYTES_MAX {
        return Err(BrokerError::TooLarge { bytes, limit: MESSAGE_BYTES_MAX });
    }
    properties::of(message).map(drop)
}

fn indices(outcomes: &[Outcome], is_wanted: impl Fn(&Outcome) -> bool) -> Vec<usize> {
    let all = outcomes.iter().enumerate();
    all.filter(|(_, outcome)| is_wanted(outcome)).map(|(at, _)| at).collect()
}

fn set(outcomes: &mut [Outcome], which: &[usize], error: &BrokerError) {
    for at in which {
        outcomes[*at] = Err(error.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_batches_are_sent_in_pieces() {
        let sizes = [3, 3, 3, 9, 1, 7].map(|mebibytes| vec![b'x'; mebibytes << 20]);
        let messages = sizes.map(|body| Message::new("id", "key", body));
        let letters: Vec<Letter<'_>> = messages.iter().map(Letter::plain).collect();
        let mut rest: &[usize] = &[0, 1, 2, 3, 4, 5];
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let count = fitting(&letters, rest);
            pieces.push(count);
            rest = &rest[count..];
        }
        assert_eq!(pieces, [2, 1, 1, 2]);
    }
}
