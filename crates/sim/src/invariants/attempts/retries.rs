//! Failures and lost workers are counted exactly, retries are used up before an execution fails for good, and each retry
//! waits as long as its policy says.

use std::collections::BTreeMap;

use windlass_core::{
    ActKey, ActState, Backoff, Direction, Event, EventKind, Outcome, POSTPONE_DEFAULT, Phase, ResolutionKind,
    Retry, RetryBy, TIMEOUT_CODE, Task, TaskId,
};
use windlass_store::{AttemptId, Change};

use super::{Invariant, broken};
use crate::{
    config::Config,
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

pub(super) struct Retries {
    /// Nothing separates workers from servers in this world: no worker is ever lost.
    no_losses: bool,
    counts: BTreeMap<(TaskId, ActKey), Counts>,
    /// What workers asked for that could not do an attempt yet.
    postponed: BTreeMap<(TaskId, ActKey, u32), Vec<u64>>,
}

/// What happened to an execution since an operator last had it tried again.
#[derive(Default)]
struct Counts {
    failures: u32,
    deaths: u32,
    has_failed: bool,
    /// The last event was the loss of the worker.
    was_lost: bool,
}

impl Retries {
    pub(super) fn new(config: &Config) -> Self {
        let faults = &config.faults;
        let rates =
            [faults.lost, faults.doubled, faults.delayed, faults.device_errors, config.outcomes.kills];
        let is_quiet = faults.kinds.is_empty() && rates.iter().all(|rate| *rate == 0);
        // A worker without an open poll may be silent for longer than its lease.
        let no_losses =
            is_quiet && config.special.is_empty() && config.workers.iter().all(|worker| worker.attached);
        Self { no_losses, counts: BTreeMap::new(), postponed: BTreeMap::new() }
    }

    fn look(&mut self, task: &Task, event: &Event) -> Result<(), String> {
        let Some(key) = event.kind.act() else { return Ok(()) };
        let counts = self.counts.entry((task.id, key)).or_default();
        let was_lost = std::mem::take(&mut counts.was_lost);
        let deaths_max = task.flow.deaths_max;
        match &event.kind {
            EventKind::ActRetrying { until, .. } => {
                counts.failures += 1;
                let waits = (*until - event.at).0;
                let retry = task.action(key).map(|action| &action.retry);
                let (least, most) = retry.map_or((0, 0), |retry| backoff(retry, counts.failures));
                if !(least..=most).contains(&waits) {
                    let failures = counts.failures;
                    return Err(format!(
                        "{key:?} waits {waits} ms after failure {failures}, not {least} to {most} ms"
                    ));
                }
            }
            EventKind::ActPostponed { attempt, until, .. } => {
                let waits = (*until - event.at).0;
                let asked = self.postponed.get(&(task.id, key, *attempt));
                if asked.is_some_and(|asked| !asked.contains(&waits)) {
                    return Err(format!("{key:?} waits {waits} ms, and its worker asked for {asked:?} ms"));
                }
            }
            EventKind::ActFailed { failure, .. } => {
                // A timeout can always be retried, whether the worker or the engine finds it.
                let is_retryable = failure.retryable || failure.code == TIMEOUT_CODE;
                check_last_chance(task, key, counts, was_lost, is_retryable)?;
                counts.failures += 1;
                counts.has_failed = true;
            }
            EventKind::ActLost { .. } => {
                counts.deaths += 1;
                counts.was_lost = true;
                // A task that rolls back records an attempt that its worker gave back as lost.
                let is_given_up = key.direction == Direction::Forward && task.state.phase == Phase::Backward;
                if self.no_losses && !is_given_up {
                    return Err(format!("{key:?} lost its worker, and no worker was unavailable"));
                }
            }
            EventKind::ActReady { .. } | EventKind::ActParked { .. } | EventKind::ActAwaiting { .. }
                if was_lost && counts.deaths >= deaths_max =>
            {
                return Err(format!("{key:?} is tried again after {} workers were lost", counts.deaths));
            }
            EventKind::ActSucceeded { .. } | EventKind::ActSkipped { .. } => counts.has_failed = false,
            EventKind::ActResolved { resolution: ResolutionKind::Retry, .. } => {
                self.begin_again(task.id, key)
            }
            _ => {}
        }
        Ok(())
    }

    /// An operator has an execution tried again; of a step with members those that failed.
    fn begin_again(&mut self, task: TaskId, key: ActKey) {
        self.counts.remove(&(task, key));
        self.counts.retain(|(other, member), counts| {
            let is_member = (*other, member.step, member.direction) == (task, key.step, key.direction);
            key.is_member() || !is_member || !counts.has_failed
        });
    }

    /// The task counts what was counted here.
    fn compare(&self, task: &Task, key: ActKey) -> Result<(), String> {
        let is_whole = task.flow.steps[key.step].each.is_some() && !key.is_member();
        let (Some(act), false) = (task.act(key), is_whole) else { return Ok(()) };
        let counts = self.counts.get(&(task.id, key));
        let counted = counts.map_or((0, 0), |counts| (counts.failures, counts.deaths));
        if (act.failures, act.deaths) != counted {
            return Err(format!(
                "{key:?} has {} failures and {} lost workers in its task, and {counted:?} in its events",
                act.failures, act.deaths
            ));
        }
        Ok(())
    }
}

impl Invariant for Retries {
    fn see(&mut self, seen: &Seen, truth: &Truth, _world: &World) -> Result<(), Violation> {
        let change = match seen {
            Seen::Said { id, outcome: Outcome::RetryLater { delay, .. } } => {
                let AttemptId { task, key, attempt, .. } = *id;
                let asked = delay.unwrap_or(POSTPONE_DEFAULT).0;
                self.postponed.entry((task, key, attempt)).or_default().push(asked);
                return Ok(());
            }
            Seen::Written(Change::Task(change)) => change,
            _ => return Ok(()),
        };
        let Some(known) = truth.tasks.get(&change.task.id) else { return Ok(()) };
        let mut task = Task::clone(&known.before);
        let violation = |message: String| {
            broken("retries", change.task.id, format!("task {}: {message}", change.task.id))
        };
        for event in &known.events {
            self.look(&task, event).map_err(violation)?;
            windlass_core::evolve(&mut task, event);
        }
        for key in known.events.iter().filter_map(|event| event.kind.act()) {
            self.compare(&task, key).map_err(violation)?;
        }
        Ok(())
    }
}

/// An execution fails for good only when it has no retry left, or too many workers were lost.
fn check_last_chance(
    task: &Task,
    key: ActKey,
    counts: &Counts,
    was_lost: bool,
    is_retryable: bool,
) -> Result<(), String> {
    let Some((action, act)) = task.action(key).zip(task.act(key)) else { return Ok(()) };
    let is_whole = task.flow.steps[key.step].each.is_some() && !key.is_member();
    let is_turned = key.direction == Direction::Forward && task.state.phase == Phase::Backward;
    let by_worker = action.worker().is_some();
    if is_whole || is_turned || !by_worker || act.overdue || act.deadline_at.is_some() {
        return Ok(());
    }
    if is_retryable && task.flow.retry_by == RetryBy::Engine && counts.failures < action.retry.max {
        let (failures, max) = (counts.failures, action.retry.max);
        return Err(format!("{key:?} fails for good after {failures} of {max} retries: {act:?}"));
    }
    let deaths_max = task.flow.deaths_max;
    if was_lost && counts.deaths < deaths_max && act.state == ActState::Ready {
        return Err(format!("{key:?} fails for good with {} of {deaths_max} workers lost", counts.deaths));
    }
    Ok(())
}

/// The shortest and the longest wait after this number of failures, in milliseconds.
fn backoff(retry: &Retry, failures: u32) -> (u64, u64) {
    let full = match retry.backoff {
        Backoff::None => 0,
        Backoff::Fixed => retry.base.0,
        Backoff::Exponential => {
            let doubled = (1..failures).fold(retry.base.0, |wait, _| wait.saturating_mul(2));
            doubled.min(retry.cap.0.max(retry.base.0))
        }
    };
    (full / 2, full)
}
