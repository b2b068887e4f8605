//! Ready attempts, by module and command, smallest rank first.

use std::collections::BTreeMap;

use windlass_core::{ActKey, Name, Ready, TaskId};

use super::{
    LimitedLine, Line, LinePlace,
    standing::{Admission, Place, Standing},
};
use crate::ports::{QueuePause, QueueState, Wish};

/// The ready attempts of all modules.
#[derive(Debug, Default)]
pub(super) struct Queues {
    modules: BTreeMap<Name, Queue>,
}

/// The ready attempts of one module.
#[derive(Debug, Default)]
struct Queue {
    /// One line per command, so that a worker that lacks some never walks over theirs.
    commands: BTreeMap<Name, Standing>,
    /// Attempts in memory.
    ready: u64,
    running: u64,
    paused: Option<QueuePause>,
    /// Something waited here at some time.
    used: bool,
}

impl Queues {
    fn queue(&mut self, module: &Name) -> &mut Queue {
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
        let place = Place::new(task, key, ready);
        let line = match queue.commands.get_mut(&ready.command) {
            Some(line) => line,
            None => queue.commands.entry(ready.command.clone()).or_default(),
        };
        if line.places.insert(place) {
            queue.ready += 1;
        }
        queue.used = true;
    }

    pub(super) fn remove(&mut self, task: TaskId, key: ActKey, ready: &Ready) {
        let Some(queue) = self.modules.get_mut(&ready.module) else { return };
        let Some(line) = queue.commands.get_mut(&ready.command) else { return };
        if line.places.remove(&Place::new(task, key, ready)) {
            queue.ready -= 1;
        }
        if line.is_forgettable() {
            queue.commands.remove(&ready.command);
        }
    }

    /// Takes the first in line for `wish`.
    pub(super) fn pop(&mut self, wish: &Wish) -> Option<Place> {
        let queue = self.modules.get_mut(&wish.module).filter(|queue| queue.paused.is_none())?;
        let first = |(name, line): (&Name, &Standing)| line.first().map(|place| (*place, name.clone()));
        let (place, command) = match &wish.commands {
            None => queue.commands.iter().filter_map(first).min()?,
            Some(commands) => {
                commands.iter().filter_map(|name| queue.commands.get_key_value(name).and_then(first)).min()?
            }
        };
        if let Some(line) = queue.commands.get_mut(&command) {
            line.places.remove(&place);
            if line.is_forgettable() {
                queue.commands.remove(&command);
            }
        }
        queue.ready -= 1;
        Some(place)
    }

    pub(super) fn count_running(&mut self, module: &Name, by: i64) {
        let queue = self.queue(module);
        queue.running = queue.running.saturating_add_signed(by);
    }

    pub(super) fn set_paused(&mut self, module: &Name, paused: Option<QueuePause>) {
        self.queue(module).paused = paused;
    }

    /// Whether this attempt stands in its line.
    pub(super) fn contains(&self, task: TaskId, key: ActKey, ready: &Ready) -> bool {
        let line = self.modules.get(&ready.module).and_then(|queue| queue.commands.get(&ready.command));
        line.is_some_and(|line| line.places.contains(&Place::new(task, key, ready)))
    }

    /// Attempts in memory that stand before this one, of its module.
    pub(super) fn before(&self, task: TaskId, key: ActKey, ready: &Ready) -> impl Iterator<Item = TaskId> {
        let place = Place::new(task, key, ready);
        let lines = self.modules.get(&ready.module).into_iter().flat_map(|queue| queue.commands.values());
        lines.flat_map(move |line| line.places.range(..place)).map(|place| place.task)
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

    /// A line that has less in memory than `wishes` may take, or than it is to have, while more rests.
    pub(super) fn short(&self, wishes: &[Wish], head: usize) -> Option<Line> {
        let is_short = |line: &Standing, free: u32| {
            let enough = usize::try_from(free).unwrap_or(usize::MAX).max(head / 4);
            line.is_short(enough)
        };
        wishes.iter().find_map(|wish| {
            let queue = self.modules.get(&wish.module).filter(|queue| queue.paused.is_none())?;
            let wanted = |name: &Name| wish.commands.as_ref().is_none_or(|commands| commands.contains(name));
            let mut lines = queue.commands.iter().filter(|(name, _)| wanted(name));
            let (command, _) = lines.find(|(_, line)| is_short(line, wish.free))?;
            Some(Line { module: wish.module.clone(), command: command.clone() })
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
                ready: queue.ready + queue.commands.values().map(|line| line.resting).sum::<u64>(),
                running: queue.running,
                oldest_ready_at: queue
                    .commands
                    .values()
                    .filter_map(|line| line.places.first())
                    .min()
                    .map(|place| place.ready_at),
                paused: queue.paused.clone(),
            })
            .collect()
    }
}
