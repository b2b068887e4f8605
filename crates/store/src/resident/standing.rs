//! Those who stand in one line, and how far the line is in memory.

use std::collections::BTreeSet;

use windlass_core::{ActKey, Ready, TaskId, Timestamp};

use super::LinePlace;

/// Those who stand in one line.
///
/// The line moves on in two steps: what is read of it is in memory at once (`reach`), and is handed out when the
/// disk knows that it may have been (`limit`, which is never behind `reach`).
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) places: BTreeSet<Place>,
    /// Only up to here attempts are handed out.
    limit: LinePlace,
    /// Up to here all are in memory, and stay there. What rests is behind it.
    reach: LinePlace,
    /// How many rest.
    pub(super) resting: u64,
    /// The last that is in somebody's hands, or may be, while it rests on disk: the limit stays behind it, so that a
    /// start knows of it.
    in_hands: Option<LinePlace>,
}

impl Default for Standing {
    fn default() -> Self {
        Self {
            places: BTreeSet::new(),
            limit: LinePlace::LAST,
            reach: LinePlace::LAST,
            resting: 0,
            in_hands: None,
        }
    }
}

impl Standing {
    /// A line as rows have it.
    pub(super) fn recover(&mut self, limit: LinePlace, resting: u64) {
        (self.limit, self.reach, self.resting) = (limit, limit, resting);
    }

    /// The next that can be handed out.
    pub(super) fn first(&self) -> Option<&Place> {
        self.places.first().filter(|place| place.in_line() <= self.limit)
    }

    /// Whether fewer than `enough` can be handed out while there are, or may be, more behind them.
    pub(super) fn is_short(&self, enough: usize) -> bool {
        !self.is_whole()
            && self.places.iter().take_while(|place| place.in_line() <= self.limit).take(enough).count()
                < enough
    }

    /// Whether all of it can be handed out.
    pub(super) fn is_whole(&self) -> bool {
        self.limit == LinePlace::LAST
    }

    /// Whether an attempt may rest behind a head of this number.
    pub(super) fn is_deep(&self, head: usize) -> bool {
        !self.is_whole() || self.places.len() >= head
    }

    pub(super) fn is_forgettable(&self) -> bool {
        self.places.is_empty() && self.is_whole() && self.in_hands.is_none()
    }

    /// Up to here all are in memory.
    pub(super) fn reach(&self) -> LinePlace {
        self.reach
    }

    /// All are in memory up to `reach`, and may be handed out when that is on disk as the limit.
    pub(super) fn move_reach(&mut self, reach: LinePlace) {
        self.reach = reach;
    }

    /// Attempts up to here may be handed out: it is on disk.
    pub(super) fn move_limit(&mut self, limit: LinePlace) {
        self.limit = limit;
    }

    /// An attempt is in somebody's hands that rests on disk.
    pub(super) fn keep_limit_behind(&mut self, place: LinePlace) {
        self.in_hands = self.in_hands.max(Some(place));
    }

    /// Whether an attempt that becomes ready may rest. A limit that the line then has holds at once: what is handed
    /// out already is before it.
    pub(super) fn admit(&mut self, place: LinePlace, head: usize) -> Admission {
        if !self.is_whole() {
            return if place > self.reach { Admission::Behind } else { Admission::Refused };
        }
        let last = self.places.last().map(Place::in_line).max(self.in_hands);
        match last {
            Some(last) if self.is_deep(head) && place > last => {
                (self.limit, self.reach) = (last, last);
                Admission::NewLimit(last)
            }
            _ => Admission::Refused,
        }
    }
}

/// Whether an attempt may rest behind its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// It is to be in memory.
    Refused,
    /// It is behind what is in memory.
    Behind,
    /// It is, behind a limit that the line has from now on.
    NewLimit(LinePlace),
}

/// A place in a line: rank, then age, then order of definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) rank: i64,
    pub(super) task: TaskId,
    pub(super) key: ActKey,
    pub(super) ready_at: Timestamp,
}

impl Place {
    pub(super) fn new(task: TaskId, key: ActKey, ready: &Ready) -> Self {
        Self { rank: ready.rank, task, key, ready_at: ready.ready_at }
    }

    fn in_line(&self) -> LinePlace {
        LinePlace { rank: self.rank, task: self.task }
    }
}
