//! The effects of a transition, to be performed once it is on disk.

use serde::{Deserialize, Serialize};

use crate::{
    Act, ActKey, ActState, Actor, AlarmCommand, AlarmId, Awaited, ChildCommand, ChildEnd, Direction, Event,
    EventKind, LockCommand, LockName, LockOwner, Millis, Name, Parent, Phase, Task, TaskId, Timestamp,
    Wakeup, child, is_to_stop,
    planted::{Bug, is_planted},
};

/// One effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// The execution now waits for this; replaces its previous wait.
    Wait(Waiting),
    /// The execution waits for nothing any more.
    Forget(Wakeup),
    /// A message to another aggregate.
    Send(Message),
}

/// What an execution waits for: a worker, a time, or both. Derived from the task alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The execution, or the start.
    pub key: Wakeup,
    /// Number of the attempt that is ready, or of the last one.
    pub attempt: u32,
    /// An attempt is ready.
    pub ready: Option<Ready>,
    /// When the task must be woken: its start, a retry, or a deadline.
    pub due_at: Option<Timestamp>,
}

/// A ready attempt, claimed or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    /// Its queue.
    pub module: Name,
    /// The command to run.
    pub command: Name,
    /// The concurrency key under which limits count it.
    pub fairness: Option<Box<str>>,
    /// Its rank in the queue: smaller goes first.
    pub rank: i64,
    /// Since when it is ready.
    pub ready_at: Timestamp,
    /// The maximum duration of the attempt from its claim ([`Task::time_allowed`]).
    pub timeout: Millis,
    /// What happens to it while it has no claim.
    pub free: Free,
}

/// What happens to a ready attempt without a claim: it was not handed out yet, its worker released it, or no worker
/// named it after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Free {
    /// It is handed out.
    HandOut,
    /// Its task is paused or does not have its exclusive queue, and nothing new starts: it is parked.
    Park,
    /// It must stop, and no worker would ever report its end: it is given up.
    GiveUp,
}

/// A message from one aggregate to another: written in the sender's commit, consumed in the receiver's commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// To an alarm.
    Alarm {
        /// The alarm.
        id: AlarmId,
        /// The command to the alarm.
        command: AlarmCommand,
    },
    /// To a lock.
    Lock {
        /// The lock.
        name: LockName,
        /// The command to the lock.
        command: LockCommand,
    },
    /// From a lock to a task: the lock was granted to an execution.
    Granted {
        /// The execution.
        owner: LockOwner,
        /// The lock.
        name: LockName,
        /// The fencing token.
        fence: u64,
    },
    /// From a lock to a task: an operator took the lock from an execution.
    Seized {
        /// The execution.
        owner: LockOwner,
        /// The lock.
        name: LockName,
        /// The fencing token under which the execution held it.
        fence: u64,
        /// The operator's reason.
        reason: Box<str>,
        /// The operator.
        by: Option<Actor>,
    },
    /// From a task to the child task of one of its steps.
    Child {
        /// The child task.
        child: TaskId,
        /// The step that waits for it.
        parent: Parent,
        /// The command to the child task.
        command: ChildCommand,
    },
    /// From a task to its parent task: it has ended.
    ChildEnded {
        /// The parent task.
        parent: TaskId,
        /// The waiting step.
        key: ActKey,
        /// The child task that has ended.
        child: TaskId,
        /// Its result.
        end: ChildEnd,
    },
}

/// What the execution or the start waits for in this state of the task, if for anything.
#[must_use]
pub fn waiting(task: &Task, key: Wakeup) -> Option<Waiting> {
    let (ready, due_at) = match awaited(task, key)? {
        For::Time(at) => (None, Some(at)),
        For::Worker { key, or_time } => (Some(ready(task, key)?), or_time),
    };
    let attempt = match key {
        Wakeup::Start | Wakeup::Deadline => 0,
        Wakeup::Act(key) => task.act(key)?.attempt,
    };
    Some(Waiting { key, attempt, ready, due_at })
}

/// The kind of a wait.
enum For {
    Worker { key: ActKey, or_time: Option<Timestamp> },
    Time(Timestamp),
}

/// What the execution or the start waits for, if for anything.
fn awaited(task: &Task, key: Wakeup) -> Option<For> {
    let key = match key {
        Wakeup::Start => {
            return task.input.at.filter(|_| task.state.phase == Phase::Scheduled).map(For::Time);
        }
        Wakeup::Deadline => {
            let runs = matches!(task.state.phase, Phase::Scheduled | Phase::Forward);
            return task.deadline_at().filter(|_| runs).map(For::Time);
        }
        Wakeup::Act(key) => key,
    };
    let act = task.act(key)?;
    let deadline_at = act.deadline_at.filter(|_| !act.overdue);
    match act.state {
        ActState::Ready => {
            task.action(key)?.worker()?;
            Some(For::Worker { key, or_time: [deadline_at, act.start_by()].into_iter().flatten().min() })
        }
        ActState::Delayed { until } => {
            Some(For::Time(deadline_at.map_or(until, |deadline_at| deadline_at.min(until))))
        }
        // A child task observes the deadline it was given.
        ActState::Awaiting(Awaited::Child) => None,
        ActState::Awaiting(_) => deadline_at.map(For::Time),
        _ => None,
    }
}

/// The ready attempt of an execution by workers.
fn ready(task: &Task, key: ActKey) -> Option<Ready> {
    let (act, action) = (task.act(key)?, task.action(key)?);
    let (module, command) = action.worker()?;
    let ready_at = act.ready_at.unwrap_or_default();
    Some(Ready {
        module: module.clone(),
        command: command.clone(),
        // A rollback counts under the concurrency key of its forward execution.
        fairness: act.fairness().map(Box::from).or_else(|| {
            let forward = ActKey { direction: Direction::Forward, ..key };
            task.act(forward)?.fairness().map(Box::from)
        }),
        rank: task.rank(ready_at),
        ready_at,
        timeout: task.time_allowed(key).unwrap_or(action.attempt_timeout()),
        free: when_free(task, key),
    })
}

/// What happens to the ready attempt of an execution while it has no claim.
#[must_use]
pub fn when_free(task: &Task, key: ActKey) -> Free {
    if is_to_stop(task, key) {
        Free::GiveUp
    } else if task.state.pause.is_paused() && !is_planted(Bug::PauseIgnored) || task.lacks_queue() {
        Free::Park
    } else {
        Free::HandOut
    }
}

/// All waits of a task.
#[must_use]
pub fn waits(task: &Task) -> Vec<Waiting> {
    let acts = task.open_acts().map(|(key, _)| Wakeup::Act(key));
    [Wakeup::Start, Wakeup::Deadline].into_iter().chain(acts).filter_map(|key| waiting(task, key)).collect()
}

/// The effects of the transition from `before` to `after` by `events`.
pub(crate) fn effects(before: &Task, after: &Task, events: &[Event]) -> Vec<Effect> {
    let mut keys = Vec::with_capacity(events.len());
    for event in events {
        keys.extend(event.kind.act().map(Wakeup::Act));
    }
    if before.state.phase != after.state.phase
        || events.iter().any(|event| event.kind == EventKind::TaskAccepted)
    {
        // A task that starts rolling back has other waits: attempts in flight must stop.
        keys.extend([Wakeup::Start, Wakeup::Deadline]);
        keys.extend(after.open_acts().map(|(key, _)| Wakeup::Act(key)));
    }
    if before.state.pause != after.state.pause || before.state.queue.state != after.state.queue.state {
        // Claimed attempts stay with their workers, and attempts released during a pause or without the exclusive queue
        // are not handed out again.
        let ready = after.open_acts().filter(|(_, act)| act.state == ActState::Ready);
        keys.extend(ready.map(|(key, _)| Wakeup::Act(key)));
    }
    if events.iter().any(|event| matches!(event.kind, EventKind::QueueLost { .. })) {
        // Executions release their locks with the queue.
        keys.extend(before.open_acts().map(|(key, _)| Wakeup::Act(key)));
    }
    keys.sort_unstable();
    keys.dedup();
    let mut effects = Vec::with_capacity(keys.len());
    for key in &keys {
        if let Some(waiting) = waiting(after, *key) {
            effects.push(Effect::Wait(waiting));
        } else if before.state.events > 0 && awaited(before, *key).is_some() {
            // Before it was accepted, there were no waits.
            effects.push(Effect::Forget(*key));
        }
    }
    for event in events {
        effects.extend(message(after, event).map(Effect::Send));
    }
    for key in keys {
        if let Wakeup::Act(key) = key {
            effects.extend(lock_messages(before, after, key).into_iter().map(Effect::Send));
        }
    }
    effects.extend(queue_messages(before, after).into_iter().map(Effect::Send));
    effects.extend(child::messages(before, after, events).into_iter().map(Effect::Send));
    effects
}

/// Messages to the lock that is the exclusive queue of the task: it leaves the queue, and joins it.
fn queue_messages(before: &Task, after: &Task) -> Vec<Message> {
    let Some(name) = &after.input.exclusive else { return Vec::new() };
    let (was, is) = (before.queue_owner(), after.queue_owner());
    let release = was.filter(|_| was != is).map(|owner| LockCommand::Release { owner });
    let join = is.filter(|_| was != is).map(|owner| LockCommand::Join { owner, order: order(after) });
    let to_lock = |command| Message::Lock { name: name.clone(), command };
    release.into_iter().chain(join).map(to_lock).collect()
}

/// The time by which a task is ordered in its exclusive queue: its start time, else when it was accepted. A task that
/// joins for the first time without a start time goes behind all others, whatever the clocks of the servers say.
fn order(task: &Task) -> Option<Timestamp> {
    let joins_again = task.state.queue.turn > 1;
    task.input.at.or_else(|| joins_again.then_some(task.input.created_at))
}

/// Messages to locks about an execution: unwanted locks are released, and the next one is requested.
fn lock_messages(before: &Task, after: &Task, key: ActKey) -> Vec<Message> {
    let (was, is) = (before.act(key), after.act(key));
    if [was, is].into_iter().flatten().all(|act| act.locks().is_empty()) {
        return Vec::new();
    }
    let claims = |act: Option<&Act>, wanted: &Act, turn: u32| -> Vec<LockName> {
        let others = |name: &&LockName| {
            act.is_none_or(|act| act.turn() != turn || act.claimed_locks().all(|other| other != *name))
        };
        wanted.claimed_locks().filter(others).cloned().collect()
    };
    let owner = |turn: u32| LockOwner { task: after.id, key, turn };
    let mut messages = Vec::new();
    if let Some(was) = was {
        let is_seized = |name: &LockName| {
            let same = is.filter(|is| is.turn() == was.turn());
            same.is_some_and(|is| is.locks().iter().any(|lock| lock.name == *name && lock.seized))
        };
        for name in claims(is, was, was.turn()).into_iter().filter(|name| !is_seized(name)) {
            messages.push(Message::Lock { name, command: LockCommand::Release { owner: owner(was.turn()) } });
        }
    }
    if let Some(is) = is {
        for name in claims(was, is, is.turn())
            .into_iter()
            .filter(|name| is.wanted_lock().is_some_and(|lock| lock.name == *name))
        {
            messages.push(Message::Lock { name, command: LockCommand::Acquire { owner: owner(is.turn()) } });
        }
    }
    messages
}

fn message(task: &Task, event: &Event) -> Option<Message> {
    let name = |step: Option<usize>| step.map(|step| task.flow.steps[step].name.clone());
    match &event.kind {
        EventKind::AlarmRaised { stuck } => {
            let step = name(stuck.step);
            Some(Message::Alarm {
                id: AlarmId::new(stuck.kind, task.id, step.as_ref()),
                command: AlarmCommand::Raise {
                    kind: stuck.kind.into(),
                    task: task.id,
                    step,
                    message: stuck.message.clone(),
                },
            })
        }
        EventKind::AlarmCleared { kind, step, by } => Some(Message::Alarm {
            id: AlarmId::new(*kind, task.id, name(*step).as_ref()),
            command: AlarmCommand::Resolve { by: by.clone() },
        }),
        _ => None,
    }
}
