//! Bringing tasks back that rest: before they are changed, and before their time comes.

use std::collections::BTreeSet;

use futures_util::lock::MutexGuard;
use windlass_core::{Millis, Task, TaskId, Timestamp, waits};

use super::{
    Batch, Line, LinePlace, ReadTask, Resident, WakePlace,
    entry::{Entry, may_have_been_handed_out},
    queue::Queues,
    rest::ready_act,
    scheduler::Scheduler,
    state::Inner,
};
use crate::port::{Change, ClaimRequest, Now, Quarantine, StoreError};

/// A read of what is not in memory: until this is dropped, nothing leaves that may have come to the disk since.
pub(super) struct Reading<'a> {
    store: &'a Resident,
    number: u64,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let scheduler = &mut self.store.inner().scheduler;
        scheduler.reads.end(self.number);
        scheduler.release();
    }
}

impl Resident {
    /// Begins a read of what is not in memory.
    pub(super) fn begin_read(&self) -> Reading<'_> {
        let number = self.inner().scheduler.reads.begin();
        Reading { store: self, number }
    }

    /// Keeps ended tasks from being deleted until this is dropped, if one of `changes` may be about an ended one: a rollout, or
    /// the parent of a child, rolls back tasks that have succeeded.
    pub(super) async fn keep_ended(&self, changes: &[Change]) -> Option<MutexGuard<'_, ()>> {
        let may_have_ended = self.inner().may_have_ended(changes);
        if may_have_ended { Some(self.deleting.lock().await) } else { None }
    }

    /// Brings those tasks back that `changes` change. They stay as long as the read that its caller has begun; a change to
    /// one that was on its way out conflicts if it leaves meanwhile.
    pub(super) async fn bring_back(&self, changes: &[Change], generation: u64) -> Result<(), StoreError> {
        if self.inner().missing(changes).is_empty() {
            return Ok(());
        }
        let _only = self.waking.lock().await;
        let missing: Vec<TaskId> = self.inner().missing(changes).into_iter().collect();
        if !missing.is_empty() {
            let rows = self.sink.load(&missing).await?;
            let mut inner = self.inner();
            // After a failed write nothing holds of it, and the changes conflict.
            if inner.is_still(generation) {
                for row in rows.into_iter().flatten() {
                    // A change to a damaged one conflicts, and what was decided on it is decided again.
                    inner.scheduler.wake(row, &self.quarantine)?;
                }
            }
        }
        Ok(())
    }

    /// Brings those back whose time comes within the horizon, as far as `limit` of what is due needs them and
    /// memory is to hold.
    pub(super) async fn wake_due(&self, now: Now, limit: usize) -> Result<(), StoreError> {
        let (horizon, page) = (now.wall + self.rest.horizon, self.rest.page);
        let wakes_more =
            |scheduler: &Scheduler| scheduler.wakes_more(now.wall, limit, self.rest.horizon, page);
        while wakes_more(&self.inner().scheduler) {
            let _only = self.waking.lock().await;
            let _reading = self.begin_read();
            let (generation, after, room) = {
                let inner = self.inner();
                let scheduler = &inner.scheduler;
                (scheduler.generation, scheduler.awake_until, scheduler.bodies.room())
            };
            let rows = self.sink.waking(after, horizon, page, room).await?;
            let moved = self.wake_page(rows, page, generation, |inner, last, _| {
                let until = last.unwrap_or(WakePlace::end_of(horizon));
                inner.scheduler.awake_until = inner.scheduler.awake_until.max(until);
            })?;
            if moved.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Brings back what stands next in lines that run short of what `claim requests` may take. Returns whether any did.
    pub(super) async fn refill(&self, claim_requests: &[ClaimRequest]) -> Result<bool, StoreError> {
        self.refill_lines(|queues| queues.short(claim_requests, self.rest.head)).await
    }

    /// Brings back what stands next in lines, as long as `next` names one. Returns whether it did, or waited for
    /// somebody else who did.
    pub(super) async fn refill_lines(
        &self,
        next: impl Fn(&Queues) -> Option<Line>,
    ) -> Result<bool, StoreError> {
        let page = self.rest.head.div_ceil(2);
        let mut waited = false;
        while next(&self.inner().scheduler.queues).is_some() {
            let _only = self.waking.lock().await;
            let reading = self.begin_read();
            let (generation, line, after, room) = {
                let inner = self.inner();
                let Some(line) = next(&inner.scheduler.queues) else { return Ok(true) };
                let after = inner.scheduler.queues.reach(&line);
                (inner.scheduler.generation, line, after, inner.scheduler.bodies.room())
            };
            let rows = self.sink.line_page(&line, after, page, room).await?;
            let moved = self.wake_page(rows, page, generation, |inner, last, damaged| {
                let reach = last.unwrap_or(LinePlace::LAST);
                inner.scheduler.queues.move_reach(&line, reach);
                inner.scheduler.queues.count_resting(&line, -damaged);
                self.give(inner, Batch { limits: [(line, reach)].into(), ..Batch::default() })
            })?;
            drop(reading);
            // Only what the disk knows about may be handed out: a start must know that it may have been.
            match moved {
                Some(ticket) => ticket.written().await?,
                None => break,
            }
            waited = true;
        }
        Ok(waited)
    }

    /// Wakes what was read in `generation` as the next `page` of an order, and has `move_on` say in the same breath
    /// up to where all is in memory: up to the last place of the page, or to the end when nothing follows. It is also
    /// given how many tasks were damaged: those are left behind. After a failed write nothing holds of it.
    fn wake_page<P: Ord, T>(
        &self,
        rows: Vec<(P, ReadTask)>,
        page: usize,
        generation: u64,
        move_on: impl FnOnce(&mut Inner, Option<P>, i64) -> T,
    ) -> Result<Option<T>, StoreError> {
        let is_last = rows.len() < page;
        let mut inner = self.inner();
        if !inner.is_still(generation) {
            return Ok(None);
        }
        let (mut last, mut damaged) = (None, 0);
        for (place, row) in rows {
            if !inner.scheduler.wake(row, &self.quarantine)? {
                damaged += 1;
            }
            last = last.max(Some(place));
        }
        Ok(Some(move_on(&mut inner, last.filter(|_| !is_last), damaged)))
    }
}

impl Inner {
    /// Whether the state is the one of this number, and holds.
    pub(super) fn is_still(&self, generation: u64) -> bool {
        !self.void && self.scheduler.generation == generation
    }

    /// Tasks that are changed, not new and not in memory.
    fn missing(&self, changes: &[Change]) -> BTreeSet<TaskId> {
        // One that begins in this batch is not on disk either; looking for it there is in vain and rare.
        changed(changes).filter(|id| !self.scheduler.active.contains_key(id)).collect()
    }

    /// Whether a task that is changed is not known to be open.
    fn may_have_ended(&self, changes: &[Change]) -> bool {
        let active = &self.scheduler.active;
        changed(changes).any(|id| active.get(&id).is_none_or(|entry| entry.task.is_ended()))
    }
}

/// Tasks that are changed and not new.
fn changed(changes: &[Change]) -> impl Iterator<Item = TaskId> {
    changes.iter().filter_map(|change| match change {
        Change::Task(change) if change.before > 0 => Some(change.task.id),
        _ => None,
    })
}

impl Scheduler {
    /// A read of the disk is over: what it may have missed is needed no more.
    fn release(&mut self) {
        self.submit_keys.release(&self.reads);
        self.unique.release(&self.reads);
        self.alarms.release(&self.reads);
        self.brought.release(&self.reads);
        self.depart();
    }

    /// A task that rests is in memory again. What is in memory already is newer. One that has ended is brought back
    /// where it is to change, as a child that is rolled back; if it does not, it leaves again. False = it is damaged, and
    /// stays where it is.
    fn wake(&mut self, row: ReadTask, quarantine: &Quarantine) -> Result<bool, StoreError> {
        let row = match row {
            Ok(row) => row,
            Err(damaged) => {
                let is_in_memory = self.active.contains_key(&damaged.id);
                quarantine.add(damaged);
                return Ok(is_in_memory);
            }
        };
        if self.active.contains_key(&row.id) {
            return Ok(true);
        }
        let (id, never_handed_out, is_body_away) = (row.id, row.never_handed_out, row.is_body_away);
        let task = row.into_task(|name, version| Some(self.flow(name, Some(version))?.flow));
        let Some(task) = quarantine.readable(id, task)? else { return Ok(false) };
        if task.is_ended() {
            let (id, version) = (task.id, task.state.events);
            self.enter(id, Entry::read(task, is_body_away, BTreeSet::new()));
            self.let_go(id, version);
        } else {
            self.wake_task(task, never_handed_out, is_body_away);
        }
        Ok(true)
    }

    fn wake_task(&mut self, task: Task, never_handed_out: bool, is_body_away: bool) {
        let (id, waits) = (task.id, waits(&task));
        let handed_out = if never_handed_out { BTreeSet::new() } else { may_have_been_handed_out(&task) };
        let mut entry = Entry::read(task, is_body_away, handed_out);
        entry.rests_on_disk = true;
        self.enter(id, entry);
        self.woken += 1;
        for wait in waits {
            if let Some((_, ready)) = ready_act(&wait) {
                self.queues.count_resting(&Line::of(ready), -1);
            }
            self.publish_wait(id, &wait);
        }
        self.shed(id);
    }

    /// Whether more is to be brought back: what is due by `now` and among the first `limit`, and a little that
    /// is due later.
    fn wakes_more(&self, now: Timestamp, limit: usize, horizon: Millis, page: usize) -> bool {
        if self.awake_until < WakePlace::end_of(now) {
            let known = self
                .due
                .iter()
                .take_while(|(at, task, _)| WakePlace { at: *at, task: *task } <= self.awake_until);
            return known.take(limit).count() < limit;
        }
        self.looks_ahead(page) && self.awake_until.at < now + Millis(horizon.0 / 2)
    }

    /// Whether there is room for what is due later.
    fn looks_ahead(&self, page: usize) -> bool {
        self.due.len() < page
    }

    /// In how long more may have to be brought back.
    pub(super) fn next_waking(&self, now: Timestamp, horizon: Millis, page: usize) -> Millis {
        let ahead = if self.looks_ahead(page) { horizon.0 / 2 } else { 0 };
        Millis((self.awake_until.at - now).0.saturating_sub(ahead))
    }
}
