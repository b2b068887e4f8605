//! Sends messages: each one is known to have arrived or is reported as an error.
//!
//! The queue or exchange is created before the first message, and again when the server reports that it is
//! missing. Each batch has a channel to itself meanwhile, see [`Outlet`].

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

/// The most idle channels kept for later batches.
const IDLE_MAX: usize = 16;

/// The server's default since version 4, and a reasonable size for a queue.
pub(super) const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The most bytes in flight at once. Each such part of a batch must be confirmed within
/// [`ANSWER_MAX`](super::link::ANSWER_MAX), which a disk can do.
const TOGETHER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Sends the messages of this client.
pub(super) struct Publisher {
    /// The connection for sending only: a server that runs out of memory stops reading it.
    sending: Arc<Link>,
    /// The connection for creating queues and exchanges.
    asking: Arc<Link>,
    idle: Mutex<Vec<Outlet>>,
    /// Targets known to exist, which need not be created before each batch.
    known: Mutex<HashSet<Target>>,
}

impl Publisher {
    pub(super) fn new(sending: Arc<Link>, asking: Arc<Link>) -> Self {
        Self { sending, asking, idle: Mutex::default(), known: Mutex::default() }
    }

    pub(super) async fn publish(&self, target: &Target, letters: &[Letter<'_>]) -> Vec<Outcome> {
        if let Err(error) = self.ensure(target).await {
            let mut outcomes: Vec<Outcome> = letters.iter().map(check).collect();
            let good = indices(&outcomes, Result::is_ok);
            set(&mut outcomes, &good, &error);
            return outcomes;
        }
        let mut outcomes = self.publish_to_existing(target, letters).await;

        let missing = indices(&outcomes, |outcome| matches!(outcome, Err(BrokerError::NoQueue(_))));
        if !missing.is_empty() {
            // The target was deleted. Try once more; if that fails too, another program keeps deleting it.
            self.known().remove(target);
            sleep(queues::REMAKE_AFTER).await;
            match self.ensure(target).await {
                Ok(()) => self.send(target, letters, &missing, &mut outcomes).await,
                Err(error) => set(&mut outcomes, &missing, &error),
            }
        }
        outcomes
    }

    /// Sends messages without creating anything: one without a queue has the outcome [`BrokerError::NoQueue`].
    pub(super) async fn publish_to_existing(&self, target: &Target, letters: &[Letter<'_>]) -> Vec<Outcome> {
        let mut outcomes: Vec<Outcome> = letters.iter().map(check).collect();
        let good = indices(&outcomes, Result::is_ok);
        self.send(target, letters, &good, &mut outcomes).await;
        let large = indices(&outcomes, |outcome| matches!(outcome, Err(BrokerError::TooLarge { .. })));
        let large: Vec<usize> = large.into_iter().filter(|at| good.binary_search(at).is_ok()).collect();
        if large.len() > 1 {
            // The server has a lower limit than usual, and closed the channel for all because of one.
            for at in large {
                self.send(target, letters, &[at], &mut outcomes).await;
            }
        }
        outcomes
    }

    /// Sends the messages at these indices, and records the outcome of each.
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
                // The other parts would time out too.
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

    /// Creates a queue or exchange unless it is known to exist.
    async fn ensure(&self, target: &Target) -> Outcome {
        if !self.known().contains(target) {
            target.declare(&self.asking).await?;
            self.known().insert(target.clone());
        }
        Ok(())
    }

    /// A channel without other users.
    async fn outlet(&self) -> Result<Outlet, BrokerError> {
        while let Some(outlet) = self.idle().pop() {
            if outlet.is_open() {
                return Ok(outlet);
            }
        }
        Outlet::open(&self.sending).await
    }

    /// Keeps a channel with nothing in flight.
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

/// How many of these messages, from the first on, are sent together: at least one.
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
