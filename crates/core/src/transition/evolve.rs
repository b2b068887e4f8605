//! The only place that changes a task: the change made by each event.

use crate::{
    Act, ActKey, ActState, Awaited, Cause, DEADLINE_CODE, Direction, Event, EventKind, Failure, HeldLock,
    Json, KeptSignal, LockName, Members, Pause, Phase, QueuePlace, QueueState, ResolutionKind, Role, Task,
    Timestamp,
    planted::{Bug, is_planted},
    rules::DEADLINE_PASSED,
};

/// Changes `task` by one event. Replaying all events of a task on [`Task::new`] gives the task.
pub fn evolve(task: &mut Task, event: &Event) {
    let at = event.at;
    task.state.events += 1;
    match &event.kind {
        EventKind::TaskAccepted | EventKind::AlarmRaised { .. } | EventKind::AlarmCleared { .. } => {}
        EventKind::TaskStarted => task.state.phase = Phase::Forward,
        EventKind::TaskPaused { .. } => task.state.pause = Pause::Held,
        EventKind::TaskStopping { .. } => task.state.pause = Pause::Stopping,
        EventKind::TaskSuspended { .. } => task.state.pause = Pause::Suspended,
        EventKind::TaskResumed { .. } => task.state.pause = Pause::None,
        EventKind::TaskRollingBack { cause } => {
            // A completed child task that is rolled back becomes active again.
            (task.state.phase, task.state.ended_at) = (Phase::Backward, None);
            // A cancel also ends a pause: the rollback starts at once.
            if matches!(cause, Cause::Cancel { .. } | Cause::Parent) {
                task.state.pause = Pause::None;
            }
            task.state.cause = Some(cause.clone());
            // Once the task has failed, the `on_error` step runs.
            if !matches!(cause, Cause::Cancel { .. } | Cause::Parent | Cause::Rollout { .. }) {
                for (index, definition) in task.flow.steps.iter().enumerate() {
                    if definition.role == Role::OnError {
                        task.state.step_mut(index).touched = true;
                    }
                }
            }
        }
        EventKind::TaskStuck(stuck) => task.state.stuck = Some(stuck.clone()),
        EventKind::TaskUnstuck => task.state.stuck = None,
        EventKind::TaskEnded(ending) => {
            task.state.phase = Phase::Ended(*ending);
            task.state.ended_at = Some(at);
            task.state.queue.state = QueueState::Out;
        }
        EventKind::ActReady { key, attempt } => {
            let start_within = task.action(*key).and_then(|action| action.start_within);
            touch(task, *key);
            begin(task, *key, *attempt, at);
            change(task, *key, |act| {
                // An attempt that was parked, or that follows a lost one, keeps its place in the queue.
                if !matches!(act.state, ActState::Parked | ActState::Ready) {
                    act.ready_at = Some(at);
                }
                let start_by = start_within.map(|span| at + span);
                set_start_by(act, start_by.filter(|_| !is_planted(Bug::StartWithinForgotten)));
                act.state = ActState::Ready;
            });
        }
        EventKind::ActParked { key, attempt } => {
            let lacks_queue = task.lacks_queue();
            change(task, *key, |act| {
                if act.state != ActState::Ready {
                    act.ready_at = Some(at);
                }
                act.attempt = *attempt;
                act.state = ActState::Parked;
                // The task that has the queue may need them.
                if lacks_queue {
                    forget_locks(act);
                }
            });
        }
        EventKind::ActStarted { key, .. } => start(task, *key, at),
        EventKind::ActRetrying { key, until, failure, .. } => change(task, *key, |act| {
            act.failures += 1;
            act.failure = Some(failure.clone());
            act.state = ActState::Delayed { until: *until };
        }),
        EventKind::ActPostponed { key, until, .. } => change(task, *key, |act| {
            act.change_extras(|extras| extras.postponements += 1);
            act.state = ActState::Delayed { until: *until };
        }),
        EventKind::ActLost { key, .. } => change(task, *key, |act| {
            act.deaths += if is_planted(Bug::DeathCountedTwice) { 2 } else { 1 };
        }),
        // The following event determines the state.
        EventKind::ActReclaimed { .. } | EventKind::ActStopped { .. } => {}
        EventKind::ActWithdrawn { key, touched, .. } => {
            if key.direction == Direction::Forward {
                set_touched(task, *key, *touched);
            }
            change(task, *key, |act| {
                act.state = ActState::Idle;
                forget_locks(act);
            });
        }
        EventKind::ActSucceeded { key, result, .. } => change(task, *key, |act| {
            act.result.clone_from(result);
            settle(act, ActState::Succeeded, at);
        }),
        EventKind::ActFailed { key, failure, .. } => {
            if key.direction == Direction::Forward && is_planted(Bug::FailedStepNotUndone) {
                task.state.step_mut(key.step).touched = false;
            }
            change(task, *key, |act| {
                act.failures += 1;
                act.failure = Some(failure.clone());
                settle(act, ActState::Failed, at);
            });
        }
        EventKind::ActOverdue { key, .. } => change(task, *key, |act| {
            act.overdue = true;
            // A worker has claimed it, so it was taken.
            set_start_by(act, None);
            act.failure = Some(Failure::new(DEADLINE_PASSED, DEADLINE_CODE, false));
        }),
        EventKind::ActResultDropped { key, failure, .. } => change(task, *key, |act| {
            act.overdue = true;
            act.failure = Some(failure.clone());
        }),
        EventKind::ActSkipped { key } => change(task, *key, |act| settle(act, ActState::Skipped, at)),
        EventKind::ActResolved { key, resolution, result, .. } => {
            if *resolution == ResolutionKind::Retry && retry_members(task, *key) {
                return;
            }
            change(task, *key, |act| match resolution {
                ResolutionKind::Retry => again(act),
                ResolutionKind::Skip => settle(act, ActState::Skipped, at),
                ResolutionKind::Done => {
                    act.result.clone_from(result);
                    // No child task executed it, so none can roll it back.
                    act.change_extras(|extras| extras.child = None);
                    settle(act, ActState::Succeeded, at);
                }
                ResolutionKind::Rollback => {}
            });
        }
        EventKind::ActDelayed { key, until } => {
            change(task, *key, |act| act.state = ActState::Delayed { until: *until });
        }
        EventKind::ActKeyed { key, fairness } => {
            change(task, *key, |act| act.change_extras(|extras| extras.fairness = Some(fairness.clone())));
        }
        EventKind::ActFanned { key, members } => {
            let step = task.state.step_mut(key.step);
            // The step as a whole has no attempts. The forward execution has started; the rollback starts with the
            // first item.
            if key.direction == Direction::Forward {
                step.members = Some(Box::new(Members::new(*members)));
                step.forward.attempt = 1;
            }
            change(task, *key, |act| act.state = ActState::Fanned);
        }
        EventKind::ActAwaiting { key, attempt, awaited, child, locks } => {
            if *awaited == Awaited::Child {
                touch(task, *key);
                start(task, *key, at);
            }
            begin(task, *key, *attempt, at);
            if *awaited == Awaited::Signal {
                // No worker takes such an attempt: it starts with the wait.
                begin_deadline(task, *key, at);
            }
            change(task, *key, |act| {
                act.ready_at = Some(at);
                act.change_extras(|extras| {
                    extras.child = child.or(extras.child);
                    if *awaited == Awaited::Lock {
                        extras.locks = locks.iter().cloned().map(HeldLock::wanted).collect();
                        extras.turn += 1;
                    }
                });
                act.state = ActState::Awaiting(*awaited);
            });
        }
        EventKind::ActLocked { key, name, fence } => {
            change_lock(task, *key, name, |lock| lock.fence = Some(*fence));
        }
        EventKind::ActUnlocked { key, name, .. } => {
            change_lock(task, *key, name, |lock| lock.seized = true);
        }
        EventKind::ActTaken { key, .. } => {
            change(task, *key, |act| set_start_by(act, None));
            if !is_planted(Bug::DeadlineNotKept) {
                begin_deadline(task, *key, at);
            }
        }
        EventKind::ActUnanswered { key, .. } => change(task, *key, |act| {
            // The actual duration of the attempt is unknown, so the next one has a new deadline.
            (act.deadline_at, act.overdue) = (None, false);
        }),
        EventKind::QueueJoined => {
            let turn = task.state.queue.turn + 1;
            task.state.queue = QueuePlace { turn, state: QueueState::Waiting };
        }
        EventKind::QueueGranted { fence } => task.state.queue.state = QueueState::Granted { fence: *fence },
        EventKind::QueueLost { .. } => {
            task.state.queue.state = QueueState::Out;
            // A worker may have a ready attempt, which keeps its locks.
            let waiting = task.open_acts().filter(|(_, act)| act.state != ActState::Ready);
            let waiting: Vec<ActKey> = waiting.map(|(key, _)| key).collect();
            waiting.into_iter().for_each(|key| change(task, key, forget_locks));
        }
        EventKind::SignalKept { name, params, by } => {
            task.state.signals.push(KeptSignal { name: name.clone(), params: params.clone(), by: by.clone() })
        }
        EventKind::SignalReceived { name, .. } => {
            task.state.started_at = task.state.started_at.or(Some(at));
            if let Some(place) = task.state.signals.iter().position(|signal| signal.name == *name) {
                task.state.signals.remove(place);
            }
        }
        // Only stores use it, when they look for tasks with the same unique key.
        EventKind::UniqueOverridden { .. } => {}
        EventKind::StepAmended { step, after, .. } => {
            let step = task.state.step_mut(*step);
            let before = step.amended.as_deref().map(Json::from_stored);
            let amended = Json::merge(before.iter().chain([&Json::from_stored(after)]));
            step.amended = Some(amended.as_str().into());
            if let Some(members) = &mut step.members {
                members.handed = Default::default();
            }
        }
    }
}

/// Records the start of an attempt.
fn start(task: &mut Task, key: ActKey, at: Timestamp) {
    task.state.started_at = task.state.started_at.or(Some(at));
    // A fanned-out step starts with the first of its items.
    for key in [key, key.of_member(0)] {
        change(task, key, |act| act.started_at = act.started_at.or(Some(at)));
    }
    begin_deadline(task, key, at);
}

/// Starts the deadline of all attempts: the first attempt was claimed at `at`.
fn begin_deadline(task: &mut Task, key: ActKey, at: Timestamp) {
    let Some(deadline) = task.action(key).and_then(|action| action.deadline) else { return };
    change(task, key, |act| act.deadline_at = act.deadline_at.or(Some(at + deadline)));
}

/// Sets the number of an attempt.
fn begin(task: &mut Task, key: ActKey, attempt: u32, at: Timestamp) {
    // The rollback of an item counts as a rollback attempt of its step.
    if key.is_member() && key.direction == Direction::Rollback {
        task.state.step_mut(key.step).undo.attempt = 1;
    }
    if is_planted(Bug::DeadlineInQueue) {
        begin_deadline(task, key, at);
    }
    change(task, key, |act| act.attempt = attempt);
}

/// Records that the execution may have effects from now on.
fn touch(task: &mut Task, key: ActKey) {
    if key.direction == Direction::Forward {
        set_touched(task, key, true);
    }
}

fn set_touched(task: &mut Task, key: ActKey, touched: bool) {
    let step = task.state.step_mut(key.step);
    match &mut step.members {
        // The state of a fanned-out step follows from its items.
        Some(members) if key.is_member() => {
            members.change(key.member, |member| member.touched = touched);
            step.touched = members.touched() > 0;
        }
        _ => step.touched = touched,
    }
}

/// Resets an execution for another try by an operator: all its retries are available again.
fn again(act: &mut Act) {
    *act = Act {
        attempt: act.attempt,
        started_at: act.started_at,
        failure: act.failure.take(),
        extras: act.extras.take(),
        ..Act::default()
    };
    if act.extras.is_some() {
        act.change_extras(|extras| {
            extras.postponements = 0;
            extras.start_by = None;
            extras.locks.clear();
        });
    }
}

/// Restarts the failed items of a fanned-out step for an operator. Returns whether the step is one.
fn retry_members(task: &mut Task, key: ActKey) -> bool {
    let step = task.state.step_mut(key.step);
    let (Some(members), false) = (&mut step.members, key.is_member()) else { return false };
    if members.begun() == 0 {
        // There were too few items: the list is evaluated again.
        step.members = None;
        return false;
    }
    let failed: Vec<u32> = members.side(key.direction).failed.iter().copied().collect();
    for number in failed {
        members.change(number, |member| again(member.act_mut(key.direction)));
    }
    change(task, key, |act| (act.state, act.ended_at) = (ActState::Fanned, None));
    true
}

fn settle(act: &mut Act, state: ActState, at: Timestamp) {
    act.state = state;
    act.ended_at = Some(at);
    set_start_by(act, None);
    forget_locks(act);
}

/// Sets when a worker must have started the ready attempt.
fn set_start_by(act: &mut Act, start_by: Option<Timestamp>) {
    if act.start_by() != start_by {
        act.change_extras(|extras| extras.start_by = start_by);
    }
}

/// Removes all locks, held or wanted.
fn forget_locks(act: &mut Act) {
    if !act.locks().is_empty() {
        act.change_extras(|extras| extras.locks.clear());
    }
}

/// Changes one of the locks that an execution needs.
fn change_lock(task: &mut Task, key: ActKey, name: &LockName, set: impl FnOnce(&mut HeldLock)) {
    change(task, key, |act| {
        act.change_extras(|extras| {
            if let Some(lock) = extras.locks.iter_mut().find(|lock| lock.name == *name) {
                set(lock);
            }
        });
    });
}

/// Changes one execution.
fn change(task: &mut Task, key: ActKey, change: impl FnOnce(&mut Act)) {
    let step = task.state.step_mut(key.step);
    match (&mut step.members, key.direction) {
        (Some(members), direction) if key.is_member() => {
            members.change(key.member, |member| change(member.act_mut(direction)));
        }
        (_, Direction::Forward) => change(&mut step.forward),
        (_, Direction::Rollback) => change(&mut step.undo),
    }
}
