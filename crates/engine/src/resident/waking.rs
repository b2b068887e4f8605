//! Bringing tasks back that rest: before they are changed, and before their time comes.

use std::{collections::BTreeSet, sync::Arc};

use windlass_core::{Millis, Task, TaskId, Timestamp, waits};

use super::{
    Batch, Line, LinePlace, Resident, TaskRow, WakePlace,
    queue::Queues,
    rest::ready_act,
    scheduler::{Entry, Scheduler, may_have_been_handed_out},
    state::Inner,
};
use crate::ports::{Change, Now, StoreError, Wish};

/// A read of what is not in memory: until this is dropped, nothing leaves that is in memory or comes back.
pub(super) struct Reading<'a> {
    store: &'a Resident,
    /// Nothing when a batch ends it.
    number: Option<u64>,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let scheduler = &mut self.store.inner().scheduler;
            scheduler.departures.end_read(number);
            scheduler.depart();
        }
    }
}

impl Resident {
    /// Begins a read of what is not in memory.
    pub(super) fn begin_read(&self) -> Reading<'_> {
        let number = self.inner().scheduler.departures.begin_read();
        Reading { store: self, number: Some(number) }
    }

    /// Brings those tasks back that `changes` change. They stay until the guard is dropped. Of what is not in
    /// memory then, there is no active task.
    pub(super) async fn bring_back(
        &self,
        changes: &[Change],
        generation: u64,
    ) -> Result<Reading<'_>, StoreError> {
        let reading = self.begin_read();
        if self.inner().missing(changes).is_empty() {
            return Ok(reading);
        }
        let _only = self.waking.lock().await;
        let missing: Vec<TaskId> = self.inner().missing(changes).into_iter().collect();
        if !missing.is_empty() {
            let rows = self.sink.load(&missing).await?;
            let mut inner = self.inner();
            // After a failed write nothing holds of it, and the changes conflict.
            if inner.is_still(generation) {
                inner.scheduler.wake(rows.into_iter().flatten())?;
            }
        }
        Ok(reading)
    }

    /// Brings those back whose time comes within the horizon, as far as `limit` of what is due needs them and
    /// memory is to hold.
    pub(super) async fn wake_due(&self, now: Now, limit: usize) -> Result<(), StoreError> {
        let horizon = now.wall + self.rest.horizon;
        while self.inner().scheduler.wakes_more(now.wall, limit, self.rest.horizon, self.rest.page) {
            let _reading = self.begin_read();
            let _only = self.waking.lock().await;
            let (generation, after) = {
                let inner = self.inner();
                (inner.scheduler.generation, inner.scheduler.awake_until)
            };
            let rows = self.sink.waking(after, horizon, self.rest.page).await?;
            let is_whole = rows.len() < self.rest.page;
            let mut inner = self.inner();
            if !inner.is_still(generation) {
                return Ok(());
            }
            let last = rows.last().map_or(after, |(place, _)| *place);
            inner.scheduler.wake(rows.into_iter().map(|(_, row)| row))?;
            let until = if is_whole { WakePlace::end_of(horizon) } else { last };
            inner.scheduler.awake_until = inner.scheduler.awake_until.max(until);
        }
        Ok(())
    }
}

impl Resident {
    /// Brings back what stands next in lines that run short of what `wishes` may take.
    pub(super) async fn refill(&self, wishes: &[Wish]) -> Result<(), StoreError> {
        self.refill_lines(|queues| queues.short(wishes, self.rest.head)).await
    }

    /// Brings back what stands next in lines, as long as `next` names one.
    pub(super) async fn refill_lines(
        &self,
        next: impl Fn(&Queues) -> Option<Line>,
    ) -> Result<(), StoreError> {
        loop {
            let Some(line) = next(&self.inner().scheduler.queues) else { return Ok(()) };
            let mut reading = self.begin_read();
            let _only = self.waking.lock().await;
            let (generation, after) = {
                let inner = self.inner();
                (inner.scheduler.generation, inner.scheduler.queues.limit(&line))
            };
            let page = self.rest.head.div_ceil(2);
            let rows = self.sink.line_page(&line, after, page).await?;
            let is_whole = rows.len() < page;
            let ticket = {
                let mut inner = self.inner();
                if !inner.is_still(generation) {
                    return Ok(());
                }
                let last = rows.last().map(|(place, _)| *place);
                inner.scheduler.wake(rows.into_iter().map(|(_, row)| row))?;
                let limit = last.filter(|_| !is_whole).unwrap_or(LinePlace::LAST);
                let limits = [(line, limit)].into();
                // What the page does not have stays until the limit holds, though this future be dropped.
                let number = reading.number.take();
                self.give(&mut inner, Batch { limits, ..Batch::default() }, number)
            };
            // Only what the disk knows about may be handed out: a start must know that it may have been.
            ticket.written().await?;
            drop(self.inner());
        }
    }
}

impl Inner {
    /// Whether the state is the one of this number, and holds.
    fn is_still(&self, generation: u64) -> bool {
        !self.void && self.scheduler.generation == generation
    }

    /// Tasks that are changed, not new and not in memory.
    fn missing(&self, changes: &[Change]) -> BTreeSet<TaskId> {
        let changed = changes.iter().filter_map(|change| match change {
            Change::Task(change) if change.before > 0 => Some(change.task.id),
            _ => None,
        });
        // One that begins in this batch is not on disk either; looking for it there is in vain and rare.
        changed.filter(|id| !self.scheduler.active.contains_key(id)).collect()
    }
}

impl Scheduler {
    /// Tasks that rest are in memory again. What is in memory already is newer, and what has ended is not
    /// brought back.
    fn wake(&mut self, rows: impl Iterator<Item = TaskRow>) -> Result<(), StoreError> {
        for row in rows {
            if self.active.contains_key(&row.id) {
                continue;
            }
            let never_handed_out = row.never_handed_out;
            let task = row.into_task(|name, version| Some(self.flow(name, Some(version))?.flow))?;
            if task.is_ended() {
                continue;
            }
            self.wake_task(task, never_handed_out);
        }
        Ok(())
    }

    fn wake_task(&mut self, task: Task, never_handed_out: bool) {
        let (id, waits) = (task.id, waits(&task));
        let handed_out = if never_handed_out { BTreeSet::new() } else { may_have_been_handed_out(&task) };
        let mut entry = Entry::new(Arc::new(task), handed_out);
        entry.rests_on_disk = true;
        self.active.insert(id, entry);
        self.woken += 1;
        for wait in waits {
            if let Some((_, ready)) = ready_act(&wait) {
                self.queues.count_resting(&Line::of(ready), -1);
            }
            self.publish_wait(id, &wait);
        }
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
