//! A server's explanation why a task is in its state is true, for the task at some time since the question
//! and for everything that it names. It names everything that the task waits for, and is never empty.
//!
//! [`unblock_tasks`](crate::actors::unblock_tasks) checks that explanations are sufficient: it removes the
//! named blocker, and the task moves.

mod acts;
mod facts;
mod handing_out;
mod others;
mod over;

use windlass_core::{ActKey, ActState, Ending, Phase, Task, TaskStatus};
use windlass_engine::{Reason, Why};

use super::{Invariant, broken};
use crate::{
    answer::{Answer, kind},
    config::Config,
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};
use facts::Facts;

pub(super) struct Reasons {
    facts: Facts,
}

impl Reasons {
    pub(super) fn new(config: &Config) -> Self {
        Self { facts: Facts::new(config) }
    }
}

impl Invariant for Reasons {
    fn see(&mut self, seen: &Seen, truth: &Truth, world: &World) -> Result<(), Violation> {
        self.facts.see(seen, truth, world);
        match seen {
            Seen::Explained(answer) => {
                let check = Check { facts: &self.facts, truth, world, answer };
                check.run().map_err(|message| {
                    let task = answer.loaded.task.id;
                    let said = &answer.explanation;
                    let message = format!("task {task}, asked at {}: {message}; {said:?}", answer.asked_at);
                    broken("why", task, message)
                })
            }
            Seen::Unexplained { task, message } => Err(broken("why", *task, message.clone())),
            _ => Ok(()),
        }
    }
}

/// An explanation to check against the truth.
#[derive(Clone, Copy)]
struct Check<'a> {
    facts: &'a Facts,
    truth: &'a Truth,
    world: &'a World,
    answer: &'a Answer,
}

impl Check<'_> {
    fn run(self) -> Result<(), String> {
        let loaded = &self.answer.loaded.task;
        let task = self.version(loaded)?;
        let said = &self.answer.explanation;
        for reason in &said.reasons {
            self.world.count(kind(&reason.why));
            self.check_reason(task, reason)?;
        }
        if said.more > 0 {
            return Err(format!("{} more reasons of so few steps", said.more));
        }
        self.check_whole(task, &said.reasons)?;
        self.check_nothing_is_missing(task, &said.reasons)
    }

    /// The task as the explanation saw it: it was in that state at some time since the question.
    fn version(&self, told: &Task) -> Result<&Task, String> {
        let events = told.state.events;
        let version = self.facts.task_with(told.id, events, self.answer.asked_at);
        version.ok_or_else(|| format!("task {} did not have {events} events since the question", told.id))
    }

    fn check_reason(&self, task: &Task, reason: &Reason) -> Result<(), String> {
        let checked = match reason.key {
            Some(key) => self.check_act(task, key, &reason.why),
            None => self.check_task(task, &reason.why),
        };
        checked.map_err(|message| format!("`{}` of {:?}: {message}", reason.why.as_str(), reason.key))
    }

    /// Checks a reason about a task as a whole.
    fn check_task(&self, task: &Task, why: &Why) -> Result<(), String> {
        match why {
            Why::Ended(status) => {
                let Phase::Ended(ending) = task.state.phase else { return Err("it has not ended".into()) };
                let same = match ending {
                    Ending::Succeeded => *status == TaskStatus::Succeeded,
                    Ending::RolledBack => *status == TaskStatus::RolledBack,
                    Ending::Failed => *status == TaskStatus::Failed,
                    Ending::Cancelled => *status == TaskStatus::Cancelled,
                };
                holds(same, || format!("it ended as {ending:?}"))
            }
            Why::Stuck { kind, .. } => {
                let stuck = task.state.stuck.as_ref().filter(|stuck| stuck.step.is_none());
                holds(stuck.is_some_and(|stuck| stuck.kind == *kind), || format!("it is {stuck:?}"))
            }
            Why::Paused { in_flight, since, by } => {
                holds(task.state.pause.is_paused(), || "it is not paused".into())?;
                let state = |act: &ActState| matches!(act, ActState::Ready | ActState::Awaiting(_));
                let open = task.open_acts().filter(|(_, act)| state(&act.state)).count();
                holds(*in_flight <= open, || format!("at most {open} can be in flight"))?;
                let told = since.map(|since| (since, by.clone()));
                let mut pauses =
                    self.facts.pauses.get(&task.id).into_iter().flat_map(|pauses| pauses.since(0));
                holds(told.is_some_and(|told| pauses.any(|pause| *pause == told)), || {
                    "nobody paused it then".into()
                })
            }
            Why::Scheduled { at } => {
                let is_so = task.state.phase == Phase::Scheduled && task.input.at == Some(*at);
                holds(is_so, || format!("it is {:?} with {:?}", task.state.phase, task.input.at))
            }
            Why::Exclusive { queue, holder, before, .. } => {
                let owner = task.queue_owner().filter(|_| task.waits_for_queue());
                let owner = owner.filter(|_| task.input.exclusive.as_ref() == Some(queue));
                let owner = owner.ok_or("it does not wait for this queue")?;
                self.check_holder(queue, owner, holder.as_ref(), *before)
            }
            _ => Err("it says nothing of the task as a whole".into()),
        }
    }

    /// An obstacle of the task as a whole is named, and comes first.
    fn check_whole(&self, task: &Task, reasons: &[Reason]) -> Result<(), String> {
        let has = |is: fn(&Why) -> bool| reasons.iter().any(|reason| is(&reason.why));
        if task.is_ended() {
            return holds(reasons.len() == 1 && has(|why| matches!(why, Why::Ended(_))), || {
                "it has ended, and that is all".into()
            });
        }
        if task.state.stuck.is_some() {
            let first = reasons.first().is_some_and(|first| matches!(first.why, Why::Stuck { .. }));
            return holds(first, || format!("it waits for an operator first: {:?}", task.state.stuck));
        }
        let paused = task.state.pause.is_paused();
        holds(!paused || has(|why| matches!(why, Why::Paused { .. })), || "it is paused".into())?;
        let waits = task.waits_for_queue();
        holds(!waits || has(|why| matches!(why, Why::Exclusive { .. })), || "it waits for its queue".into())?;
        let scheduled = task.state.phase == Phase::Scheduled;
        holds(!scheduled || has(|why| matches!(why, Why::Scheduled { .. })), || "it is scheduled".into())
    }

    /// Everything that a step waits for is named; parked steps are covered by the pause.
    fn check_nothing_is_missing(&self, task: &Task, reasons: &[Reason]) -> Result<(), String> {
        for (key, act) in task.step_acts().filter(|_| !task.is_ended()) {
            let waits = match act.state {
                ActState::Ready | ActState::Delayed { .. } | ActState::Awaiting(_) | ActState::Fanned => true,
                _ => acts::has_open_members(task, key),
            };
            let told = reasons.iter().any(|reason| reason.key == Some(key));
            holds(told || !waits, || format!("{key:?} is {:?}, and no reason names it", act.state))?;
        }
        Ok(())
    }

    /// The name of the step of an execution.
    fn step_name(task: &Task, key: ActKey) -> Option<&str> {
        task.flow.steps.get(key.step).map(|step| &*step.name)
    }
}

/// An error unless the condition is true.
fn holds(it: bool, wrong: impl FnOnce() -> String) -> Result<(), String> {
    if it { Ok(()) } else { Err(wrong()) }
}
