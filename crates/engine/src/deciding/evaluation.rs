//! Decides the items of a batch one after the other, within a limit on the evaluation of their expressions.
//!
//! ```text
//! items ─▶ decided here ──────────────────────────────────────────────▶ to be committed
//!             │ an item may take long, or all took long so far            ▲
//!             └─▶ on a thread that serves no callers ─────────────────────┤
//!                       │ all took longer than one commit may             │
//!                       └─▶ deferred to the next commit ──────────────────┘
//! ```
//!
//! Items whose tasks were not loaded, because memory holds few at once, are deferred as well.
//!
//! The limits count steps instead of time, so that every run defers the same items.

use std::sync::Arc;

use futures_channel::oneshot;
use windlass_core::{ChildCommand, Flow, Message};
use windlass_store::Envelope;

use crate::deciding::{
    batch::{Batch, Place},
    inbox::{Item, Operation, Reply},
};

/// The maximum number of steps for evaluating expressions in one commit, for messages and for everything else. An item
/// that starts below the limit is decided. This number of steps takes about a tenth of a second, which is the longest
/// that a caller waits for the expressions of others.
pub(crate) const EVALUATION_STEPS_PER_COMMIT_MAX: u64 = 5_000_000;

/// The maximum number of steps for evaluating expressions on the thread of the committer, which may also serve callers:
/// about a millisecond.
const EVALUATION_STEPS_HERE_MAX: u64 = 50_000;

/// In bytes. Parsing longer parameters takes long, whatever an expression does with them.
const PARAMS_BYTES_HERE_MAX: usize = 16 << 10;

/// Runs long computations on a thread that serves no callers.
pub type Elsewhere = Arc<dyn Fn(Box<dyn FnOnce() + Send>) + Send + Sync>;

/// A batch that is being decided.
pub(super) struct Deciding {
    pub(super) batch: Batch,
    /// Items whose reply does not depend on a change.
    pub(super) unchanging: Vec<(Place, Reply)>,
    /// Items to be decided again.
    pub(super) again: Vec<Place>,
    /// Items deferred to the next batch.
    pub(super) put_off: Vec<Place>,
    /// All items to decide, in their order, and the index of the next one.
    places: Vec<Place>,
    next: usize,
    /// The index of the first message in `places`, and the evaluation steps used before it.
    messages_from: usize,
    before_messages: u64,
}

impl Deciding {
    pub(super) fn new(batch: Batch, operations: &[Operation], open: &[Place]) -> Self {
        // Messages come last: a message that another server has consumed conflicts, and nothing else must be built on
        // it.
        let (messages, mut places): (Vec<Place>, Vec<Place>) =
            open.iter().partition(|place| matches!(item(operations, **place), Item::Message(_)));
        let messages_from = places.len();
        places.extend(messages);
        Self {
            batch,
            unchanging: Vec::new(),
            again: Vec::new(),
            put_off: Vec::new(),
            places,
            next: 0,
            messages_from,
            before_messages: 0,
        }
    }

    /// The same batch, with more messages to decide.
    pub(super) fn going_on(mut self, places: impl IntoIterator<Item = Place>) -> Self {
        self.places.extend(places);
        self
    }

    /// Decides everything: long decisions on `elsewhere`, if there is one. The operations move there as well, and come
    /// back.
    pub(super) async fn run(
        mut self,
        operations: &mut Vec<Operation>,
        elsewhere: Option<&Elsewhere>,
    ) -> Self {
        let Some(elsewhere) = elsewhere else {
            while self.step(operations) {}
            return self;
        };
        while !self.takes_long(operations) {
            if !self.step(operations) {
                return self;
            }
        }
        let taken = std::mem::take(operations);
        let (deciding, taken) = run_on(elsewhere, move || {
            while self.step(&taken) {}
            (self, taken)
        })
        .await;
        *operations = taken;
        deciding
    }

    /// Whether the next item may take long, or the evaluation limit of this thread is reached.
    fn takes_long(&self, operations: &[Operation]) -> bool {
        let Some(place) = self.places.get(self.next) else { return false };
        self.batch.evaluated >= EVALUATION_STEPS_HERE_MAX || {
            let item = item(operations, *place);
            let bytes = match item {
                Item::Submit(new) => new.task.input.params.as_str().len(),
                _ => 0,
            };
            self.flow_of(item).is_some_and(|flow| may_take_long(flow, bytes))
        }
    }

    /// Decides the next item, or defers it. Returns whether there was one.
    fn step(&mut self, operations: &[Operation]) -> bool {
        let Some(place) = self.places.get(self.next).copied() else { return false };
        if self.next == self.messages_from {
            self.before_messages = self.batch.evaluated;
        }
        self.next += 1;
        let item = item(operations, place);
        // Messages have a limit of their own: they come last, and must not wait forever.
        let takes_too_long = self.batch.evaluated - self.before_messages >= EVALUATION_STEPS_PER_COMMIT_MAX
            && self.flow_of(item).is_some_and(evaluates);
        if takes_too_long || self.batch.is_on_unloaded(item) {
            self.put_off.push(place);
            return true;
        }
        if let Some(reply) = self.batch.decide(item, place) {
            match self.batch.is_on_recalled(item) {
                // The cached state is unconfirmed, so it cannot justify a refusal.
                true => self.again.push(place),
                false => self.unchanging.push((place, reply)),
            }
        }
        true
    }

    /// The flow whose expressions may be evaluated for an item.
    fn flow_of<'a>(&'a self, item: &'a Item) -> Option<&'a Flow> {
        let id = match item {
            Item::Submit(new) => return Some(&new.task.flow),
            Item::Task { id, .. } => *id,
            Item::Lost { claimed, .. } => claimed.id.task,
            Item::Message(Envelope { message, .. }) => match message {
                Message::Granted { owner, .. } | Message::Seized { owner, .. } => owner.task,
                Message::Child { command: ChildCommand::Start(start), .. } => {
                    return self.batch.flows.get(&start.flow).map(|flow| &**flow);
                }
                Message::Child { child, .. } => *child,
                Message::ChildEnded { parent, .. } => *parent,
                Message::Alarm { .. } | Message::Lock { .. } => return None,
            },
            Item::Alarm { .. } | Item::Lock { .. } | Item::Change(_) => return None,
        };
        self.batch.flow_of(id)
    }
}

fn item(operations: &[Operation], place: Place) -> &Item {
    &operations[place.0].items[place.1]
}

/// Whether deciding for a task of this flow evaluates parameters at all.
fn evaluates(flow: &Flow) -> bool {
    flow.expressions().next().is_some() || flow.steps.iter().any(|step| step.each.is_some())
}

/// Whether evaluating expressions of this flow may take longer than a thread that serves callers can afford.
fn may_take_long(flow: &Flow, params_bytes: usize) -> bool {
    let mut expressions = flow.expressions().peekable();
    expressions.peek().is_some()
        && (params_bytes > PARAMS_BYTES_HERE_MAX || expressions.any(|expression| expression.has_loops()))
}

/// Runs `work` on `elsewhere` and waits for its result.
async fn run_on<T: Send + 'static>(elsewhere: &Elsewhere, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = oneshot::channel();
    elsewhere(Box::new(move || {
        // The receiver is gone when the server shuts down.
        let _ = done.send(work());
    }));
    // A panic in the work must also end the loop that waits for it.
    result.await.expect("deciding has panicked on its thread")
}
