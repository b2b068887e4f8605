//! The rows of what tasks wait for. A claim is some columns of such a row, so it goes with the row.

use std::collections::{BTreeMap, BTreeSet};

use windlass_core::{ActKey, Free, Millis, Name, Ready, Task, TaskId, Timestamp, Waiting, Wakeup};

use super::starts::Starts;
use crate::{
    port::{
        AttemptId, Claim, ClaimRequest, Claimed, Due, Limit, LimitHolder, LimitState, Loaded, Now,
        QueuePause, QueueState, SessionId, TaskChange,
    },
    rules::{Holder, KeyInLine, KeysInLine, Turn, place_among},
};

/// One row per (task, wake-up).
#[derive(Debug, Default)]
pub(super) struct Waits {
    rows: BTreeMap<TaskId, BTreeMap<Wakeup, WaitRow>>,
    /// The last attempt of each act that a session got.
    handed_out: BTreeMap<TaskId, BTreeMap<ActKey, u32>>,
    /// Queues that hold or held something.
    modules: BTreeSet<Name>,
    /// Claims so far.
    claims: u64,
    /// Where the rounds of queues are.
    turns: BTreeMap<Name, Turn<Option<Box<str>>>>,
    starts: Starts,
}

#[derive(Debug)]
struct WaitRow {
    waiting: Waiting,
    claim: Option<ClaimColumns>,
}

#[derive(Debug)]
struct ClaimColumns {
    number: u64,
    session: SessionId,
    at: Timestamp,
    timeout_at: Millis,
    /// When it was handed out, for limits by starts. `None` if it was adopted, which is not a start.
    started: Option<Millis>,
}

/// A ready row in the order of its queue: rank, then age, then order of definition.
type Place = (i64, TaskId, ActKey);

/// An attempt in line with its key.
struct InTurn {
    key: Option<Box<str>>,
    ready_at: Timestamp,
    place: Place,
}

impl KeysInLine<Option<Box<str>>> for &[InTurn] {
    fn behind(&mut self, turn: &Turn<Option<Box<str>>>) -> Option<Option<Box<str>>> {
        let behind = self.iter().filter(|of| of.key > turn.key && of.ready_at <= turn.began);
        behind.map(|of| of.key.clone()).min()
    }

    fn first(&mut self) -> Option<Option<Box<str>>> {
        self.iter().map(|of| of.key.clone()).min()
    }
}

impl Waits {
    /// The session that has the attempt of an act.
    pub(super) fn holder(&self, task: TaskId, key: ActKey) -> Option<Holder> {
        let row = self.row(task, key)?;
        let ClaimColumns { number, session, .. } = *row.claim.as_ref()?;
        Some(Holder { attempt: row.waiting.attempt, claim: number, session })
    }

    /// The number of the current attempt of an act, if a session has it or had it.
    pub(super) fn handed_out(&self, task: TaskId, key: ActKey) -> Option<u32> {
        self.handed_out.get(&task)?.get(&key).copied()
    }

    /// Whether a session has an attempt of a task.
    pub(super) fn is_held(&self, task: TaskId) -> bool {
        self.claimed_of(task).next().is_some()
    }

    /// Replaces the rows that the change names.
    pub(super) fn apply(&mut self, change: &TaskChange) {
        let id = change.task.id;
        let rows = self.rows.entry(id).or_default();
        for (wakeup, waiting) in change.waits_after() {
            let before = rows.remove(&wakeup);
            let Some(waiting) = waiting else { continue };
            self.modules.extend(waiting.ready.iter().map(|ready| ready.module.clone()));
            let keeps = |row: &WaitRow| change.keeps_claim(wakeup, row.waiting.attempt);
            let claim = before.filter(keeps).and_then(|row| row.claim);
            rows.insert(wakeup, WaitRow { waiting: waiting.clone(), claim });
        }
        if rows.is_empty() {
            self.rows.remove(&id);
        }
        if change.task.is_ended() {
            self.handed_out.remove(&id);
        } else if let Some(handed_out) = self.handed_out.get_mut(&id) {
            handed_out.retain(|key, attempt| change.task.has_current(*key, *attempt));
        }
    }

    pub(super) fn delete(&mut self, task: TaskId) {
        self.rows.remove(&task);
        self.handed_out.remove(&task);
    }

    /// The task with what is known of its attempts.
    pub(super) fn loaded(&self, task: std::sync::Arc<Task>) -> Loaded {
        let claims = self.claimed_of(task.id).map(|(claimed, _)| Claim {
            key: claimed.id.key,
            attempt: claimed.id.attempt,
            number: claimed.id.claim,
            session: claimed.session,
            at: claimed.at,
        });
        let claims = claims.collect();
        let handed_out = self.handed_out.get(&task.id).into_iter().flatten().map(|(key, _)| *key).collect();
        Loaded { claims, handed_out, ..Loaded::untouched(task) }
    }

    /// Gives the next in line for `claim request` to a session, as `limits` allow; nothing of tasks that are left out. Where
    /// the queue was ruled when the claim began, keys take turns.
    pub(super) fn claim(
        &mut self,
        (session, grace): (SessionId, Millis),
        claim_request: &ClaimRequest,
        limits: &[Limit],
        left_out: &[TaskId],
        is_ruled: bool,
        now: Now,
    ) -> Option<Claimed> {
        let wanted = |ready: &Ready| {
            ready.module == claim_request.module
                && claim_request.commands.as_ref().is_none_or(|commands| commands.contains(&ready.command))
                && !limits.iter().any(|limit| self.is_reached(limit, ready, now.mono))
        };
        let mut line = self.line(wanted);
        line.retain(|(_, task, _)| !left_out.contains(task));
        let (_, task, key) = if is_ruled {
            let keys: Vec<InTurn> = line.iter().filter_map(|place| self.in_turn(*place)).collect();
            let turn = Turn::next(self.turns.get(&claim_request.module), now.wall, &mut &keys[..])?;
            let first = keys.iter().find(|in_turn| in_turn.key == turn.key)?.place;
            self.turns.insert(claim_request.module.clone(), turn);
            first
        } else {
            *line.first()?
        };
        self.claims += 1;
        let number = self.claims;
        let claimed = self.hold(session, (task, key, number), grace, Some(now.mono), now);
        self.start(limits, task, key, now.mono);
        claimed
    }

    /// Whether keys take turns in a queue.
    pub(super) fn takes_turns(&self, queue: &Name) -> bool {
        !self.line(|ready| ready.module == *queue && ready.fairness.is_some()).is_empty()
    }

    fn in_turn(&self, place: Place) -> Option<InTurn> {
        let ready = self.row(place.1, place.2)?.waiting.ready.as_ref()?;
        Some(InTurn { key: ready.fairness.clone(), ready_at: ready.ready_at, place })
    }

    /// Counts the start of an attempt.
    fn start(&mut self, limits: &[Limit], task: TaskId, key: ActKey, now: Millis) {
        let row = self.rows.get(&task).and_then(|rows| rows.get(&Wakeup::Act(key)));
        let Some(ready) = row.and_then(|row| row.waiting.ready.as_ref()) else { return };
        for limit in limits {
            self.starts.start(limit, ready, now);
        }
    }

    /// Whether a limit keeps a ready attempt back.
    fn is_reached(&self, limit: &Limit, ready: &Ready, now: Millis) -> bool {
        let Some(key) = limit.counts_ready(ready) else { return false };
        limit.running.is_some_and(|most| self.holders(limit, Some(key)).len() >= most as usize)
            || self.starts.next_start(limit, key, now).is_some()
    }

    /// The running attempts that count under a limit, oldest first: under a key, or under any.
    fn holders(&self, limit: &Limit, of: Option<Option<&str>>) -> Vec<LimitHolder> {
        let rows = self.rows.iter().flat_map(|(task, rows)| rows.values().map(|row| (*task, row)));
        let holder = |(task, row): (TaskId, &WaitRow)| {
            let ready = row.waiting.ready.as_ref()?;
            let key = limit.counts_ready(ready)?;
            let (claimed, _) = claimed(task, row)?;
            (of.is_none() || of == Some(key)).then(|| LimitHolder { claimed, key: ready.fairness.clone() })
        };
        let mut holders: Vec<LimitHolder> = rows.filter_map(holder).collect();
        holders.sort_by_key(|holder| (holder.claimed.at, holder.claimed.id));
        holders
    }

    /// A limit with what counts under it: under a key, or under any.
    pub(super) fn limit(&self, limit: &Limit, of: Option<Option<&str>>, now: Now) -> LimitState {
        let holders = self.holders(limit, of);
        let key = of.or((!limit.per_key).then_some(None));
        let next_start = key.and_then(|key| self.starts.next_start(limit, key, now.mono));
        LimitState {
            limit: limit.clone(),
            running: holders.len() as u64,
            started: self.starts.count(limit, of, now.mono) as u64,
            next_start_at: next_start.map(|at| now.wall + Millis(at.0 - now.mono.0)),
            holders,
        }
    }

    /// The limits that keep a ready attempt back.
    pub(super) fn keeping_back<'l>(
        &self,
        limits: impl Iterator<Item = &'l Limit>,
        ready: &Ready,
        now: Now,
    ) -> Vec<LimitState> {
        let reached = limits.filter(|limit| self.is_reached(limit, ready, now.mono));
        reached.map(|limit| self.limit(limit, Some(limit.counts_ready(ready).flatten()), now)).collect()
    }

    /// Gives an attempt to the session that says it has it, unless it is over or another one has it.
    pub(super) fn adopt(&mut self, session: SessionId, id: AttemptId, grace: Millis, now: Now) -> bool {
        let AttemptId { task, key, attempt, claim } = id;
        let Some(row) = self.row(task, key) else { return false };
        if row.waiting.ready.is_none() || row.waiting.attempt != attempt {
            return false;
        }
        match &row.claim {
            Some(held) if held.session == session && held.number == claim => true,
            Some(held) if !session.takes_from(held.session) => false,
            _ => self.hold(session, (task, key, claim), grace, None, now).is_some(),
        }
    }

    /// Takes an attempt back from the session that has it under this claim.
    pub(super) fn release<'l>(
        &mut self,
        session: SessionId,
        id: AttemptId,
        limits: impl Iterator<Item = &'l Limit>,
    ) {
        let row = self.rows.get_mut(&id.task).and_then(|rows| rows.get_mut(&Wakeup::Act(id.key)));
        let Some(row) = row else { return };
        let theirs = |claim: &mut ClaimColumns| claim.session == session && claim.number == id.claim;
        let claim = row.claim.take_if(theirs);
        if let (Some(started), Some(ready)) = (claim.and_then(|claim| claim.started), &row.waiting.ready) {
            limits.for_each(|limit| self.starts.take_back(limit, ready, started));
        }
    }

    fn hold(
        &mut self,
        session: SessionId,
        (task, key, number): (TaskId, ActKey, u64),
        grace: Millis,
        started: Option<Millis>,
        now: Now,
    ) -> Option<Claimed> {
        let row = self.rows.get_mut(&task)?.get_mut(&Wakeup::Act(key))?;
        let ready = row.waiting.ready.as_ref()?;
        let timeout_at = now.timeout_at(ready.ready_at, Millis(ready.timeout.0.saturating_add(grace.0)));
        row.claim = Some(ClaimColumns { number, session, at: now.wall, timeout_at, started });
        let attempt = row.waiting.attempt;
        self.handed_out.entry(task).or_default().insert(key, attempt);
        claimed(task, row).map(|(claimed, _)| claimed)
    }

    /// What these sessions have and are to stop.
    pub(super) fn to_stop(&self, sessions: &[SessionId]) -> Vec<Claimed> {
        let rows = self.rows.iter().flat_map(|(task, rows)| rows.values().map(|row| (*task, row)));
        let to_stop = rows
            .filter(|(_, row)| row.waiting.ready.as_ref().is_some_and(|ready| ready.free == Free::GiveUp));
        let claimed = to_stop.filter_map(|(task, row)| claimed(task, row)).map(|(claimed, _)| claimed);
        claimed.filter(|claimed| sessions.contains(&claimed.session)).collect()
    }

    /// Every claimed attempt with the time its timeout is over.
    pub(super) fn all_claimed(&self) -> impl Iterator<Item = (Claimed, Millis)> + '_ {
        self.rows.keys().flat_map(|task| self.claimed_of(*task))
    }

    fn claimed_of(&self, task: TaskId) -> impl Iterator<Item = (Claimed, Millis)> + '_ {
        let rows = self.rows.get(&task).into_iter().flat_map(BTreeMap::values);
        rows.filter_map(move |row| claimed(task, row))
    }

    /// What is due: wake-ups by their time, then attempts that ran too long.
    pub(super) fn due(&self, now: Now, limit: usize) -> Vec<Due> {
        let rows = self.rows.iter().flat_map(|(task, rows)| rows.values().map(|row| (*task, &row.waiting)));
        let mut wakes: Vec<_> = rows
            .filter_map(|(task, waiting)| {
                Some((waiting.due_at.filter(|at| *at <= now.wall)?, task, waiting.key))
            })
            .collect();
        wakes.sort_unstable();
        let mut timed_out: Vec<_> =
            self.all_claimed().filter(|(_, timeout_at)| *timeout_at <= now.mono).collect();
        timed_out.sort_by_key(|(claimed, timeout_at)| (*timeout_at, claimed.id));
        let wakes = wakes.into_iter().map(|(_, task, wakeup)| Due::Wake { task, wakeup });
        let timed_out = timed_out.into_iter().map(|(claimed, _)| Due::TimeOut(claimed));
        wakes.chain(timed_out).chain(self.kept_back()).take(limit).collect()
    }

    /// Attempts that nobody has and that are not handed out.
    fn kept_back(&self) -> impl Iterator<Item = Due> + '_ {
        self.rows.iter().flat_map(|(task, rows)| {
            rows.values().filter(|row| row.claim.is_none()).filter_map(|row| {
                let Wakeup::Act(key) = row.waiting.key else { return None };
                Due::of_free(*task, key, row.waiting.attempt, row.waiting.ready.as_ref()?.free)
            })
        })
    }

    /// How many attempts of its queue stand before this one.
    pub(super) fn place(&self, task: TaskId, key: ActKey) -> Option<u64> {
        let ready = self.row(task, key)?.waiting.ready.as_ref()?;
        let place = (ready.rank, task, key);
        let line = self.line(|other| other.module == ready.module);
        let mut keys: BTreeMap<Option<Box<str>>, (u64, u64)> = BTreeMap::new();
        for in_turn in line.iter().filter_map(|place| self.in_turn(*place)) {
            let (count, before) = keys.entry(in_turn.key).or_default();
            *count += 1;
            *before += u64::from(in_turn.place < place);
        }
        let is_own = |key: &Option<Box<str>>| *key == ready.fairness;
        let keys = keys.into_iter().map(|(key, (count, before))| KeyInLine {
            is_own: is_own(&key),
            key,
            count,
            before,
        });
        let last = self.turns.get(&ready.module).map(|turn| &turn.key);
        line.contains(&place).then(|| place_among(keys.collect(), last)).flatten()
    }

    /// The queues with their counts.
    pub(super) fn queues(&self, paused: &BTreeMap<Name, QueuePause>) -> Vec<QueueState> {
        let names: BTreeSet<&Name> = self.modules.iter().chain(paused.keys()).collect();
        let state = |name: &Name| {
            let line = self.line(|ready| ready.module == *name);
            let first = line.first().and_then(|(_, task, key)| self.row(*task, *key)?.waiting.ready.as_ref());
            QueueState {
                name: name.clone(),
                ready: line.len() as u64,
                running: self.all_claimed().filter(|(claimed, _)| claimed.module == *name).count() as u64,
                oldest_ready_at: first.map(|ready| ready.ready_at),
                paused: paused.get(name).cloned(),
            }
        };
        names.into_iter().map(state).collect()
    }

    /// The ready attempts that nobody has and that `wanted` takes, smallest rank first.
    fn line(&self, wanted: impl Fn(&Ready) -> bool) -> Vec<Place> {
        let mut line = Vec::new();
        for (task, rows) in &self.rows {
            for row in rows.values().filter(|row| row.claim.is_none()) {
                if let (Wakeup::Act(key), Some(ready)) = (row.waiting.key, &row.waiting.ready)
                    && ready.free == Free::HandOut
                    && wanted(ready)
                {
                    line.push((ready.rank, *task, key));
                }
            }
        }
        line.sort_unstable();
        line
    }

    fn row(&self, task: TaskId, key: ActKey) -> Option<&WaitRow> {
        self.rows.get(&task)?.get(&Wakeup::Act(key))
    }
}

fn claimed(task: TaskId, row: &WaitRow) -> Option<(Claimed, Millis)> {
    let Wakeup::Act(key) = row.waiting.key else { return None };
    let (claim, ready) = (row.claim.as_ref()?, row.waiting.ready.as_ref()?);
    let id = AttemptId { task, key, attempt: row.waiting.attempt, claim: claim.number };
    let claimed = Claimed { id, session: claim.session, at: claim.at, module: ready.module.clone() };
    Some((claimed, claim.timeout_at))
}
