//! The one place that changes a task: what each event does to it.

use crate::{
    Act, ActKey, ActState, Cause, DEADLINE_CODE, Direction, Event, EventKind, Failure, Pause, Phase,
    ResolutionKind, Task,
    planted::{Bug, is_planted},
};

/// Changes `task` by one event. Replaying all events of a task on [`Task::new`] gives the task.
pub fn evolve(task: &mut Task, event: &Event) {
    let at = event.at;
    task.state.events += 1;
    match &event.kind {
        EventKind::TaskAccepted | EventKind::AlarmRaised { .. } | EventKind::AlarmCleared { .. } => {}
        EventKind::TaskStarted => task.state.phase = Phase::Forward,
        EventKind::TaskPaused { .. } => task.state.pause = Pause::Held,
        EventKind::TaskResumed { .. } => task.state.pause = Pause::None,
        EventKind::TaskRollingBack { cause } => {
            task.state.phase = Phase::Backward;
            // A person who cancels wants it undone now.
            if matches!(cause, Cause::Cancel { .. }) {
                task.state.pause = Pause::None;
            }
            task.state.cause = Some(cause.clone());
        }
        EventKind::TaskStuck(stuck) => task.state.stuck = Some(stuck.clone()),
        EventKind::TaskUnstuck => task.state.stuck = None,
        EventKind::TaskEnded(ending) => {
            task.state.phase = Phase::Ended(*ending);
            task.state.ended_at = Some(at);
        }
        EventKind::ActReady { key, attempt } => {
            let deadline = task.action(*key).and_then(|action| action.deadline);
            if key.direction == Direction::Forward {
                task.state.steps[key.step].touched = true;
            }
            let act = act_mut(task, *key);
            // An attempt that was parked, or that follows a lost one, keeps the place it had in the queue.
            if !matches!(act.state, ActState::Parked | ActState::Ready) {
                act.ready_at = Some(at);
            }
            act.deadline_at = act.deadline_at.or(deadline.map(|deadline| at + deadline));
            act.attempt = *attempt;
            act.state = ActState::Ready;
        }
        EventKind::ActParked { key, attempt } => {
            let act = act_mut(task, *key);
            if act.state != ActState::Ready {
                act.ready_at = Some(at);
            }
            act.attempt = *attempt;
            act.state = ActState::Parked;
        }
        EventKind::ActStarted { key, .. } => {
            task.state.started_at = task.state.started_at.or(Some(at));
            let act = act_mut(task, *key);
            act.started_at = act.started_at.or(Some(at));
        }
        EventKind::ActRetrying { key, until, failure, .. } => {
            let act = act_mut(task, *key);
            act.failures += 1;
            act.failure = Some(failure.clone());
            act.state = ActState::Delayed { until: *until };
        }
        EventKind::ActPostponed { key, until, .. } => {
            let act = act_mut(task, *key);
            act.postponements += 1;
            act.state = ActState::Delayed { until: *until };
        }
        EventKind::ActLost { key, .. } => act_mut(task, *key).deaths += 1,
        EventKind::ActWithdrawn { key, touched, .. } => {
            if key.direction == Direction::Forward {
                task.state.steps[key.step].touched = *touched;
            }
            act_mut(task, *key).state = ActState::Idle;
        }
        EventKind::ActSucceeded { key, result, .. } => {
            let act = act_mut(task, *key);
            act.result.clone_from(result);
            settle(act, ActState::Succeeded, at);
        }
        EventKind::ActFailed { key, failure, .. } => {
            if key.direction == Direction::Forward && is_planted(Bug::FailedStepNotUndone) {
                task.state.steps[key.step].touched = false;
            }
            let act = act_mut(task, *key);
            act.failures += 1;
            act.failure = Some(failure.clone());
            settle(act, ActState::Failed, at);
        }
        EventKind::ActOverdue { key, .. } => {
            let act = act_mut(task, *key);
            act.overdue = true;
            act.failure = Some(Failure::new("the step's deadline passed", DEADLINE_CODE, false));
        }
        EventKind::ActSkipped { key } => settle(act_mut(task, *key), ActState::Skipped, at),
        EventKind::ActResolved { key, resolution, result, .. } => {
            let act = act_mut(task, *key);
            match resolution {
                ResolutionKind::Retry => {
                    *act = Act {
                        attempt: act.attempt,
                        started_at: act.started_at,
                        failure: act.failure.clone(),
                        ..Act::default()
                    };
                }
                ResolutionKind::Skip => settle(act, ActState::Skipped, at),
                ResolutionKind::Done => {
                    act.result.clone_from(result);
                    settle(act, ActState::Succeeded, at);
                }
                ResolutionKind::Rollback => {}
            }
        }
    }
}

fn settle(act: &mut Act, state: ActState, at: crate::Timestamp) {
    act.state = state;
    act.ended_at = Some(at);
}

fn act_mut(task: &mut Task, key: ActKey) -> &mut Act {
    let step = &mut task.state.steps[key.step];
    match key.direction {
        Direction::Forward => &mut step.forward,
        Direction::Rollback => &mut step.undo,
    }
}
