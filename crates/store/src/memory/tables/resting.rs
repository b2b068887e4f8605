//! Tasks at rest: which they are, when they are to be woken, and where they stand in line.

use std::{collections::BTreeSet, ops::Bound, sync::Arc};

use windlass_core::{Task, TaskId, Timestamp};

use super::Tables;
use crate::resident::{LimitedLine, Line, LinePlace, Rest, WakePlace};

impl Tables {
    /// Tasks that have not ended and do not rest, oldest first.
    pub(in crate::memory) fn awake(&self) -> impl Iterator<Item = &Arc<Task>> {
        self.tasks.values().filter(|task| !task.is_ended() && !self.resting.contains_key(&task.id))
    }

    /// A task rests so from now on, or does not.
    pub(in crate::memory) fn lay_down(&mut self, id: TaskId, rest: Option<Rest>) {
        if let Some(before) = self.resting.remove(&id) {
            if let Some(at) = before.wake_at {
                self.wakes.remove(&WakePlace { at, task: id });
            }
            if let Some((line, place)) = &before.line {
                self.line(line).1.remove(place);
            }
        }
        let Some(rest) = rest else { return };
        if let Some(at) = rest.wake_at {
            self.wakes.insert(WakePlace { at, task: id });
        }
        if let Some((line, place)) = &rest.line {
            self.line(line).1.insert(*place);
        }
        self.resting.insert(id, rest);
    }

    fn line(&mut self, line: &Line) -> &mut (LinePlace, BTreeSet<LinePlace>) {
        self.lines.entry(line.clone()).or_insert_with(|| (LinePlace::LAST, BTreeSet::new()))
    }

    /// Up to here attempts of a line may be handed out.
    pub(in crate::memory) fn set_limit(&mut self, line: &Line, limit: LinePlace) {
        self.line(line).0 = limit;
    }

    /// Lines with their limits, and how many tasks rest behind them.
    pub(in crate::memory) fn limited(&self) -> impl Iterator<Item = LimitedLine> {
        self.lines.iter().map(|(line, (limit, places))| {
            let resting = places.iter().filter(|place| *place > limit).count() as u64;
            LimitedLine { line: line.clone(), limit: *limit, resting }
        })
    }

    /// Tasks that rest in lines and whose attempts may have been handed out.
    pub(in crate::memory) fn up_to_limits(&self) -> impl Iterator<Item = &Arc<Task>> {
        let lines = self.lines.values();
        let places = lines.flat_map(|(limit, places)| places.iter().take_while(move |place| *place <= limit));
        places.filter_map(|place| self.tasks.get(&place.task))
    }

    /// Tasks that rest in a line behind a place, in their order.
    pub(in crate::memory) fn behind(
        &self,
        line: &Line,
        after: LinePlace,
    ) -> impl Iterator<Item = (LinePlace, &Arc<Task>)> {
        let places = self.lines.get(line).into_iter().flat_map(|(_, places)| places);
        let places = places.skip_while(move |place| **place <= after);
        places.filter_map(|place| Some((*place, self.tasks.get(&place.task)?)))
    }

    /// How a task rests, if it does.
    pub(in crate::memory) fn rest(&self, id: TaskId) -> Option<&Rest> {
        self.resting.get(&id)
    }

    /// Tasks that rest and are older than `before`, newest first.
    pub(in crate::memory) fn resting(&self, before: TaskId) -> impl Iterator<Item = (&Arc<Task>, &Rest)> {
        self.resting.range(..before).rev().filter_map(|(id, rest)| Some((self.tasks.get(id)?, rest)))
    }

    /// Tasks that rest and are to be woken after this place and at `until` at the latest, in this order.
    pub(in crate::memory) fn waking(
        &self,
        after: WakePlace,
        until: Timestamp,
    ) -> impl Iterator<Item = (WakePlace, &Arc<Task>, &Rest)> {
        let until = WakePlace::end_of(until);
        let from = (Bound::Excluded(after), Bound::Included(until.max(after)));
        let places = self.wakes.range(from).take_while(move |place| **place <= until);
        places
            .filter_map(|place| Some((*place, self.tasks.get(&place.task)?, self.resting.get(&place.task)?)))
    }
}
