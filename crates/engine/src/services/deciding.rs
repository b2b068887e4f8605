//! The items of a batch are decided one after the other, as long as evaluating their expressions takes.
//!
//! ```text
//! items ─▶ decided here ──────────────────────────────────────────────▶ to be committed
//!             │ an item may take long, or all took long so far            ▲
//!             └─▶ on a thread that serves nobody ─────────────────────────┤
//!                       │ all took more than a commit may                 │
//!                       └─▶ put off: the next commit ─────────────────────┘
//! ```
//!
//! Items whose tasks were not loaded, as memory is to hold few at once, are put off as well.
//!
//! Steps are counted rather than time: the same items are put off everywhere.

use std::sync::Arc;

use futures_channel::oneshot;
use windlass_core::{ChildCommand, Flow, Message};

use super::batch::{Batch, Place};
use crate::{
    inbox::{Item, Operation, Reply},
    ports::Envelope,
};

/// How many steps evaluating expressions may take for one commit, for messages and for everything else. An item that is
/// begun below it is decided. This many take about a tenth of a second, which is how long whoever waits for the commit waits
/// for the expressions of others.
pub(crate) const EVALUATION_STEPS_PER_COMMIT_MAX: u64 = 5_000_000;

/// How many steps evaluating expressions may take on the thread that runs the committer, which may serve callers as well:
/// about a millisecond.
const EVALUATION_STEPS_HERE_MAX: u64 = 50_000;

/// Parameters that are longer take long to read, whatever an expression does with them.
const PARAMS_BYTES_HERE_MAX: usize = 16 << 10;

/// Runs work that takes the processor for long on a thread where nobody waits.
pub type Elsewhere = Arc<dyn Fn(Box<dyn FnOnce() + Send>) + Send + Sync>;

/// A batch that is being decided.
pub(super) struct Deciding {
    pub(super) batch: Batch,
    /// Items whose reply waits for no change.
    pub(super) unchanging: Vec<(Place, Reply)>,
    /// Items to be decided again.
    pub(super) again: Vec<Place>,
    /// Items that are put off.
    pub(super) put_off: Vec<Place>,
    /// What is to be decided, and how much of it was.
    places: Vec<Place>,
    next: usize,
    /// Where messages begin in it, and what evaluations had taken before them.
    messages_from: usize,
    before_messages: u64,
}

impl Deciding {
    pub(super) fn new(batch: Batch, operations: &[Operation], open: &[Place]) -> Self {
        // Messages last: one that another server has consumed conflicts, and nothing else is to be built on it.
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

    /// Decides everything: what takes long elsewhere, where there is such a place. The operations go there as well, and come
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

    /// Whether the next item may take long, or all have taken long so far.
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

    /// Decides the next item, or puts it off. Tells whether there was one.
    fn step(&mut self, operations: &[Operation]) -> bool {
        let Some(place) = self.places.get(self.next).copied() else { return false };
        if self.next == self.messages_from {
            self.before_messages = self.batch.evaluated;
        }
        self.next += 1;
        let item = item(operations, place);
        // Messages have as much for themselves: they come last, and must not wait for ever.
        let takes_too_long = self.batch.evaluated - self.before_messages >= EVALUATION_STEPS_PER_COMMIT_MAX
            && self.flow_of(item).is_some_and(evaluates);
        if takes_too_long || self.batch.is_on_unloaded(item) {
            self.put_off.push(place);
            return true;
        }
        if let Some(reply) = self.batch.decide(item, place) {
            match self.batch.is_on_recalled(item) {
                // What no commit has checked is no reason to refuse.
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

/// Whether deciding for a task of this flow looks at parameters at all.
fn evaluates(flow: &Flow) -> bool {
    flow.expressions().next().is_some() || flow.steps.iter().any(|step| step.each.is_some())
}

/// Whether evaluating expressions of this flow may take longer than a thread that serves has.
fn may_take_long(flow: &Flow, params_bytes: usize) -> bool {
    let mut expressions = flow.expressions().peekable();
    expressions.peek().is_some()
        && (params_bytes > PARAMS_BYTES_HERE_MAX || expressions.any(|expression| expression.has_loops()))
}

/// Runs `work` elsewhere, and waits for what comes of it.
async fn run_on<T: Send + 'static>(elsewhere: &Elsewhere, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = oneshot::channel();
    elsewhere(Box::new(move || {
        // Nobody waits any more where the server ends.
        let _ = done.send(work());
    }));
    // A defect that ends the work must end the loop that waits for it as well.
    result.await.expect("deciding has panicked on its thread")
}
