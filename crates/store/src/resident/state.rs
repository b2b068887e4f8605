//! What a resident store has in memory, and how a batch gets from there to the disk.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
};

use futures_channel::oneshot;
use windlass_core::{
    Millis, TaskId, Timestamp,
    planted::{Bug, is_planted},
};

use super::{
    Batch, ReadTask, RestPolicy, Room, RowSink,
    claims::Held,
    damaged_locks::held_at_rest,
    entry::may_have_been_handed_out,
    scheduler::Scheduler,
    ticket::{Ticket, lost},
    view::{OnDisk, View},
};
use crate::memory::Servers;
use crate::{
    port::{ADOPTION_GRACE, Change, Loaded, Now, Outcome, Quarantine, StoreError},
    rules::BuiltOn,
};

/// A store with a single owner: what is active lives in memory, a sink writes it down.
pub struct Resident {
    pub(super) sink: Arc<dyn RowSink>,
    pub(super) token_key: [u8; 32],
    /// Tasks whose rows were met and cannot be read.
    pub(super) quarantine: Quarantine,
    latest_at: Timestamp,
    inner: Mutex<Inner>,
    /// Only one commit at a time builds the scheduler again.
    rebuilding: futures_util::lock::Mutex<()>,
    pub(super) rest: RestPolicy,
    /// Only one at a time brings tasks back that rest.
    pub(super) waking: futures_util::lock::Mutex<()>,
    /// Held while ended tasks are deleted, and by a commit that changes one that may have ended, from when it is read until the
    /// change is staged: what is read is still there when the change is written.
    pub(super) deleting: futures_util::lock::Mutex<()>,
    /// There is one server at a time, and nothing of it is written: the next one finds that it is gone.
    servers: Mutex<Servers>,
}

pub(super) struct Inner {
    pub(super) scheduler: Scheduler,
    /// Batches given to the sink and not published yet, oldest first.
    under_way: VecDeque<UnderWay>,
    /// A write failed: what was staged is void.
    pub(super) void: bool,
    /// When attempts that were ready before the start may be handed out.
    pub(super) grace: Grace,
    /// The next claim number. It begins with the boot epoch, so it grows over restarts as well.
    pub(super) next_claim: u64,
    /// The latest time that was passed in.
    latest: Now,
}

/// How long attempts that were ready before a start, or before a failed write, wait for workers that have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grace {
    /// Nothing waits.
    Over,
    /// It begins when the time is next known.
    Begins,
    /// Until then.
    Until(Millis),
}

struct UnderWay {
    batch: Arc<Batch>,
    /// Claims that ended by it: their workers have the attempts still when it is not written.
    dropped: Vec<(TaskId, Held)>,
    state: Arc<AtomicU8>,
    /// By it, or by one before it, a task may go on after its end.
    goes_on_after_end: bool,
}

const WRITING: u8 = 0;
const WRITTEN: u8 = 1;
const FAILED: u8 = 2;

/// Claims of one boot; the epoch stands above them.
const CLAIM_BITS: u32 = 40;

/// Fences of services of one boot; the epoch stands above them.
const FENCE_BITS: u32 = 32;

impl Resident {
    /// Reads what is active from `sink`. `now` begins the grace in which workers name what they have.
    ///
    /// # Errors
    /// When the sink cannot be read, or holds what cannot be understood.
    pub async fn open(sink: Arc<dyn RowSink>, now: Now) -> Result<Self, StoreError> {
        Self::open_with(sink, now, RestPolicy::default()).await
    }

    /// As [`Resident::open`], with tasks at rest as `rest` says.
    ///
    /// # Errors
    /// When the sink cannot be read, or holds what cannot be understood.
    pub async fn open_with(sink: Arc<dyn RowSink>, now: Now, rest: RestPolicy) -> Result<Self, StoreError> {
        let mut recovered = sink.recover(Room::of(rest.bodies)).await?;
        let token_key = recovered.token_key;
        let next_claim = (u64::from(recovered.epoch) << CLAIM_BITS) + 1;
        let latest_at = recovered.latest_at;
        let epoch = recovered.epoch;
        let claims = std::mem::take(&mut recovered.claims);
        let quarantine = Quarantine::default();
        let at_rest = held_at_rest(&*sink, &recovered).await?;
        let scheduler = Scheduler::recover(recovered, &at_rest, &quarantine, &rest)?;
        let latest_at = latest_at.max(scheduler.latest_at());
        let under_way = VecDeque::new();
        let mut inner =
            Inner { scheduler, under_way, void: false, grace: Grace::Begins, next_claim, latest: now };
        inner.restore(claims, now);
        inner.end_grace(now);
        Ok(Self {
            sink,
            token_key,
            quarantine,
            latest_at,
            inner: Mutex::new(inner),
            rebuilding: futures_util::lock::Mutex::new(()),
            rest,
            waking: futures_util::lock::Mutex::new(()),
            deleting: futures_util::lock::Mutex::new(()),
            servers: Mutex::new(Servers::after_fence(u64::from(epoch) << FENCE_BITS)),
        })
    }

    /// Begins the grace of the start now, if it is not over. To be called when the server is about to listen: reading
    /// the rows may have taken longer than the grace lasts, and no worker could name what it runs in that time.
    pub fn begin_grace(&self, now: Now) {
        let mut inner = self.inner();
        if !inner.scheduler.recovered.is_empty() {
            inner.grace = Grace::Begins;
            inner.end_grace(now);
        }
    }

    /// The latest time known to be written: the clock must not be behind it.
    pub fn latest_at(&self) -> Timestamp {
        self.latest_at
    }

    pub(super) fn servers(&self) -> MutexGuard<'_, Servers> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state, with everything published that has reached the disk.
    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.settle();
        inner
    }

    /// The state that holds now, by its number. After a failed write it forgets what was staged and reads what
    /// is on disk.
    pub(super) async fn current_generation(&self) -> Result<u64, StoreError> {
        if self.inner().void {
            self.rebuild().await?;
        }
        Ok(self.inner().scheduler.generation)
    }

    /// Waits until everything is on disk that was staged by now, in `generation`.
    pub(super) async fn settled(&self, generation: u64) -> Result<(), StoreError> {
        let (_, ticket) = self.stage(Vec::new(), generation, &OnDisk::default());
        if let Some(ticket) = ticket {
            ticket.written().await?;
        }
        if self.inner().scheduler.generation == generation { Ok(()) } else { Err(lost()) }
    }

    async fn rebuild(&self) -> Result<(), StoreError> {
        let _only = self.rebuilding.lock().await;
        if !self.inner().void {
            return Ok(());
        }
        let recovered = self.sink.recover(Room::of(self.rest.bodies)).await?;
        let next_claim = (u64::from(recovered.epoch) << CLAIM_BITS) + 1;
        let at_rest = held_at_rest(&*self.sink, &recovered).await?;
        let mut scheduler = Scheduler::recover(recovered, &at_rest, &self.quarantine, &self.rest)?;
        let mut inner = self.inner();
        let under_way = std::mem::take(&mut inner.under_way);
        let before = std::mem::take(&mut inner.scheduler);
        scheduler.take_over(before, under_way.into_iter().flat_map(|batch| batch.dropped));
        inner.scheduler = scheduler;
        inner.next_claim = inner.next_claim.max(next_claim);
        inner.grace = Grace::Begins;
        inner.void = false;
        Ok(())
    }

    /// The tasks with these ids that are in memory.
    pub(super) fn loaded(&self, ids: &[TaskId]) -> Vec<Option<Loaded>> {
        let inner = self.inner();
        ids.iter().map(|id| inner.scheduler.loaded(*id)).collect()
    }

    /// Stages `changes` and gives those that may be written to the sink. `on_disk` was read in `generation`; where that is
    /// over, nothing holds of it.
    pub(super) fn stage(
        &self,
        changes: Vec<Change>,
        generation: u64,
        on_disk: &OnDisk,
    ) -> (Vec<Outcome>, Option<Ticket>) {
        let mut inner = self.inner();
        if inner.void {
            return (Vec::new(), Some(Ticket::failed()));
        }
        if inner.scheduler.generation != generation {
            return (vec![Outcome::Conflict; changes.len()], None);
        }
        let mut outcomes = Vec::with_capacity(changes.len());
        let mut batch = Vec::with_capacity(changes.len());
        let mut built_on = BuiltOn::default();
        for change in changes {
            let scheduler = &mut inner.scheduler;
            let view = View { scheduler, on_disk };
            let outcome = built_on.decide(&change, &view, &view);
            if outcome == Outcome::Committed {
                batch.extend(scheduler.bring_along(&change));
                scheduler.stage(&change);
                if is_planted(Bug::HandedOutEarly) {
                    scheduler.publish(&change);
                }
                batch.push(change);
            }
            outcomes.push(outcome);
        }
        if batch.is_empty() && inner.under_way.is_empty() {
            return (outcomes, None);
        }
        let mut batch = Batch::from(batch);
        inner.scheduler.lay_down(&mut batch, &self.rest);
        (outcomes, Some(self.give(&mut inner, batch)))
    }

    /// Gives a batch that is staged to the sink.
    pub(super) fn give(&self, inner: &mut Inner, mut batch: Batch) -> Ticket {
        batch.claims = inner.scheduler.claims.take_rows();
        let batch = Arc::new(batch);
        let dropped = std::mem::take(&mut inner.scheduler.dropped);
        let state = Arc::new(AtomicU8::new(WRITING));
        let (sender, receiver) = oneshot::channel();
        inner.under_way.push_back(UnderWay {
            batch: batch.clone(),
            dropped,
            state: state.clone(),
            goes_on_after_end: false,
        });
        // Still under the lock: batches reach the sink in the order they were staged.
        self.sink.write(
            batch,
            Box::new(move |result| {
                state.store(if result.is_ok() { WRITTEN } else { FAILED }, Ordering::Release);
                // Nobody waits any more when the commit's future was dropped; the state reports it nevertheless.
                let _ = sender.send(result);
            }),
        );
        Ticket::new(receiver)
    }

    /// A task that rests or has ended, from its row as it was read in `generation`; nothing where it is damaged.
    pub(super) fn loaded_row(&self, row: ReadTask, generation: u64) -> Result<Option<Loaded>, StoreError> {
        let row = match row {
            Ok(row) => row,
            Err(damaged) => {
                self.quarantine.add(damaged);
                return Ok(None);
            }
        };
        let inner = self.inner();
        let flow = |name: &str, version| inner.scheduler.flow_of_row(name, version).map(|stored| stored.flow);
        let (id, never_handed_out) = (row.id, row.never_handed_out);
        let Some(task) = self.quarantine.readable(id, row.into_task(flow))? else { return Ok(None) };
        let handed_out = if never_handed_out { BTreeSet::new() } else { may_have_been_handed_out(&task) };
        Ok(Some(Loaded { handed_out, generation, ..Loaded::untouched(Arc::new(task)) }))
    }
}

impl Inner {
    /// A task may go on after its end by what was staged last.
    pub(super) fn note_after_end(&mut self) {
        if let Some(last) = self.under_way.back_mut() {
            last.goes_on_after_end = true;
        }
    }

    /// Whether a task may go on after its end by what is not on disk yet.
    pub(super) fn goes_on_after_end(&self) -> bool {
        self.under_way.iter().any(|batch| batch.goes_on_after_end)
    }

    /// Publishes batches that are on disk, in order.
    fn settle(&mut self) {
        while let Some(front) = self.under_way.front() {
            match front.state.load(Ordering::Acquire) {
                WRITING => return,
                WRITTEN => {
                    let batch = front.batch.clone();
                    self.under_way.pop_front();
                    for change in &batch.changes {
                        self.scheduler.publish(change);
                    }
                    for (line, limit) in &batch.limits {
                        self.scheduler.queues.move_limit(line, *limit);
                    }
                    self.scheduler.let_go_resting(&batch);
                    self.scheduler.depart();
                }
                _ => {
                    self.void = true;
                    return;
                }
            }
        }
    }

    pub(super) fn end_grace(&mut self, now: Now) {
        if self.grace == Grace::Begins {
            let grace = if is_planted(Bug::NoAdoptionGrace) { Millis(0) } else { ADOPTION_GRACE };
            // Every ready attempt may have its holder again by now, as queue publishers have at a start: then nothing waits.
            let grace = if self.scheduler.recovered.is_empty() { Millis(0) } else { grace };
            self.grace = Grace::Until(Millis(now.mono.0 + grace.0));
        }
        if matches!(self.grace, Grace::Until(until) if until <= now.mono) {
            self.grace = Grace::Over;
            self.scheduler.end_grace();
        }
    }

    /// The time by now, as far as it was passed in: a call may have waited for a disk since it began. What it hands out
    /// then must not have used up its time already.
    pub(super) fn by_now(&mut self, now: Now) -> Now {
        if now.mono >= self.latest.mono {
            self.latest = now;
        }
        self.latest
    }
}
