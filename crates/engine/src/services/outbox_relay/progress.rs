//! How far the outbox was announced, and what rests.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Bound,
};

use windlass_core::{
    Millis, TaskId,
    planted::{Bug, is_planted},
};
use windlass_store::Announced;

use super::page::Next;
use crate::services::trouble::{RETRY_AFTER, RETRY_AFTER_MAX};

/// The longest pause of a task whose event is refused.
const REFUSED_MAX: Millis = Millis::from_secs(30);

/// The pause after a page of which nothing was confirmed and the events of several tasks were refused: those of the next page
/// probably would be, too.
const ALL_REFUSED: Millis = Millis::from_secs(1);

/// How often all refused events are tried again because one of them was confirmed.
const FREE_EVERY: Millis = Millis::from_secs(5);

/// The pause after a pass for each page of which nothing was sent, because each has to be read and decoded.
const REST_PER_PAGE: Millis = Millis(20);

/// The number of pages with something to send after which the outbox is read from its start again. Otherwise a pass would not
/// end while new tasks keep coming, and what happens to earlier tasks later would wait.
const PAGES_MAX: u64 = 20;

/// How far the outbox was announced. A pass reads it from its start, a page at a time.
#[derive(Default)]
pub(super) struct Progress {
    /// The last confirmed event of each task with a partly announced change: the outbox records whole changes only.
    /// Otherwise a broker that fails now and then would have to confirm a whole change in one go.
    confirmed: BTreeMap<TaskId, u64>,
    /// The subscribers that have confirmed the next event of a task, by their numbers.
    told: BTreeMap<TaskId, (u64, BTreeSet<usize>)>,
    /// Tasks whose next event was refused.
    refused: BTreeMap<TaskId, Refusal>,
    /// Tasks that were refused before this time do not rest any longer.
    freed_at: Option<Millis>,
    pass: Pass,
    page: PageCounts,
    rests_until: Option<Millis>,
    /// How often in a row a subscriber could not be reached.
    unreachable: u32,
    /// The last pass left events that could be announced.
    goes_on: bool,
}

struct Refusal {
    at: Millis,
    pause: Millis,
}

/// A pass so far.
pub(super) struct Pass {
    /// The next page has the tasks above this one.
    above: TaskId,
    pages: u64,
    /// The number of pages of which nothing was sent.
    idle_pages: u64,
    /// Nothing was to be announced.
    pub(super) is_empty: bool,
    /// An event was confirmed.
    pub(super) is_confirmed: bool,
    /// Events that could be announced were left for the next pass.
    is_cut: bool,
}

impl Default for Pass {
    fn default() -> Self {
        let (above, is_empty) = (TaskId::NONE, true);
        Self { above, pages: 0, idle_pages: 0, is_empty, is_confirmed: false, is_cut: false }
    }
}

/// The events of a page so far, by their outcomes.
#[derive(Default)]
struct PageCounts {
    confirmed: u64,
    refused: u64,
}

/// The end of a page.
pub(super) struct PageEnd {
    /// Its last task, unless it is the last page.
    pub(super) last: Option<TaskId>,
    /// Nothing of it is to be announced.
    pub(super) is_empty: bool,
    /// Events of it that could be announced were left, because the round took long.
    pub(super) is_cut: bool,
}

impl Progress {
    /// How long nothing must be announced.
    pub(super) fn rest(&self, now: Millis) -> Option<Millis> {
        self.rests_until.filter(|until| now < *until).map(|until| Millis(until.0 - now.0))
    }

    pub(super) fn above(&self) -> TaskId {
        self.pass.above
    }

    /// Whether there is more to announce at once.
    pub(super) fn goes_on(&self) -> bool {
        self.pass.above != TaskId::NONE || self.goes_on
    }

    pub(super) fn is_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// A subscriber cannot be reached. After a pause the outbox is read from its start.
    pub(super) fn start_over(&mut self, now: Millis) {
        let pause = RETRY_AFTER.doubled(self.unreachable).min(RETRY_AFTER_MAX);
        self.unreachable += 1;
        (self.pass, self.page, self.goes_on) = (Pass::default(), PageCounts::default(), false);
        self.rests_until = Some(Millis(now.0 + pause.0));
    }

    /// Whether a subscriber has confirmed an event that others have not.
    pub(super) fn has_told(&self, task: TaskId, n: u64, subscriber: usize) -> bool {
        self.told.get(&task).is_some_and(|(of, by)| *of == n && by.contains(&subscriber))
    }

    /// Records that a subscriber has confirmed an event.
    pub(super) fn note_told(&mut self, task: TaskId, n: u64, subscriber: usize) {
        let (of, by) = self.told.entry(task).or_default();
        if *of != n {
            (*of, *by) = (n, BTreeSet::new());
        }
        by.insert(subscriber);
    }

    /// Records that all have confirmed an event. If its task was refused before, others may be confirmed as well.
    pub(super) fn confirm(&mut self, task: TaskId, n: u64, completes: bool, now: Millis) {
        self.page.confirmed += 1;
        self.pass.is_confirmed = true;
        self.unreachable = 0;
        self.told.remove(&task);
        if completes {
            self.confirmed.remove(&task);
        } else {
            self.confirmed.insert(task, n);
        }
        let is_time = self.freed_at.is_none_or(|at| now.0 >= at.0 + FREE_EVERY.0);
        if self.refused.remove(&task).is_some() && is_time {
            self.freed_at = Some(now);
        }
    }

    /// Records that an event was refused: those of its task rest.
    pub(super) fn refuse(&mut self, task: TaskId, now: Millis) {
        self.page.refused += 1;
        let pause = self.refused.get(&task).map_or(RETRY_AFTER, |before| before.pause.doubled(1));
        self.refused.insert(task, Refusal { at: now, pause: pause.min(REFUSED_MAX) });
    }

    /// Begins a page: drops events that were confirmed, and those of tasks that rest. `waiting` has those of all tasks above
    /// one, up to one: other tasks there were announced or deleted. Returns the changes of which all events were confirmed:
    /// the store failed when they were to leave the outbox.
    pub(super) fn begin_page(
        &mut self,
        waiting: &mut BTreeMap<TaskId, VecDeque<Next>>,
        (above, up_to): (TaskId, Option<TaskId>),
        now: Millis,
    ) -> Vec<Announced> {
        let behind = (Bound::Excluded(above), up_to.map_or(Bound::Unbounded, Bound::Included));
        self.confirmed.extract_if(behind, |task, _| !waiting.contains_key(task)).for_each(drop);
        self.refused.extract_if(behind, |task, _| !waiting.contains_key(task)).for_each(drop);
        self.told.extract_if(behind, |task, _| !waiting.contains_key(task)).for_each(drop);
        let mut announced = Vec::new();
        for (task, up_to) in self.confirmed.range(behind) {
            let Some(events) = waiting.get_mut(task) else { continue };
            while let Some(confirmed) = events.pop_front_if(|next| next.n <= *up_to) {
                announced.extend(confirmed.completes);
            }
        }
        waiting.retain(|_, events| !events.is_empty());
        let freed_at = self.freed_at;
        let rests = |refusal: &Refusal| {
            let is_over =
                now.0 >= refusal.at.0 + refusal.pause.0 || freed_at.is_some_and(|at| refusal.at < at);
            !is_over || is_planted(Bug::RefusedNotRepeated)
        };
        for (task, _) in self.refused.range(behind).filter(|(_, refusal)| rests(refusal)) {
            waiting.remove(task);
        }
        announced
    }

    /// Ends a page. Returns the pass if this was its last page.
    pub(super) fn end_page(&mut self, end: &PageEnd, now: Millis) -> Option<Pass> {
        let PageCounts { confirmed, refused } = std::mem::take(&mut self.page);
        let pass = &mut self.pass;
        pass.pages += 1;
        pass.idle_pages += u64::from(confirmed + refused == 0);
        pass.is_empty &= end.is_empty;
        pass.is_cut |= end.is_cut;
        let is_last = pass.pages - pass.idle_pages >= PAGES_MAX;
        pass.above = end.last.filter(|_| !is_last).unwrap_or(TaskId::NONE);
        self.rests_until = (confirmed == 0 && refused > 1).then(|| Millis(now.0 + ALL_REFUSED.0));
        if pass.above != TaskId::NONE {
            return None;
        }
        let pass = std::mem::take(&mut self.pass);
        self.goes_on = pass.is_confirmed && (pass.pages > 1 || pass.is_cut);
        let rest = Millis(now.0 + REST_PER_PAGE.0 * pass.idle_pages);
        self.rests_until = self.rests_until.max(Some(rest).filter(|_| pass.idle_pages > 0));
        Some(pass)
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
            progress.confirm(task, n, n == 2, Millis(0));
        }
        // The page ends behind the first change.
        let first = Announced { task, after: 0 };
        let event = Event { at: Timestamp(0), kind: EventKind::TaskEnded(Ending::Succeeded) };
        let next = |n| Next { n, event: event.clone(), completes: (n == 2).then_some(first) };
        let mut waiting: BTreeMap<_, VecDeque<_>> = [(task, (1..=2).map(next).collect())].into();
        let announced = progress.begin_page(&mut waiting, (TaskId::NONE, Some(task)), Millis(0));
        assert_eq!(announced, [first]);
        assert!(waiting.is_empty(), "nothing of it is announced again");
    }

    fn end(last: u128, is_cut: bool) -> PageEnd {
        PageEnd { last: Some(TaskId(last)).filter(|last| *last != TaskId::NONE), is_empty: false, is_cut }
    }

    #[test]
    fn a_pass_ends_although_new_tasks_keep_coming() {
        let mut progress = Progress::default();
        let mut pages = 0;
        for page in 1..=100 {
            pages = page;
            progress.begin_page(&mut BTreeMap::new(), (TaskId(page), Some(TaskId(page + 1))), Millis(0));
            // Of the first thirty pages nothing can be sent.
            if page > 30 {
                progress.confirm(TaskId(page + 1), 1, true, Millis(0));
            }
            if progress.end_page(&end(page + 1, false), Millis(0)).is_some() {
                break;
            }
        }
        assert_eq!(pages, 50);
        assert!(progress.goes_on(), "there is more");
        assert_eq!(progress.rest(Millis(0)), Some(Millis(600)), "for the thirty pages");
    }

    #[test]
    fn a_page_of_which_all_is_refused_is_followed_by_a_pause() {
        let mut progress = Progress::default();
        for (refused, confirmed, rest) in [(1, 0, None), (2, 1, None), (2, 0, Some(ALL_REFUSED))] {
            progress.begin_page(&mut BTreeMap::new(), (TaskId::NONE, None), Millis(7));
            (0..refused).for_each(|task| progress.refuse(TaskId(task + 1), Millis(7)));
            (0..confirmed).for_each(|task| progress.confirm(TaskId(task + 90), 1, true, Millis(7)));
            progress.end_page(&end(0, false), Millis(7));
            assert_eq!(progress.rest(Millis(7)), rest, "{refused} refused, {confirmed} confirmed");
        }
    }

    #[test]
    fn a_pass_is_followed_by_another_one_if_events_were_left() {
        for (is_cut, confirms, goes_on) in [(true, true, true), (true, false, false), (false, true, false)] {
            let mut progress = Progress::default();
            progress.begin_page(&mut BTreeMap::new(), (TaskId::NONE, None), Millis(0));
            if confirms {
                progress.confirm(TaskId(7), 1, false, Millis(0));
            }
            progress.end_page(&end(0, is_cut), Millis(0));
            assert_eq!(progress.goes_on(), goes_on, "{is_cut} {confirms}");
        }
    }

    #[test]
    fn a_subscriber_that_cannot_be_reached_is_tried_after_growing_pauses() {
        let mut progress = Progress::default();
        let mut rest = || {
            progress.start_over(Millis(0));
            progress.rest(Millis(0)).unwrap().0
        };
        assert_eq!([(); 8].map(|()| rest()), [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        progress.confirm(TaskId(1), 1, true, Millis(0));
        progress.start_over(Millis(0));
        assert_eq!(progress.rest(Millis(0)), Some(RETRY_AFTER));
    }

    #[test]
    fn who_was_refused_rests_until_another_one_is_confirmed() {
        let mut progress = Progress::default();
        let tasks: Vec<TaskId> = (1..=3).map(TaskId).collect();
        let event = Event { at: Timestamp(0), kind: EventKind::TaskEnded(Ending::Succeeded) };
        let ready = |progress: &mut Progress, at: u64| {
            let next = || VecDeque::from([Next { n: 1, event: event.clone(), completes: None }]);
            let mut waiting: BTreeMap<_, _> = tasks.iter().map(|task| (*task, next())).collect();
            progress.begin_page(&mut waiting, (TaskId::NONE, None), Millis(at));
            waiting.into_keys().collect::<Vec<_>>()
        };
        for at in [0, 100, 300, 700] {
            assert_eq!(ready(&mut progress, at), tasks, "at {at}");
            tasks.iter().for_each(|task| progress.refuse(*task, Millis(at)));
            assert_eq!(ready(&mut progress, at + 1), []);
        }
        progress.confirm(tasks[1], 1, true, Millis(701));
        assert_eq!(ready(&mut progress, 702), tasks);
        tasks.iter().for_each(|task| progress.refuse(*task, Millis(702)));
        progress.confirm(tasks[1], 1, true, Millis(800));
        assert_eq!(ready(&mut progress, 900), [tasks[1]], "not each time");
    }
}
