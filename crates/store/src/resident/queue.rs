//! Ready attempts, by module and command, smallest rank first; keys take turns.

use std::collections::BTreeMap;

use windlass_core::{
    ActKey, Name, Ready, TaskId,
    planted::{Bug, is_planted},
};

use super::{
    LimitedLine, Line, LinePlace,
    limits::{Key, LimitUse},
    standing::{Admission, Place, Standing},
    turns::{KeyTurn, Keyed},
};
use crate::{
    port::{ClaimRequest, Now, QueuePause, QueueState},
    rules::{KeyInLine, KeysInLine, Turn, place_among},
};

/// The ready attempts of all modules.
#[derive(Debug, Default)]
pub(super) struct Queues {
    pub(super) modules: BTreeMap<Name, Queue>,
    /// Workers are given time to name what they have: until then it is not known what is running.
    pub(super) awaits_holders: bool,
}

/// The ready attempts of one module.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// One line per command, so that a worker that lacks some never walks over theirs. Attempts with keys are not in it.
    commands: BTreeMap<Name, Standing>,
    /// Attempts with keys, if there are any.
    pub(super) keyed: Option<Box<Keyed>>,
    /// Where the round of its keys is.
    turn: Option<KeyTurn>,
    pub(super) limits: Vec<LimitUse>,
    /// Attempts in memory.
    pub(super) ready: u64,
    pub(super) running: u64,
    paused: Option<QueuePause>,
    /// Something waited here at some time.
    used: bool,
}

impl Queues {
    pub(super) fn queue(&mut self, module: &Name) -> &mut Queue {
        if !self.modules.contains_key(module) {
            self.modules.insert(module.clone(), Queue::default());
        }
        self.modules.entry(module.clone()).or_default()
    }

    pub(super) fn insert(&mut self, task: TaskId, key: ActKey, ready: &Ready) {
        let queue = match self.modules.get_mut(&ready.module) {
            Some(queue) => queue,
            None => self.modules.entry(ready.module.clone()).or_default(),
        };
        queue.used = true;
        let place = Place::new(task, key, ready);
        if let Some(fairness) = &ready.fairness {
            let keyed = queue.keyed.get_or_insert_default();
            queue.ready += u64::from(keyed.insert(&ready.command, fairness, place));
            return;
        }
        let line = match queue.commands.get_mut(&ready.command) {
            Some(line) => line,
            None => queue.commands.entry(ready.command.clone()).or_default(),
        };
        if line.places.insert(place) {
            queue.ready += 1;
        }
    }

    pub(super) fn remove(&mut self, task: TaskId, key: ActKey, ready: &Ready) {
        let Some(queue) = self.modules.get_mut(&ready.module) else { return };
        let place = Place::new(task, key, ready);
        match &ready.fairness {
            Some(fairness) => queue.remove_keyed(&ready.command, fairness, &place),
            None => queue.remove(&ready.command, &place),
        }
    }

    /// Whether limits or turns say what of a queue is handed out.
    pub(super) fn is_ruled(&self, module: &Name) -> bool {
        let queue = self.modules.get(module);
        queue.is_some_and(|queue| queue.keyed.is_some() || !queue.limits.is_empty())
    }

    /// Takes the next for `claim request`: in line, or in turn where the queue was ruled when the claim began.
    pub(super) fn pop(&mut self, claim_request: &ClaimRequest, is_ruled: bool, now: Now) -> Option<Place> {
        let goes_on = |queue: &&mut Queue| queue.paused.is_none() || is_planted(Bug::QueuePauseIgnored);
        let queue = self.modules.get_mut(&claim_request.module).filter(goes_on)?;
        let next = match is_ruled {
            true => queue.next_in_turn(claim_request, now, self.awaits_holders)?,
            false => queue.first(claim_request, |_| true).map(|(place, command)| (None, place, command))?,
        };
        let (key, place, command) = next;
        match &key {
            Some(key) => queue.remove_keyed(&command, key, &place),
            None => queue.remove(&command, &place),
        }
        Some(place)
    }

    pub(super) fn set_paused(&mut self, module: &Name, paused: Option<QueuePause>) {
        self.queue(module).paused = paused;
    }

    /// Whether this attempt stands in its line.
    pub(super) fn contains(&self, task: TaskId, key: ActKey, ready: &Ready) -> bool {
        let Some(queue) = self.modules.get(&ready.module) else { return false };
        let place = Place::new(task, key, ready);
        match &ready.fairness {
            Some(fairness) => {
                let keyed = queue.keyed.as_ref();
                keyed.is_some_and(|keyed| keyed.contains(&ready.command, fairness, &place))
            }
            None => queue.commands.get(&ready.command).is_some_and(|line| line.places.contains(&place)),
        }
    }

    /// Attempts in memory and without a key that stand before this one, of its module.
    pub(super) fn before(&self, task: TaskId, key: ActKey, ready: &Ready) -> impl Iterator<Item = TaskId> {
        let place = Place::new(task, key, ready);
        let lines = self.modules.get(&ready.module).into_iter().flat_map(|queue| queue.commands.values());
        lines.flat_map(move |line| line.places.range(..place)).map(|place| place.task)
    }

    /// How many attempts are handed out before this one, which has `own` attempts of its key before it.
    pub(super) fn place(&self, ready: &Ready, own: u64) -> u64 {
        let Some(queue) = self.modules.get(&ready.module) else { return own };
        let Some(keyed) = &queue.keyed else { return own };
        let in_line = |key: Option<Key>, count| {
            let is_own = key.as_deref() == ready.fairness.as_deref();
            KeyInLine { key, count, before: own, is_own }
        };
        let in_memory: usize = queue.commands.values().map(|line| line.places.len()).sum();
        let keyless = in_line(None, in_memory as u64 + queue.resting());
        let keys = keyed.counts().into_iter().map(|(key, count)| in_line(Some(key.clone()), count));
        let last = queue.turn.as_ref().map(|turn| &turn.key);
        place_among(keys.chain([keyless]).collect(), last).unwrap_or(own)
    }

    /// Attempts of the same key that stand before this one, which has a key.
    pub(super) fn same_key_before(&self, task: TaskId, key: ActKey, ready: &Ready) -> Option<u64> {
        let fairness = ready.fairness.as_ref()?;
        let keyed = self.modules.get(&ready.module)?.keyed.as_ref()?;
        Some(keyed.before(fairness, &Place::new(task, key, ready)))
    }

    fn line(&self, line: &Line) -> Option<&Standing> {
        self.modules.get(&line.module)?.commands.get(&line.command)
    }

    fn line_mut(&mut self, line: &Line) -> &mut Standing {
        let queue = self.queue(&line.module);
        queue.used = true;
        queue.commands.entry(line.command.clone()).or_default()
    }

    /// A line as rows have it.
    pub(super) fn recover_line(&mut self, recovered: &LimitedLine) {
        self.line_mut(&recovered.line).recover(recovered.limit, recovered.resting);
    }

    /// Whether a line has `head` attempts in memory, or more than that behind it: only then may one rest.
    pub(super) fn is_deep(&self, module: &Name, command: &Name, head: usize) -> bool {
        let line = self.modules.get(module).and_then(|queue| queue.commands.get(command));
        line.is_some_and(|line| line.is_deep(head))
    }

    /// Whether an attempt that becomes ready may rest.
    pub(super) fn admits_rest(&mut self, line: &Line, place: LinePlace, head: usize) -> Admission {
        self.line_mut(line).admit(place, head)
    }

    /// Up to here all of a line are in memory.
    pub(super) fn reach(&self, line: &Line) -> LinePlace {
        self.line(line).map_or(LinePlace::LAST, Standing::reach)
    }

    /// More of a line is in memory, and may be handed out when that is on disk.
    pub(super) fn move_reach(&mut self, line: &Line, reach: LinePlace) {
        self.line_mut(line).move_reach(reach);
    }

    /// Attempts up to here may be handed out: it is on disk.
    pub(super) fn move_limit(&mut self, line: &Line, limit: LinePlace) {
        self.line_mut(line).move_limit(limit);
    }

    /// Whether an attempt stands behind what is in memory of its line.
    pub(super) fn is_behind(&self, task: TaskId, ready: &Ready) -> bool {
        let line = self.modules.get(&ready.module).and_then(|queue| queue.commands.get(&ready.command));
        line.is_some_and(|line| LinePlace { rank: ready.rank, task } > line.reach())
    }

    /// Tasks came to rest in a line, or came back.
    pub(super) fn count_resting(&mut self, line: &Line, by: i64) {
        let line = self.line_mut(line);
        line.resting = line.resting.saturating_add_signed(by);
    }

    /// An attempt is in somebody's hands that rests on disk.
    pub(super) fn keep_limit_behind(&mut self, line: &Line, place: LinePlace) {
        self.line_mut(line).keep_limit_behind(place);
    }

    /// A line that has less in memory than `claim requests` may take, or than it is to have, while more rests.
    pub(super) fn short(&self, claim_requests: &[ClaimRequest], head: usize) -> Option<Line> {
        let is_short = |line: &Standing, free: u32| {
            let enough = usize::try_from(free).unwrap_or(usize::MAX).max(head / 4);
            line.is_short(enough)
        };
        claim_requests.iter().find_map(|claim_request| {
            let queue = self.modules.get(&claim_request.module).filter(|queue| queue.paused.is_none())?;
            let wanted =
                |name: &Name| claim_request.commands.as_ref().is_none_or(|commands| commands.contains(name));
            let mut lines = queue.commands.iter().filter(|(name, _)| wanted(name));
            let (command, _) = lines.find(|(_, line)| is_short(line, claim_request.free))?;
            Some(Line { module: claim_request.module.clone(), command: command.clone() })
        })
    }

    /// A line of which nothing can be handed out, while more rests.
    pub(super) fn starved(&self) -> Option<Line> {
        self.modules.iter().find_map(|(module, queue)| {
            let (command, _) = queue.commands.iter().find(|(_, line)| line.is_short(1))?;
            Some(Line { module: module.clone(), command: command.clone() })
        })
    }

    /// Lines with tasks at rest, and up to where they are in memory.
    pub(super) fn resting(&self, module: &Name) -> Vec<(Line, LinePlace)> {
        let lines = self.modules.get(module).into_iter().flat_map(|queue| &queue.commands);
        lines
            .filter(|(_, line)| line.reach() != LinePlace::LAST)
            .map(|(command, line)| (Line { module: module.clone(), command: command.clone() }, line.reach()))
            .collect()
    }

    pub(super) fn states(&self) -> Vec<QueueState> {
        self.modules
            .iter()
            .filter(|(_, queue)| queue.used || queue.running > 0 || queue.paused.is_some())
            .map(|(name, queue)| QueueState {
                name: name.clone(),
                ready: queue.ready + queue.resting(),
                running: queue.running,
                oldest_ready_at: queue.oldest_ready_at(),
                paused: queue.paused.clone(),
            })
            .collect()
    }
}

/// The keys of a queue that a claim may have attempts of.
struct AllowedKeys<'q, W, B> {
    keyed: Option<&'q mut Keyed>,
    has_keyless: bool,
    /// Whether attempts of a command may be claimed, whatever their key.
    wanted: W,
    /// Whether a limit keeps the attempts of a command and a key back.
    keeps_back: B,
}

impl<W: Fn(&Name) -> bool, B: Fn(&Name, &str) -> bool> KeysInLine<Option<Key>> for AllowedKeys<'_, W, B> {
    fn behind(&mut self, turn: &KeyTurn) -> Option<Option<Key>> {
        self.keyed.as_mut()?.next(Some(turn), &self.wanted, &self.keeps_back).map(Some)
    }

    fn first(&mut self) -> Option<Option<Key>> {
        if self.has_keyless {
            return Some(None);
        }
        self.keyed.as_mut()?.next(None, &self.wanted, &self.keeps_back).map(Some)
    }
}

impl Queue {
    /// The first in line without a key, of those commands that are `allowed`.
    fn first(&self, claim_request: &ClaimRequest, allowed: impl Fn(&Name) -> bool) -> Option<(Place, Name)> {
        let first = |(name, line): (&Name, &Standing)| line.first().map(|place| (*place, name.clone()));
        match &claim_request.commands {
            None => self.commands.iter().filter(|(name, _)| allowed(name)).filter_map(first).min(),
            Some(commands) => {
                let commands = commands.iter().filter(|name| allowed(name));
                commands.filter_map(|name| self.commands.get_key_value(name).and_then(first)).min()
            }
        }
    }

    /// The next for `claim request`, as limits allow and keys take turns, with its key.
    fn next_in_turn(
        &mut self,
        claim_request: &ClaimRequest,
        now: Now,
        awaits_holders: bool,
    ) -> Option<(Option<Key>, Place, Name)> {
        if awaits_holders && self.limits.iter().any(|used| used.limit.running.is_some()) {
            return None;
        }
        let passed: Vec<_> = self.limits.iter_mut().flat_map(|used| used.pass(now.mono)).collect();
        if let Some(keyed) = &mut self.keyed {
            passed.iter().for_each(|key| keyed.let_stand(key));
        }
        let is_named = |command: &Name| {
            claim_request.commands.as_ref().is_none_or(|commands| commands.contains(command))
        };
        let limits = std::mem::take(&mut self.limits);
        let keeps_back =
            |command: &Name, key: Option<&str>| limits.iter().any(|used| used.keeps_back(command, key));
        let keyless = self.first(claim_request, |command| !keeps_back(command, None));
        let mut keys = AllowedKeys {
            keyed: self.keyed.as_deref_mut(),
            has_keyless: keyless.is_some(),
            wanted: |command: &Name| is_named(command) && !keeps_back(command, None),
            keeps_back: |command: &Name, key: &str| keeps_back(command, Some(key)),
        };
        let turn = Turn::next(self.turn.as_ref(), now.wall, &mut keys);
        let next = turn.and_then(|turn| {
            let (place, command) = match &turn.key {
                None => keyless?,
                Some(key) => {
                    let is_allowed =
                        |command: &Name| (keys.wanted)(command) && !keeps_back(command, Some(key));
                    keys.keyed.as_ref()?.first_of(key, is_allowed)?
                }
            };
            Some((turn, place, command))
        });
        self.limits = limits;
        let (turn, place, command) = next?;
        let key = turn.key.clone();
        self.turn = Some(turn);
        Some((key, place, command))
    }

    fn remove(&mut self, command: &Name, place: &Place) {
        let Some(line) = self.commands.get_mut(command) else { return };
        if line.places.remove(place) {
            self.ready -= 1;
        }
        if line.is_forgettable() {
            self.commands.remove(command);
        }
    }

    fn remove_keyed(&mut self, command: &Name, key: &str, place: &Place) {
        let Some(keyed) = &mut self.keyed else { return };
        if keyed.remove(command, key, place) {
            self.ready -= 1;
        }
        if keyed.is_empty() {
            self.keyed = None;
        }
    }

    /// Tasks of it that rest.
    pub(super) fn resting(&self) -> u64 {
        self.commands.values().map(|line| line.resting).sum()
    }

    fn oldest_ready_at(&self) -> Option<windlass_core::Timestamp> {
        let lines = self.commands.values().filter_map(|line| line.places.first());
        let keyed = self.keyed.iter().flat_map(|keyed| keyed.firsts());
        lines.chain(keyed).min().map(|place| place.ready_at)
    }
}
