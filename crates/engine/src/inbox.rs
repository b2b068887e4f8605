//! What waits to be decided and committed.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use futures_channel::oneshot;
use windlass_core::{
    Alarm, AlarmCommand, AlarmId, AlarmRejection, Command, Json, Lock, LockCommand, LockHolder, LockName,
    LockRejection, Message, Millis, Rejection, Task, TaskId,
};

use crate::{
    Signal,
    ports::{Change, Claimed, Envelope, Loaded, LogLine, StoreError, SubmitKey},
};

/// One thing to decide and commit.
#[derive(Debug)]
pub(crate) enum Item {
    /// A new task.
    Submit(NewTask),
    /// Something asked of a task. `claim` is that of the token by which a worker reports.
    Task { id: TaskId, command: Command, claim: Option<u64>, logs: Vec<LogLine> },
    /// The session that has an attempt is over.
    Lost { claimed: Claimed, over: Over },
    /// A message between aggregates.
    Message(Envelope),
    /// Something told to an alarm by a person.
    Alarm { id: AlarmId, command: AlarmCommand },
    /// Something told to a lock by a person.
    Lock { name: LockName, command: LockCommand },
    /// A change that needs no decision.
    Change(Change),
}

/// A task to accept.
#[derive(Debug)]
pub(crate) struct NewTask {
    /// The task; nothing has happened to it yet.
    pub(crate) task: Arc<Task>,
    /// Steps that the task of which it is a new run has done, with their results.
    pub(crate) done: Vec<(usize, Option<Json>)>,
    /// It starts although a task with the same unique key exists.
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

/// A session that was silent for longer than its lease.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Over {
    /// When it was found so.
    pub(crate) at: Millis,
    /// Its worker is dead. Otherwise a server was away meanwhile, which may have kept the worker from being heard.
    pub(crate) is_death: bool,
}

impl Item {
    /// The tasks that must be readable for the item to be decided. A lock goes on to the next where the task that is to
    /// get it cannot be read.
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

/// What became of an item.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// The task as it is on disk now.
    Task(Loaded),
    /// The alarm as it is on disk now.
    Alarm(Alarm),
    /// The lock as it is on disk now, and who had it before.
    Lock { lock: Lock, before: Option<LockHolder> },
    /// It is on disk.
    Done,
    /// The rules refuse it.
    Rejected(Rejection),
    /// The alarm's rules refuse it.
    AlarmRejected(AlarmRejection),
    /// The lock's rules refuse it.
    LockRejected(LockRejection),
    /// Submitted before under the same key.
    KeyTaken { task: TaskId, fingerprint: [u8; 32] },
    /// A task that is the same stands for it.
    Repeats { task: TaskId },
    /// What was submitted has no unique key.
    NoUniqueKey { message: String },
    /// There is no such task.
    Missing,
    /// The rows of the task, or of one that it concerns, are damaged.
    Damaged(StoreError),
    /// Others changed it each time it was tried.
    Conflict,
}

/// What became of the items of an operation, in their order.
pub(crate) type Replies = Result<Vec<Reply>, StoreError>;

/// Items that are answered together.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) items: Vec<Item>,
    /// Where it was put back: the replies to those of its items that are settled.
    pub(crate) settled: Vec<Option<Reply>>,
    pub(crate) reply: oneshot::Sender<Replies>,
}

impl Operation {
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
    /// Set where many wait.
    many: Signal,
}

#[derive(Debug, Default)]
struct Waiting {
    operations: VecDeque<Operation>,
    items: usize,
}

/// Items that are many: a batch of them is worth a round trip of its own while another one is under way. Fewer cost less
/// when they wait for that one and go together: a transaction costs the database as much as some twenty tasks.
const ITEMS_MANY: usize = 128;

/// Items that may wait before submits are refused. Reports are never refused.
pub(crate) const INBOX_ITEMS_MAX: usize = 50_000;

impl Inbox {
    /// Waits for something to decide.
    pub async fn wait(&self) {
        self.news.wait().await;
    }

    /// Waits for many to decide at once.
    pub async fn wait_for_many(&self) {
        loop {
            self.many.wait().await;
            // Somebody else may have taken them.
            if self.items() >= ITEMS_MANY {
                return;
            }
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.items() >= INBOX_ITEMS_MAX
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.items() == 0
    }

    fn items(&self) -> usize {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).items
    }

    /// Puts items in and waits until they are decided and on disk.
    pub(crate) async fn decide(&self, items: Vec<Item>) -> Replies {
        let (reply, answer) = oneshot::channel();
        self.put(Operation { items, settled: Vec::new(), reply });
        answer
            .await
            .unwrap_or_else(|_| Err(StoreError::Unavailable("the server is shutting down".to_owned())))
    }

    /// Puts items in; what comes of them is not waited for.
    pub(crate) fn post(&self, items: Vec<Item>) {
        let (reply, _) = oneshot::channel();
        self.put(Operation { items, settled: Vec::new(), reply });
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

    /// Puts operations back before all others, in their order: what is left of them goes into the next batch.
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

    /// Takes operations of at most `items_max` items together, and one at least.
    pub(crate) fn take(&self, items_max: usize) -> Vec<Operation> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut taken, mut items) = (Vec::new(), 0);
        while let Some(operation) = waiting.operations.front() {
            // Of what was put back little is decided: others need not wait for the rest of it.
            items += if operation.settled.is_empty() { operation.items.len() } else { 0 };
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

    use super::*;

    fn probes(count: usize) -> Vec<Item> {
        (0..count).map(|_| Item::Change(Change::Probe)).collect()
    }

    #[test]
    fn many_are_waited_for_together() {
        let (inbox, mut context) = (Inbox::default(), Context::from_waker(Waker::noop()));
        let mut many = pin!(inbox.wait_for_many());
        inbox.post(probes(ITEMS_MANY - 1));
        assert!(many.as_mut().poll(&mut context).is_pending());
        inbox.post(probes(1));
        assert_eq!(many.as_mut().poll(&mut context), Poll::Ready(()));
        // Somebody else takes them first.
        inbox.post(probes(1));
        inbox.take(ITEMS_MANY + 1);
        let mut many = pin!(inbox.wait_for_many());
        assert!(many.as_mut().poll(&mut context).is_pending());
    }
}
