//! The messages that the worker has received: their attempts, and which were settled.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use windlass_api::{Attempt, Direction};
use windlass_brokers::Receipt;

use super::{Incoming, Token};
use crate::worker::Failure;

/// The number of settled attempts to remember. A message delivered again after that, because its
/// acknowledgement was lost or it was published twice, does not run again.
const SETTLED_MAX: usize = 10_000;

/// The received messages, by source and receipt.
#[derive(Default)]
pub(super) struct Hands(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    held: HashMap<Token, Held>,
    settled: HashSet<Token>,
    /// The settled tokens in order of arrival, to forget the oldest.
    order: VecDeque<Token>,
}

struct Held {
    step: StepOf,
    retries: u32,
    fault: Option<Failure>,
    /// The receipts of all its messages: an attempt that was published twice has several.
    receipts: Vec<(usize, Receipt)>,
}

/// The step of a message, for results.
#[derive(Debug, Clone)]
pub(super) struct StepOf {
    pub(super) task: String,
    pub(super) cursor: usize,
    pub(super) direction: Direction,
}

/// What a message means to the worker.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    /// The attempt is new.
    New,
    /// The attempt is already here.
    Again,
    /// The attempt was settled before.
    Done(Receipt),
}

impl Hands {
    /// Records a message.
    pub(super) fn receive(&self, incoming: Incoming, source: usize, receipt: Receipt) -> (Attempt, Arrived) {
        let Incoming { attempt, retries, fault } = incoming;
        let token: Token = attempt.token.as_str().into();
        let mut inner = self.inner();
        if inner.settled.contains(&token) {
            return (attempt, Arrived::Done(receipt));
        }
        if let Some(held) = inner.held.get_mut(&token) {
            held.receipts.push((source, receipt));
            return (attempt, Arrived::Again);
        }
        let step =
            StepOf { task: attempt.task.clone(), cursor: attempt.cursor, direction: attempt.direction };
        inner.held.insert(token, Held { step, retries, fault, receipts: vec![(source, receipt)] });
        (attempt, Arrived::New)
    }

    /// How many retries the module makes itself, and the failure of an attempt that cannot run.
    pub(super) fn treatment(&self, token: &Token) -> Option<(u32, Option<Failure>)> {
        self.inner().held.get(token).map(|held| (held.retries, held.fault.clone()))
    }

    pub(super) fn step(&self, token: &str) -> Option<StepOf> {
        self.inner().held.get(token).map(|held| held.step.clone())
    }

    /// The attempt is finished. Returns its messages.
    pub(super) fn settle(&self, token: &Token) -> Vec<(usize, Receipt)> {
        let mut inner = self.inner();
        if inner.settled.insert(token.clone()) {
            inner.order.push_back(token.clone());
        }
        if inner.order.len() > SETTLED_MAX
            && let Some(oldest) = inner.order.pop_front()
        {
            inner.settled.remove(&oldest);
        }
        inner.held.remove(token).map(|held| held.receipts).unwrap_or_default()
    }

    /// The attempt is for another worker. Returns its messages.
    pub(super) fn let_go(&self, token: &Token) -> Vec<(usize, Receipt)> {
        self.inner().held.remove(token).map(|held| held.receipts).unwrap_or_default()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // No holder of this mutex panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use windlass_brokers::Message;

    use super::*;

    fn receive(hands: &Hands, token: &str, receipt: &str) -> Arrived {
        let body = format!(
            r#"{{"TaskId":"t","Cursor":1,"Type":0,"Parameters":{{}},"Module":"m","Command":"c","Timeout":9,"Retry":0,"Token":"{token}"}}"#
        );
        let incoming = Incoming::read(&Message::new("1", "t", body), None).unwrap().0;
        hands.receive(incoming, 0, Receipt(receipt.into())).1
    }

    #[test]
    fn an_attempt_that_came_twice_is_settled_twice_and_not_run_again() {
        let hands = Hands::default();
        assert_eq!(receive(&hands, "a", "1"), Arrived::New);
        assert_eq!(receive(&hands, "a", "2"), Arrived::Again);
        assert_eq!(hands.step("a").unwrap().cursor, 1);
        let receipts: Vec<String> =
            hands.settle(&"a".into()).into_iter().map(|(_, receipt)| receipt.0.into()).collect();
        assert_eq!(receipts, ["1", "2"]);
        assert_eq!(receive(&hands, "a", "3"), Arrived::Done(Receipt("3".into())));
    }

    #[test]
    fn an_attempt_that_was_given_back_may_come_again() {
        let hands = Hands::default();
        receive(&hands, "a", "1");
        assert_eq!(hands.let_go(&"a".into()).len(), 1);
        assert_eq!(receive(&hands, "a", "2"), Arrived::New);
    }

    #[test]
    fn what_was_settled_is_remembered_for_a_bounded_while() {
        let hands = Hands::default();
        for n in 0..=SETTLED_MAX {
            hands.settle(&n.to_string().into());
        }
        assert_eq!(hands.inner().settled.len(), SETTLED_MAX);
        assert_eq!(receive(&hands, "0", "1"), Arrived::New);
    }
}
