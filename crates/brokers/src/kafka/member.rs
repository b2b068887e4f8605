//! One member of a group, beside whoever waits for messages.
//!
//! A member has to be heard of and to answer when the group divides the partitions anew, whether or not anybody asks for
//! messages just then. So a task of its own does all that, and puts what arrives into the ledger.
//!
//! ```text
//!                  recv                 arrive                 hand_out
//!   librdkafka ───────────▶ the member ─────────▶ the ledger ───────────▶ QueueConsumer
//!        ▲                       │ ▲                   ▲                       │
//!        └───── commit, pause, ──┘ └──── turn ─────────┴── done, give_back ────┘
//!               (un)assign
//! ```
//!
//! When a partition is to go to somebody else, nothing more of it is handed out, and it goes once nothing of it is in
//! hands. Meanwhile the others go on. A partition that was lost, because the cluster took the member for dead, is gone.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use futures_util::FutureExt as _;
use rdkafka::{
    ClientContext, Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext, StreamConsumer},
    error::KafkaError,
    message::BorrowedMessage,
    types::{RDKafkaErrorCode as Code, RDKafkaRespErr},
};
use tokio::{sync::oneshot, task::spawn_blocking, time::sleep};

use crate::{
    BrokerError, ConsumerSettings, Queue,
    kafka::{
        address::Address,
        failure, record, settings,
        shared::{Shared, numbers},
    },
};

/// How often it is looked at what has no signal of its own: what to commit again, what must leave.
const TICK: Duration = Duration::from_millis(100);

/// Messages taken from the library in one go.
const AT_ONCE_MAX: usize = 500;

/// Messages that may wait here to be handed out, and bytes of them. When the library is to bring no more, it takes half a
/// second until it brings more again, so what is there by then is to last for that.
const WAITING_MAX: usize = 10_000;
const WAITING_BYTES_MAX: usize = 16 << 20;

/// A member of a group. It leaves when this is dropped.
pub(super) struct Member {
    shared: Arc<Shared>,
    _stop: oneshot::Sender<()>,
}

impl Member {
    /// Joins a group, in the background.
    pub(super) fn join(
        address: &Address,
        queue: &Queue,
        consumer: &ConsumerSettings,
    ) -> Result<Self, BrokerError> {
        let shared = Arc::new(Shared::new(queue.clone(), consumer.silent_after));
        let context = Context { shared: Arc::clone(&shared) };
        let wrong = |error: KafkaError| failure::of(queue, &error);
        let config = settings::of_member(address, queue, consumer);
        let stream: StreamConsumer<Context> = config.create_with_context(context).map_err(wrong)?;
        stream.subscribe(&[&queue.name]).map_err(wrong)?;
        let (stop, stopped) = oneshot::channel();
        let stream = Some(Arc::new(stream));
        let link = Link { stream, shared: Arc::clone(&shared), is_paused: false };
        tokio::spawn(link.run(stopped));
        Ok(Self { shared, _stop: stop })
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }
}

/// The member's own task.
struct Link {
    /// There until the end.
    stream: Option<Arc<StreamConsumer<Context>>>,
    shared: Arc<Shared>,
    is_paused: bool,
}

impl Link {
    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        let shared = Arc::clone(&self.shared);
        while let Some(stream) = &self.stream {
            let is_over = tokio::select! {
                _ = &mut stopped => true,
                received = stream.recv() => {
                    take(&shared, received);
                    for _ in 1..AT_ONCE_MAX {
                        let Some(received) = stream.recv().now_or_never() else { break };
                        take(&shared, received);
                    }
                    shared.changed.notify_waiters();
                    false
                }
                () = shared.turn.notified() => false,
                () = sleep(TICK) => false,
            };
            if is_over {
                break;
            }
            self.settle();
        }
        // It says good-bye to the group, which makes its thread wait.
        let _ = spawn_blocking(move || drop(self)).await;
    }

    /// Commits, lets partitions go, and stops taking more than is asked for.
    fn settle(&mut self) {
        let Some(stream) = &self.stream else { return };
        let mut state = self.shared.lock();
        let commits = state.commits(Instant::now());
        let gone = state.gone();
        let (waiting, bytes) = (state.ledger.waiting(), state.ledger.waiting_bytes());
        let partitions: Vec<i32> = state.ledger.partitions().collect();
        drop(state);

        if !commits.is_empty() {
            let (stream, shared) = (Arc::clone(stream), Arc::clone(&self.shared));
            // The library tells nobody what became of a commit for which nobody waits. One that it loses must not keep the
            // whole program from ending, as it would among the runtime's own threads.
            thread::spawn(move || commit(&stream, &shared, &commits));
        }
        for partitions in gone {
            if let Err(error) = stream.incremental_unassign(&partitions) {
                self.shared.fail(&error);
            }
            self.shared.changed.notify_waiters();
        }
        let share = if self.is_paused { 2 } else { 1 };
        let is_full = waiting >= WAITING_MAX / share || bytes >= WAITING_BYTES_MAX / share;
        if is_full || self.is_paused {
            let mut list = TopicPartitionList::new();
            for partition in partitions {
                list.add_partition(&self.shared.queue.name, partition);
            }
            // Those that came meanwhile are not paused yet.
            let turned = if is_full { stream.pause(&list) } else { stream.resume(&list) };
            if turned.is_ok() {
                self.is_paused = is_full;
            }
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let Some(stream) = self.stream.take() else { return };
        let leaving = self.shared.lock().give_up();
        for partitions in leaving {
            // What is not ours any more need not be given away.
            let _ = stream.incremental_unassign(&partitions);
        }
    }
}

/// Tells the group how far partitions are done.
fn commit(stream: &StreamConsumer<Context>, shared: &Shared, commits: &[(i32, i64)]) {
    let mut list = TopicPartitionList::new();
    let add = |(partition, offset): &(i32, i64)| {
        list.add_partition_offset(&shared.queue.name, *partition, Offset::Offset(*offset))
    };
    let result = commits.iter().try_for_each(add);
    let result = result.and_then(|()| stream.commit(&list, CommitMode::Sync));
    shared.lock().end_commit(commits, result.is_ok());
    match result {
        // There may be more by now. What failed is tried again a little later.
        Ok(()) => shared.turn(),
        Err(error) if matches!(failure::of(&shared.queue, &error), BrokerError::NoQueue(_)) => {
            shared.fail(&error);
        }
        Err(_) => {}
    }
    shared.changed.notify_waiters();
}

/// Puts what the library brought into the ledger.
fn take(shared: &Shared, received: Result<BorrowedMessage<'_>, KafkaError>) {
    match received {
        Ok(received) => {
            let message = record::message(&received);
            shared.reason.forget();
            let mut state = shared.lock();
            (state.is_away, state.is_refused) = (false, false);
            state.ledger.arrive(received.partition(), received.offset(), message);
        }
        // Of connections the context was told, and knows more.
        Err(error) if failure::is_of_connection(&error) => {}
        Err(error) => shared.fail(&error),
    }
}

/// What the library calls.
struct Context {
    shared: Arc<Shared>,
}

impl ClientContext for Context {
    fn error(&self, error: KafkaError, reason: &str) {
        self.shared.reason.hear(&error, reason);
        let are_all_down = error.rdkafka_error_code() == Some(Code::AllBrokersDown);
        let is_away = {
            let mut state = self.shared.lock();
            state.is_away |= are_all_down;
            state.is_away
        };
        // Single servers come and go; without any of them nothing arrives. That all are away is told once, though it may
        // later turn out that they only do not let us in.
        if are_all_down || (is_away && failure::is_of_connection(&error)) {
            self.shared.fail(&error);
        }
    }
}

impl ConsumerContext for Context {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        what: RDKafkaRespErr,
        partitions: &mut TopicPartitionList,
    ) {
        let mut state = self.shared.lock();
        let result = if what == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            // Who gets partitions was let in.
            (state.is_away, state.is_refused) = (false, false);
            self.shared.reason.forget();
            numbers(partitions).for_each(|partition| state.ledger.assign(partition));
            consumer.incremental_assign(partitions)
        } else if state.is_closing || consumer.assignment_lost() {
            numbers(partitions).for_each(|partition| state.ledger.forget(partition));
            consumer.incremental_unassign(partitions)
        } else {
            state.prepare_to_leave(partitions, self.shared.silent_after);
            Ok(())
        };
        drop(state);
        if let Err(error) = result {
            self.shared.fail(&error);
        }
        self.shared.turn();
        self.shared.changed.notify_waiters();
    }
}
