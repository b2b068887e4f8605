//! The messages that the worker has: of which attempt each is, and which were settled.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use windlass_api::{Attempt, Direction};
use windlass_brokers::Receipt;

use super::{Incoming, Token};
use crate::worker::Failure;

/// How many settled attempts are remembered. A message that comes again after it was settled, because its acknowledgement
/// was lost or it was published twice, is not run again.
const SETTLED_MAX: usize = 10_000;

/// What the worker has in its hands, told by source and receipts.
#[derive(Default)]
pub(super) struct Hands(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    held: HashMap<Token, Held>,
    settled: HashSet<Token>,
    /// The same in the order in which it came, to forget the oldest.
    order: VecDeque<Token>,
}

struct Held {
    step: StepOf,
    retries: u32,
    fault: Option<Failure>,
    /// One message each: of an attempt that was published twice there are several.
    receipts: Vec<(usize, Receipt)>,
}

/// Of which step a message is: what results say of it.
#[derive(Debug, Clone)]
pub(super) struct StepOf {
    pub(super) task: String,
    pub(super) cursor: usize,
    pub(super) direction: Direction,
}

/// What a message is to the worker.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    /// Of an attempt that was not here.
    New,
    /// Of an attempt that is here.
    Again,
    /// Of an attempt that was settled.
    Done(Receipt),
}

impl Hands {
    /// A message came.
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

    /// How often the module itself tries again, and why the attempt can only fail, if it can.
    pub(super) fn treatment(&self, token: &Token) -> Option<(u32, Option<Failure>)> {
        self.inner().held.get(token).map(|held| (held.retries, held.fault.clone()))
    }

    pub(super) fn step(&self, token: &str) -> Option<StepOf> {
        self.inner().held.get(token).map(|held| held.step.clone())
    }

    /// Nothing more is to be done about an attempt. Gives its messages.
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

    /// An attempt is for another worker. Gives its messages.
    pub(super) fn let_go(&self, token: &Token) -> Vec<(usize, Receipt)> {
        self.inner().held.remove(token).map(|held| held.receipts).unwrap_or_default()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics while it holds the lock.
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
