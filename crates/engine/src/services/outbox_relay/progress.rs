//! How far the outbox was announced.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::{Bound, RangeBounds as _},
};

use windlass_core::{
    Millis, TaskId,
    planted::{Bug, is_planted},
};
use windlass_store::Announced;

use super::Next;

/// The pause until events that were refused are announced again. It doubles from time to time.
const RETRY_AFTER: Millis = Millis(100);
const RETRY_AFTER_MAX: Millis = Millis::from_secs(30);

/// The pause after a pass that brought nothing on, for each of its pages: each has to be read and decoded.
const REST_PER_PAGE: Millis = Millis(20);

/// How far the outbox was announced. A pass reads all of it, a page at a time.
#[derive(Default)]
pub(super) struct Progress {
    /// The last confirmed event of each task with a partly announced change: the outbox records whole changes only.
    /// Otherwise a broker that fails now and then would have to confirm a whole change in one go.
    confirmed: BTreeMap<TaskId, u64>,
    /// Tasks whose next event was refused.
    refused: BTreeMap<TaskId, Refusal>,
    pass: Pass,
    rests_until: Option<Millis>,
}

/// A pass so far.
pub(super) struct Pass {
    /// The next page has the tasks above this one.
    above: TaskId,
    pages: u64,
    /// Nothing was to be announced.
    pub(super) is_empty: bool,
    /// An event was confirmed.
    pub(super) is_confirmed: bool,
    /// Why an event was refused.
    pub(super) failure: Option<String>,
}

impl Default for Pass {
    fn default() -> Self {
        Self { above: TaskId::NONE, pages: 0, is_empty: true, is_confirmed: false, failure: None }
    }
}

struct Refusal {
    retry_at: Millis,
    pause: Millis,
}

impl Refusal {
    fn rests(&self, now: Millis) -> bool {
        now < self.retry_at || is_planted(Bug::RefusedNotRepeated)
    }
}

/// A page of the outbox.
pub(super) struct Page {
    /// Its last task, unless it is the last page.
    pub(super) last: Option<TaskId>,
    /// Nothing is to be announced.
    pub(super) is_empty: bool,
}

impl Progress {
    /// How long nothing must be announced.
    pub(super) fn rest(&self, now: Millis) -> Option<Millis> {
        self.rests_until.filter(|until| now < *until).map(|until| Millis(until.0 - now.0))
    }

    pub(super) fn above(&self) -> TaskId {
        self.pass.above
    }

    pub(super) fn is_in_pass(&self) -> bool {
        self.pass.above != TaskId::NONE
    }

    pub(super) fn is_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Ends the pass before its end. The next one begins at this time.
    pub(super) fn start_over(&mut self, at: Option<Millis>) {
        self.pass = Pass::default();
        self.rests_until = at;
    }

    /// Records that an event was confirmed. If its task was refused before, the others may be confirmed as well.
    pub(super) fn confirm(&mut self, task: TaskId, n: u64, completes: bool) {
        self.pass.is_confirmed = true;
        if completes {
            self.confirmed.remove(&task);
        } else {
            self.confirmed.insert(task, n);
        }
        if self.refused.remove(&task).is_some() {
            self.refused.values_mut().for_each(|refusal| refusal.retry_at = Millis(0));
        }
    }

    /// Records that an event was refused: those of its task rest.
    pub(super) fn refuse(&mut self, task: TaskId, error: String, now: Millis) {
        self.pass.failure = Some(error);
        let refusal = self.refused.entry(task).or_insert(Refusal { retry_at: now, pause: RETRY_AFTER });
        refusal.retry_at = Millis(now.0 + refusal.pause.0);
        refusal.pause = Millis(refusal.pause.0 * 2).min(RETRY_AFTER_MAX);
    }

    /// Drops events that were confirmed, and those of tasks that rest. `waiting` has those of all tasks above one, up to
    /// one: other tasks there were announced or deleted. Returns the changes of which all events were confirmed: the store
    /// failed when they were to leave the outbox.
    pub(super) fn leave_out(
        &mut self,
        waiting: &mut BTreeMap<TaskId, VecDeque<Next>>,
        (above, up_to): (TaskId, Option<TaskId>),
        now: Millis,
    ) -> Vec<Announced> {
        let behind = (Bound::Excluded(above), up_to.map_or(Bound::Unbounded, Bound::Included));
        let is_gone = |task: &TaskId| behind.contains(task) && !waiting.contains_key(task);
        self.confirmed.retain(|task, _| !is_gone(task));
        self.refused.retain(|task, _| !is_gone(task));
        let mut announced = Vec::new();
        for (task, up_to) in self.confirmed.range(behind) {
            let Some(events) = waiting.get_mut(task) else { continue };
            while let Some(confirmed) = events.pop_front_if(|next| next.n <= *up_to) {
                announced.extend(confirmed.completes);
            }
        }
        waiting.retain(|_, events| !events.is_empty());
        for (task, _) in self.refused.range(behind).filter(|(_, refusal)| refusal.rests(now)) {
            waiting.remove(task);
        }
        announced
    }

    /// Ends a page. The pass goes on if it was not the last one.
    pub(super) fn end_page(&mut self, page: &Page) {
        self.pass.is_empty &= page.is_empty;
        self.pass.above = page.last.unwrap_or(TaskId::NONE);
        self.pass.pages += 1;
    }

    /// Ends the pass.
    pub(super) fn end_pass(&mut self, now: Millis) -> Pass {
        let pass = std::mem::take(&mut self.pass);
        let rest = Millis(REST_PER_PAGE.0 * pass.pages);
        self.rests_until = (!pass.is_empty && !pass.is_confirmed).then_some(Millis(now.0 + rest.0));
        pass
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::{Ending, Event, EventKind, Timestamp};

    use super::*;

    #[test]
    fn a_change_that_was_confirmed_leaves_the_outbox_even_if_that_failed_before() {
        let (task, mut progress) = (TaskId(7), Progress::default());
        // Of two changes, with two events each, three events are confirmed. Then the store fails.
        for n in 1..=3 {
            progress.confirm(task, n, n == 2);
        }
        // The page ends behind the first change.
        let first = Announced { task, after: 0 };
        let event = Event { at: Timestamp(0), kind: EventKind::TaskEnded(Ending::Succeeded) };
        let next = |n| Next { n, event: event.clone(), completes: (n == 2).then_some(first) };
        let mut waiting: BTreeMap<_, VecDeque<_>> = [(task, (1..=2).map(next).collect())].into();
        let announced = progress.leave_out(&mut waiting, (TaskId::NONE, Some(task)), Millis(0));
        assert_eq!(announced, [first]);
        assert!(waiting.is_empty(), "nothing of it is announced again");
    }
}
