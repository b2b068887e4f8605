//! One member of a group, independent of callers that wait for messages.
//!
//! A member must send heartbeats and answer when the group rebalances, even while no caller asks for
//! messages. So its own task does all this, and puts arriving messages into the ledger.
//!
//! ```text
//!                  recv                 arrive                 hand_out
//!   librdkafka ───────────▶ the member ─────────▶ the ledger ───────────▶ QueueConsumer
//!        ▲                       │ ▲                   ▲                       │
//!        └───── commit, pause, ──┘ └──── turn ─────────┴── done, give_back ────┘
//!               (un)assign
//! ```
//!
//! When a partition is to be reassigned, none of its messages is handed out any more, and it leaves once none
//! of them is in flight. Other partitions continue meanwhile. A partition that was lost, because the cluster
//! considered the member dead, is gone at once.

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

/// The interval of checks without a signal of their own: commits to repeat, partitions to release.
const TICK: Duration = Duration::from_millis(100);

/// The most messages taken from the library in one go.
const AT_ONCE_MAX: usize = 500;

/// The most messages, and bytes of messages, that may wait to be handed out. After a pause the library takes
/// half a second to resume, so the waiting messages must last for that time.
const WAITING_MAX: usize = 10_000;
const WAITING_BYTES_MAX: usize = 16 << 20;

/// A member of a group. Dropping this leaves the group.
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

/// The task of a member.
struct Link {
    /// Present until the end.
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
        // Leaving the group blocks the thread.
        let _ = spawn_blocking(move || drop(self)).await;
    }

    /// Commits offsets, releases partitions, and pauses the library when enough messages wait.
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
            // The library does not report the result of a commit unless a thread waits for it. A commit that
            // the library loses must not keep the program from exiting, as it would in the runtime's own
            // threads.
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
            // Partitions that arrived meanwhile are not paused yet.
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
            // Partitions already lost need no release.
            let _ = stream.incremental_unassign(&partitions);
        }
    }
}

/// Commits how far partitions are done.
fn commit(stream: &StreamConsumer<Context>, shared: &Shared, commits: &[(i32, i64)]) {
    let mut list = TopicPartitionList::new();
    let add = |(partition, offset): &(i32, i64)| {
        list.add_partition_offset(&shared.queue.name, *partition, Offset::Offset(*offset))
    };
    let result = commits.iter().try_for_each(add);
    let result = result.and_then(|()| stream.commit(&list, CommitMode::Sync));
    shared.lock().end_commit(commits, result.is_ok());
    match result {
        // There may be more to commit by now. A failed commit is repeated a little later.
        Ok(()) => shared.turn(),
        Err(error) if matches!(failure::of(&shared.queue, &error), BrokerError::NoQueue(_)) => {
            shared.fail(&error);
        }
        Err(_) => {}
    }
    shared.changed.notify_waiters();
}

/// Puts a received message into the ledger.
fn take(shared: &Shared, received: Result<BorrowedMessage<'_>, KafkaError>) {
    match received {
        Ok(received) => {
            let message = record::message(&received);
            shared.reason.forget();
            let mut state = shared.lock();
            (state.is_away, state.is_refused) = (false, false);
            state.ledger.arrive(received.partition(), received.offset(), message);
        }
        // The context has already got errors of connections, with more details.
        Err(error) if failure::is_of_connection(&error) => {}
        Err(error) => shared.fail(&error),
    }
}

/// The callbacks of the library.
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
        // Single servers come and go; only without any of them does nothing arrive. The library reports once
        // that all are down, though the reason may later turn out to be a denied login.
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
            // An assignment proves that the cluster granted access.
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
