//! Reasons of steps and their items, by what these wait for.

use windlass_core::{Act, ActKey, ActState, Awaited, Direction, Phase, Task, Timestamp};
use windlass_engine::{Reason, Why};

use super::{Check, facts::AttemptEnd, holds};

impl Check<'_> {
    /// Checks a reason of an execution against its state.
    pub(super) fn check_act(&self, task: &Task, key: ActKey, why: &Why) -> Result<(), String> {
        let Some(act) = task.act(key) else { return Err("there is no such act".into()) };
        if act.state == ActState::Fanned || has_open_members(task, key) {
            return self.check_members(task, key, why);
        }
        match act.state {
            ActState::Ready => self.check_ready(task, key, act, why),
            ActState::Delayed { until } => self.check_delayed(task, key, act, until, why),
            ActState::Awaiting(Awaited::Signal) => check_signal(task, key, act, why),
            ActState::Awaiting(Awaited::Child) => self.check_child(act, why),
            ActState::Awaiting(Awaited::Lock) => self.check_lock(task, key, act, why),
            ActState::Failed => {
                let Why::Stuck { message, .. } = why else { return Err("it has failed".into()) };
                let failure = act.failure.as_ref().map(|failure| &*failure.message);
                holds(failure.is_none_or(|failure| failure == message), || format!("it failed: {failure:?}"))
            }
            state => Err(format!("it is {state:?}")),
        }
    }

    fn check_delayed(
        &self,
        task: &Task,
        key: ActKey,
        act: &Act,
        due: Timestamp,
        why: &Why,
    ) -> Result<(), String> {
        let deadline = act.deadline_at.filter(|at| !act.overdue && *at <= due);
        let end = self.facts.ends.get(&(task.id, key, act.attempt));
        let is_so = match why {
            Why::DeadlineFirst { at } => deadline == Some(*at),
            _ if deadline.is_some() => false,
            Why::Delayed { until } => act.attempt == 0 && *until == due,
            Why::Postponed { attempt, until, message } => {
                let said = match end {
                    Some(AttemptEnd::Postponed(said)) => said,
                    _ => return Err(format!("attempt {attempt} asked for nothing: {end:?}")),
                };
                *attempt == act.attempt && *until == due && message.as_deref().unwrap_or_default() == &**said
            }
            Why::Retry { attempt, failures, retries, until, message } => {
                let retry = task.action(key).map(|action| action.retry.max);
                let failure = act.failure.as_ref().map(|failure| &*failure.message);
                (*attempt, *failures, *until) == (act.attempt, act.failures, due)
                    && act.attempt > 0
                    && Some(*retries) == retry
                    && message.as_deref() == failure
                    && end.is_none_or(|end| *end == AttemptEnd::Failed)
            }
            _ => false,
        };
        holds(is_so, || {
            format!("its next attempt is due at {due:?}, its deadline at {deadline:?}, after {act:?}")
        })
    }

    fn check_members(&self, task: &Task, key: ActKey, why: &Why) -> Result<(), String> {
        let Why::Members { total, done, failed, under_way, first } = why else {
            return Err("its members do it".into());
        };
        let Some(members) = &task.state.steps[key.step].members else {
            return Err("it has no members".into());
        };
        let side = members.side(key.direction);
        let counts = [members.total(), side.satisfied, count(side.failed.size()), count(side.open.size())];
        let told = [*total, *done, *failed, *under_way];
        holds(told == counts, || format!("its members are {counts:?}"))?;
        let open: Vec<ActKey> = side.open.iter().map(|number| key.of_member(*number)).collect();
        match first.as_deref() {
            Some(reason @ Reason { key: Some(member), .. }) => {
                self.world.count(crate::answer::kind(&reason.why));
                holds(open.contains(member), || format!("{open:?} are open"))?;
                self.check_reason(task, reason)
            }
            Some(reason) => Err(format!("it is about no member: {reason:?}")),
            None => {
                let parked = |key: &ActKey| task.act(*key).is_some_and(|act| act.state == ActState::Parked);
                holds(open.is_empty() || open.iter().any(parked), || format!("{open:?} wait for something"))
            }
        }
    }
}

fn check_signal(task: &Task, key: ActKey, act: &Act, why: &Why) -> Result<(), String> {
    let Why::Signal { name, since, until } = why else { return Err("it waits for a signal".into()) };
    let doer = task.action(key).map(|action| &action.doer);
    let same = matches!(doer, Some(windlass_core::Doer::Signal { name: other }) if name == other);
    holds(same && *since == act.ready_at && *until == act.deadline_at, || {
        format!("it waits for {doer:?} from {:?} to {:?}", act.ready_at, act.deadline_at)
    })
}

/// Whether items of a step are in progress.
pub(super) fn has_open_members(task: &Task, key: ActKey) -> bool {
    let members = task.state.steps[key.step].members.as_ref();
    !key.is_member() && members.is_some_and(|members| !members.side(key.direction).open.is_empty())
}

/// Whether an attempt must stop: its task rolls back or is being stopped, or its time is over.
pub(super) fn is_to_end(task: &Task, key: ActKey, act: &Act) -> bool {
    let is_stopped = task.state.pause.stops();
    act.overdue || is_stopped || key.direction == Direction::Forward && task.state.phase == Phase::Backward
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
