//! Operations that wait to be decided and committed.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use futures_channel::oneshot;
use windlass_core::{
    Alarm, AlarmCommand, AlarmId, AlarmRejection, Command, Json, Leader, Lock, LockCommand, LockHolder,
    LockName, LockRejection, Message, Millis, Rejection, Task, TaskId,
};

use windlass_store::{Change, Claimed, Envelope, Leadership, Loaded, LogLine, Signal, StoreError, SubmitKey};

use crate::{AuditedOperation, commands::current_operation};

/// One thing to decide and commit.
#[derive(Debug)]
pub(crate) enum Item {
    /// A new task.
    Submit(NewTask),
    /// A command to a task. `claim` is the claim number in the token of a reporting worker.
    Task { id: TaskId, command: Command, claim: Option<u64>, logs: Vec<LogLine> },
    /// A claimed attempt that will have no outcome.
    Lost { claimed: Claimed, loss: Loss },
    /// A message between aggregates.
    Message(Envelope),
    /// An operator's command to an alarm.
    Alarm { id: AlarmId, command: AlarmCommand },
    /// An operator's command to a lock.
    Lock { name: LockName, command: LockCommand },
    /// A change that needs no decision.
    Change(Change),
}

/// A task to accept.
#[derive(Debug)]
pub(crate) struct NewTask {
    /// The task; it has no events yet.
    pub(crate) task: Arc<Task>,
    /// Steps that the original task has completed, with their results, if this task is a rerun.
    pub(crate) done: Vec<(usize, Option<Json>)>,
    /// Start it even if a task with the same unique key exists.
    pub(crate) overrides_unique: bool,
    /// Its idempotency key.
    pub(crate) key: Option<SubmitKey>,
    /// As in [`Submission`](crate::Submission).
    pub(crate) fingerprint_before: Option<[u8; 32]>,
}

impl NewTask {
    /// A task that begins at its first step.
    pub(crate) fn new(task: Task) -> Self {
        Self {
            task: Arc::new(task),
            done: Vec::new(),
            overrides_unique: false,
            key: None,
            fingerprint_before: None,
        }
    }
}

/// Why a claimed attempt will have no outcome.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Loss {
    /// Its session was silent for longer than its lease.
    Silent {
        /// When the server found it silent.
        at: Millis,
        /// Its worker is dead. Otherwise a server was unavailable in the meantime, which may have prevented the worker's
        /// renewals.
        is_death: bool,
    },
    /// A module took several messages of it and did not answer.
    Unanswered,
}

impl Item {
    /// The tasks that must be readable for the item to be decided. A granted lock is not among these cases: if its new
    /// owner cannot be read, the lock goes on to the next owner.
    pub(crate) fn tasks(&self) -> [Option<TaskId>; 2] {
        match self {
            Self::Task { id, .. } => [Some(*id), None],
            Self::Lost { claimed, .. } => [Some(claimed.id.task), None],
            Self::Message(Envelope { message, .. }) => match message {
                Message::Alarm { .. } | Message::Lock { .. } | Message::Granted { .. } => [None, None],
                Message::Seized { owner, .. } => [Some(owner.task), None],
                Message::Child { child, parent, .. } => [Some(*child), Some(parent.task)],
                Message::ChildEnded { parent, .. } => [Some(*parent), None],
            },
            Self::Submit(_) | Self::Alarm { .. } | Self::Lock { .. } | Self::Change(_) => [None, None],
        }
    }

    /// The tasks that are loaded for the item, readable or not.
    pub(crate) fn looks_at(&self) -> [Option<TaskId>; 2] {
        match self {
            Self::Message(Envelope { message: Message::Granted { owner, .. }, .. }) => {
                [Some(owner.task), None]
            }
            _ => self.tasks(),
        }
    }
}

/// The result of an item.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// The task as it is on disk now.
    Task(Loaded),
    /// The alarm as it is on disk now.
    Alarm(Alarm),
    /// The lock as it is on disk now, and its previous holder.
    Lock { lock: Lock, before: (Option<LockHolder>, Option<Arc<Leader>>) },
    /// It is on disk.
    Done,
    /// The rules refuse it.
    Rejected(Rejection),
    /// The alarm's rules refuse it.
    AlarmRejected(AlarmRejection),
    /// The lock's rules refuse it.
    LockRejected(LockRejection),
    /// Submitted before with the same idempotency key.
    KeyTaken { task: TaskId, fingerprint: [u8; 32] },
    /// The submit is deduplicated to this task.
    Repeats { task: TaskId },
    /// The unique key of the submitted task could not be computed.
    NoUniqueKey { message: String },
    /// The name of the exclusive queue of the submitted task could not be computed.
    NoQueueName { message: String },
    /// There is no such task.
    Missing,
    /// The rows of the task, or of one that it concerns, are damaged.
    Damaged(StoreError),
    /// Each attempt to decide it conflicted with other changes.
    Conflict,
}

/// The replies to the items of an operation, in their order.
pub(crate) type Replies = Result<Vec<Reply>, StoreError>;

/// Items that get their replies together.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) items: Vec<Item>,
    /// If the operation was put back: the replies to its settled items.
    pub(crate) settled: Vec<Option<Reply>>,
    /// Messages that the committer has added as items at the end, which must be delivered before the operation is answered: for
    /// each the items whose replies are true only then.
    added: Vec<Vec<usize>>,
    /// The lease of the service that these items are of. If it is lost, none of them is committed any more.
    pub(crate) led: Option<Leadership>,
    /// What the audit log records about its changes.
    pub(crate) audited: Option<Arc<AuditedOperation>>,
    pub(crate) reply: oneshot::Sender<Replies>,
}

impl Operation {
    fn new(led: Option<Leadership>, items: Vec<Item>, reply: oneshot::Sender<Replies>) -> Self {
        Self { items, settled: Vec::new(), added: Vec::new(), led, audited: current_operation(), reply }
    }

    /// Messages for whose outcome nobody waits.
    pub(crate) fn of_messages(messages: Vec<Envelope>) -> Self {
        let (reply, _) = oneshot::channel();
        Self::new(None, messages.into_iter().map(Item::Message).collect(), reply)
    }

    /// Adds a message that must be delivered before this item is answered.
    pub(crate) fn add(&mut self, item: usize, message: Envelope) {
        let asked = self.items.len() - self.added.len();
        let is_it = |added: &Item| matches!(added, Item::Message(added) if added.id == message.id);
        if let Some(place) = self.items[asked..].iter().position(is_it) {
            return self.added[place].push(item);
        }
        self.added.push(vec![item]);
        self.items.push(Item::Message(message));
    }

    /// Whether an item that was asked for has no reply.
    pub(crate) fn lacks_reply(&self, replies: &[Option<Reply>]) -> bool {
        replies.iter().take(self.items.len() - self.added.len()).any(Option::is_none)
    }

    /// The replies to what was asked for. An item whose message was not delivered gets a conflict: its caller repeats it.
    pub(crate) fn replies(&self, replies: Vec<Option<Reply>>) -> Vec<Reply> {
        let mut replies: Vec<Reply> =
            replies.into_iter().map(|reply| reply.unwrap_or(Reply::Conflict)).collect();
        let of_added = replies.split_off(self.items.len() - self.added.len());
        for (place, items) in self.added.iter().enumerate() {
            if matches!(of_added.get(place), None | Some(Reply::Conflict)) {
                items.iter().for_each(|item| replies[*item] = Reply::Conflict);
            }
        }
        replies
    }

    /// Sends the replies. The caller may have gone away; the decisions are final anyway.
    pub(crate) fn answer(self, replies: Replies) {
        let _ = self.reply.send(replies);
    }

    /// The replies to its items so far, one for each.
    pub(crate) fn take_settled(&mut self) -> Vec<Option<Reply>> {
        let mut settled = std::mem::take(&mut self.settled);
        settled.resize(self.items.len(), None);
        settled
    }
}

/// Operations that wait, oldest first.
#[derive(Debug, Default)]
pub struct Inbox {
    waiting: Mutex<Waiting>,
    news: Signal,
    /// Set when at least [`ITEMS_MANY`] items wait.
    many: Signal,
}

#[derive(Debug, Default)]
struct Waiting {
    operations: VecDeque<Operation>,
    items: usize,
}

/// The number of items that is worth a separate round trip while another batch is being committed. Fewer items cost
/// less if they wait for that batch and go together: a transaction costs the database as much as about twenty tasks.
const ITEMS_MANY: usize = 64;

/// How many items of an operation that was put back count in the size of a batch.
const PUT_BACK_COUNTED_MAX: usize = 16;

/// The maximum number of waiting items; beyond it submits are refused. Reports are never refused.
pub(crate) const INBOX_ITEMS_MAX: usize = 50_000;

impl Inbox {
    /// Waits for operations.
    pub async fn wait(&self) {
        self.news.wait().await;
    }

    /// Waits until at least `ITEMS_MANY` items wait.
    pub async fn wait_for_many(&self) {
        loop {
            self.many.wait().await;
            // Another committer may have taken them.
            if self.items() >= ITEMS_MANY {
                return;
            }
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.items() >= INBOX_ITEMS_MAX
    }

    /// Whether the inbox is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.items() == 0
    }

    fn items(&self) -> usize {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).items
    }

    /// Puts items in and waits until they are decided and on disk.
    pub(crate) async fn decide(&self, items: Vec<Item>) -> Replies {
        self.decide_as(None, items).await
    }

    /// As [`Inbox::decide`], by the leader of a service.
    pub(crate) async fn decide_as(&self, led: Option<Leadership>, items: Vec<Item>) -> Replies {
        let (reply, answer) = oneshot::channel();
        self.put(Operation::new(led, items, reply));
        answer
            .await
            .unwrap_or_else(|_| Err(StoreError::Unavailable("the server is shutting down".to_owned())))
    }

    /// Puts items in without waiting for their results.
    pub(crate) fn post(&self, items: Vec<Item>) {
        let (reply, _) = oneshot::channel();
        self.put(Operation::new(None, items, reply));
    }

    fn put(&self, operation: Operation) {
        let items = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.items += operation.items.len();
            waiting.operations.push_back(operation);
            waiting.items
        };
        self.news.set();
        if items >= ITEMS_MANY {
            self.many.set();
        }
    }

    /// Puts operations back at the front, in their order: their unsettled items go into the next batch.
    pub(crate) fn put_back(&self, operations: Vec<Operation>) {
        if operations.is_empty() {
            return;
        }
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.items += operations.iter().map(|operation| operation.items.len()).sum::<usize>();
            for operation in operations.into_iter().rev() {
                waiting.operations.push_front(operation);
            }
        }
        self.news.set();
    }

    /// Takes operations with at most `items_max` items together, and at least one operation. They are under one lease at
    /// most.
    pub(crate) fn take(&self, items_max: usize) -> Vec<Operation> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut taken, mut items, mut led) = (Vec::new(), 0, None);
        while let Some(operation) = waiting.operations.front() {
            // A commit checks one lease. Another service waits for the next batch, with those behind it.
            if operation.led.is_some() && led.is_some() && operation.led != led {
                break;
            }
            led = led.or(operation.led);
            // Few items of an operation that was put back are decided: other operations need not wait for all of them.
            items += match operation.settled.is_empty() {
                true => operation.items.len(),
                false => operation.items.len().min(PUT_BACK_COUNTED_MAX),
            };
            if items > items_max && !taken.is_empty() {
                break;
            }
            taken.extend(waiting.operations.pop_front());
        }
        waiting.items -= taken.iter().map(|operation| operation.items.len()).sum::<usize>();
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use windlass_store::{ServerId, Service};

    use super::*;

    fn probes(count: usize) -> Vec<Item> {
        (0..count).map(|_| Item::Change(Change::Probe)).collect()
    }

    #[test]
    fn what_is_taken_together_is_under_one_lease_at_most() {
        let inbox = Inbox::default();
        let led = |service| Some(Leadership { service, holder: ServerId(1), fence: 1 });
        let (one, other) = (led(Service::Timekeeping), led(Service::Enqueuing));
        for led in [None, one, None, one, other, None, one] {
            let (reply, _) = oneshot::channel();
            inbox.put(Operation::new(led, probes(1), reply));
        }
        let taken = [4, 2, 1].map(|_| inbox.take(100).len());
        assert_eq!(taken, [4, 2, 1]);
    }

    #[test]
    fn many_are_waited_for_together() {
        let (inbox, mut context) = (Inbox::default(), Context::from_waker(Waker::noop()));
        let mut many = pin!(inbox.wait_for_many());
        inbox.post(probes(ITEMS_MANY - 1));
        assert!(many.as_mut().poll(&mut context).is_pending());
        inbox.post(probes(1));
        assert_eq!(many.as_mut().poll(&mut context), Poll::Ready(()));
        // Another committer takes them first.
        inbox.post(probes(1));
        inbox.take(ITEMS_MANY + 1);
        let mut many = pin!(inbox.wait_for_many());
        assert!(many.as_mut().poll(&mut context).is_pending());
    }
}
