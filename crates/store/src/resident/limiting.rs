//! Limits of queues: set while everything runs, and counted as attempts come into hands and end.

use windlass_core::{
    Millis, Name, Ready,
    planted::{Bug, is_planted},
};

use super::{claims::Held, limits::LimitUse, queue::Queues, scheduler::Scheduler};
use crate::port::{LimitChange, LimitHolder, LimitState, Now};

impl Queues {
    /// An attempt begins in somebody's hands.
    pub(super) fn start(&mut self, held: &Held) {
        let queue = self.queue(&held.line.module);
        queue.running += 1;
        for used in &mut queue.limits {
            used.hold(&held.line.command, held.fairness.as_ref());
            used.start(&held.line.command, held.fairness.as_ref(), held.started);
        }
    }

    /// An attempt is in somebody's hands still.
    pub(super) fn hold(&mut self, held: &Held) {
        let queue = self.queue(&held.line.module);
        queue.running += 1;
        for used in &mut queue.limits {
            used.hold(&held.line.command, held.fairness.as_ref());
        }
    }

    /// An attempt does not run any more.
    pub(super) fn let_go(&mut self, held: &Held) {
        let queue = self.queue(&held.line.module);
        queue.running = queue.running.saturating_sub(1);
        if queue.limits.is_empty() || is_planted(Bug::LimitLeak) {
            return;
        }
        for used in &mut queue.limits {
            used.let_go(&held.line.command, held.fairness.as_ref());
        }
        if let (Some(keyed), Some(key)) = (&mut queue.keyed, &held.fairness) {
            keyed.let_stand(key);
        }
    }

    /// An attempt was given back that did not begin.
    pub(super) fn take_back_start(&mut self, held: &Held) {
        for used in &mut self.queue(&held.line.module).limits {
            used.take_back_start(&held.line.command, held.fairness.as_ref(), held.started);
        }
    }

    /// A limit counts from now on.
    pub(super) fn set_limit(&mut self, used: LimitUse) {
        let queue = self.queue(&used.limit.queue.clone());
        queue.limits.push(used);
        queue.limits.sort_by(|one, other| one.limit.name.cmp(&other.limit.name));
        queue.let_all_stand();
    }

    /// A limit was removed.
    pub(super) fn remove_limit(&mut self, name: &Name) -> Option<LimitUse> {
        self.modules.values_mut().find_map(|queue| {
            let index = queue.limits.iter().position(|used| used.limit.name == *name)?;
            queue.let_all_stand();
            Some(queue.limits.remove(index))
        })
    }

    /// What began under limits before a failed write counts still.
    pub(super) fn take_over_starts(&mut self, before: Self) {
        let mut before: Vec<LimitUse> = before.modules.into_values().flat_map(|queue| queue.limits).collect();
        for used in self.modules.values_mut().flat_map(|queue| &mut queue.limits) {
            if let Some(index) = before.iter().position(|other| other.limit == used.limit) {
                used.take_over_starts(before.swap_remove(index));
            }
        }
    }

    fn limits(&self) -> impl Iterator<Item = &LimitUse> {
        self.modules.values().flat_map(|queue| &queue.limits)
    }

    /// When more may be handed out because starts are forgotten, of queues in which something waits for that.
    pub(super) fn next_start(&self, now: Millis) -> Option<Millis> {
        let waiting = self.modules.values().filter(|queue| !queue.limits.is_empty());
        let waiting = waiting.filter(|queue| queue.ready > 0 || queue.resting() > 0);
        let starts = waiting.flat_map(|queue| {
            let has_aside = queue.keyed.as_ref().is_some_and(|keyed| keyed.has_aside());
            let keeps_back =
                move |used: &&LimitUse| if used.limit.per_key { has_aside } else { used.is_reached(None) };
            queue.limits.iter().filter(keeps_back).filter_map(|used| used.next_pass(now))
        });
        starts.min()
    }
}

impl super::queue::Queue {
    /// Limits have changed.
    fn let_all_stand(&mut self) {
        if let Some(keyed) = &mut self.keyed {
            keyed.let_all_stand();
        }
    }
}

impl Scheduler {
    /// Sets a limit, or removes it. Running attempts count at once.
    pub(super) fn set_limit(&mut self, change: &LimitChange) {
        let before = self.queues.remove_limit(&change.name);
        let Some(limit) = &change.limit else { return };
        let mut used = LimitUse::new(limit.clone());
        for (_, held) in self.claims.all().filter(|(_, held)| held.line.module == limit.queue) {
            used.hold(&held.line.command, held.fairness.as_ref());
        }
        if let Some(before) = before.filter(|before| before.limit.queue == limit.queue) {
            used.take_over_starts(before);
        }
        self.queues.set_limit(used);
    }

    /// All limits with what counts under them, by name.
    pub(super) fn limits(&self, now: Now) -> Vec<LimitState> {
        let mut states: Vec<LimitState> =
            self.queues.limits().map(|used| self.limit_state(used, None, now)).collect();
        states.sort_by(|one, other| one.limit.name.cmp(&other.limit.name));
        states
    }

    /// The limits that keep such an attempt back, with what counts under its key.
    pub(super) fn keeping_back(&self, ready: &Ready, now: Now) -> Vec<LimitState> {
        let limits = self.queues.limits().filter_map(|used| Some((used, used.limit.counts_ready(ready)?)));
        let reached = limits.filter(|(used, key)| {
            // Starts that are over are forgotten when something is handed out.
            let next_start = used.next_start(*key);
            used.limit.running.is_some_and(|most| used.count(*key).running >= most)
                || next_start.is_some_and(|at| at > now.mono)
        });
        reached.map(|(used, key)| self.limit_state(used, key, now)).collect()
    }

    /// A limit with what counts under `key`; nothing = all together.
    fn limit_state(&self, used: &LimitUse, key: Option<&str>, now: Now) -> LimitState {
        let count = used.count(key);
        let next_start =
            used.next_start(key).filter(|at| *at > now.mono && !(used.limit.per_key && key.is_none()));
        let counts = |held: &Held| {
            let of = used.limit.counts(&held.line.command, held.fairness.as_deref());
            held.line.module == used.limit.queue && of.is_some_and(|of| key.is_none() || of == key)
        };
        let held = self.claims.all().filter(|(_, held)| counts(held));
        let mut holders: Vec<LimitHolder> = held
            .filter_map(|(task, held)| {
                let claimed = self.claims.claimed(task, held.key)?;
                Some(LimitHolder { claimed, key: held.fairness.as_deref().map(Into::into) })
            })
            .collect();
        holders.sort_by_key(|holder| (holder.claimed.at, holder.claimed.id));
        LimitState {
            limit: used.limit.clone(),
            running: count.running.into(),
            started: used.started_since(key, now.mono),
            next_start_at: next_start.map(|at| now.wall + Millis(at.0 - now.mono.0)),
            holders,
        }
    }
}
