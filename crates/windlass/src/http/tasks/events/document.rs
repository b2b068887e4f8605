//! From the engine's events to the documents users see.

use serde_json::{Value, json};
use windlass_api as api;
use windlass_core::{
    ActKey, Actor, Awaited, Cause, Direction, Event, EventKind, Failure, StuckKind, Task, Timestamp,
};
use windlass_engine::Notice;

use crate::http::tasks::view;

/// An event of a task's history.
pub(crate) fn event(task: &Task, n: u64, event: &Event) -> api::Event {
    let said = Said::of(task, &event.kind);
    api::Event { n: Some(n), ..document(task, event.at, said) }
}

/// What is not in the history: that an attempt was handed out just now, how far it is, what it wrote.
pub(super) fn live(task: &Task, notice: &Notice) -> Vec<api::Event> {
    match notice {
        Notice::Event { .. } => Vec::new(),
        Notice::Logged { lines } => lines
            .iter()
            .map(|line| {
                let said = Said::act("log", line.key, line.attempt).with(json!({ "line": line.line }));
                document(task, line.at, said)
            })
            .collect(),
        Notice::Started { key, attempt, at, worker } => {
            let said = Said::act("started", *key, *attempt).with(json!({ "worker": worker }));
            vec![document(task, *at, said)]
        }
        Notice::Progressed { key, attempt, at, progress } => {
            let said = Said::act("progress", *key, *attempt).with(json!(view::progress(progress)));
            vec![document(task, *at, said)]
        }
    }
}

fn document(task: &Task, at: Timestamp, said: Said) -> api::Event {
    let step = said.step.and_then(|step| task.flow.steps.get(step));
    api::Event {
        n: None,
        task: task.id.to_string(),
        at: view::time(at),
        kind: said.kind,
        step: step.map(|step| step.name.to_string()),
        member: said.member,
        attempt: said.attempt,
        direction: said.direction.map(view::direction),
        actor: said.actor,
        data: said.data,
    }
}

/// What an event says.
struct Said {
    kind: String,
    step: Option<usize>,
    member: Option<u32>,
    attempt: Option<u32>,
    direction: Option<Direction>,
    actor: Option<String>,
    data: Value,
}

impl Said {
    fn of(task: &Task, kind: &EventKind) -> Self {
        match kind {
            EventKind::TaskAccepted => Self::task("accepted").by(task.input.by.as_ref()),
            EventKind::TaskStarted => Self::task("started"),
            EventKind::TaskPaused { by } => Self::task("paused").by(by.as_ref()),
            EventKind::TaskStopping { by } => Self::task("stopping").by(by.as_ref()),
            EventKind::TaskSuspended { by } => Self::task("suspended").by(by.as_ref()),
            EventKind::TaskResumed { by } => Self::task("resumed").by(by.as_ref()),
            EventKind::TaskRollingBack { cause } => Self::rolling_back(cause),
            EventKind::TaskStuck(stuck) => {
                let data = json!({ "reason": stuck.kind.as_str(), "message": stuck.message });
                Self { step: stuck.step, ..Self::task("stuck").with(data) }
            }
            EventKind::TaskUnstuck => Self::task("unstuck"),
            EventKind::TaskEnded(ending) => {
                Self::task("ended").with(json!({ "status": view::ending(*ending) }))
            }
            EventKind::ActReady { key, attempt } => Self::act("ready", *key, *attempt),
            EventKind::ActParked { key, attempt } => Self::act("parked", *key, *attempt),
            EventKind::ActStarted { key, attempt } => Self::act("started", *key, *attempt),
            EventKind::ActRetrying { key, attempt, until, failure } => {
                Self::act("retrying", *key, *attempt).failure(failure, Some(*until))
            }
            EventKind::ActPostponed { key, attempt, until, message } => {
                let data = json!({ "message": message, "until": view::time(*until) });
                Self::act("postponed", *key, *attempt).with(data)
            }
            EventKind::ActLost { key, attempt } => Self::act("lost", *key, *attempt),
            EventKind::ActReclaimed { key, attempt } => Self::act("reclaimed", *key, *attempt),
            EventKind::ActStopped { key, attempt } => Self::act("stopped", *key, *attempt),
            EventKind::ActWithdrawn { key, attempt, touched } => {
                Self::act("withdrawn", *key, *attempt).with(json!({ "touched": touched }))
            }
            EventKind::ActSucceeded { key, attempt, result: _ } => Self::act("succeeded", *key, *attempt),
            EventKind::ActFailed { key, attempt, failure } => {
                Self::act("failed", *key, *attempt).failure(failure, None)
            }
            EventKind::ActOverdue { key, attempt } => Self::act("overdue", *key, *attempt),
            EventKind::ActResultDropped { key, attempt, failure } => {
                Self::act("result_dropped", *key, *attempt).failure(failure, None)
            }
            EventKind::ActSkipped { key } => Self::whole("skipped", *key),
            EventKind::ActResolved { key, resolution, result: _, by } => {
                let data = json!({ "action": view::resolve_action(*resolution).as_str() });
                Self::whole("resolved", *key).with(data).by(by.as_ref())
            }
            EventKind::AlarmRaised { stuck } => {
                let data = json!({ "reason": stuck.kind.as_str(), "message": stuck.message });
                Self { step: stuck.step, ..Self::new("alarm.raised".to_owned()).with(data) }
            }
            EventKind::AlarmCleared { kind, step, by } => Self::alarm_resolved(*kind, *step, by.as_ref()),
            EventKind::ActDelayed { key, until } => {
                Self::whole("delayed", *key).with(json!({ "until": view::time(*until) }))
            }
            EventKind::ActKeyed { key, fairness } => {
                Self::whole("keyed", *key).with(json!({ "key": fairness }))
            }
            EventKind::ActFanned { key, members } => {
                Self::whole("fanned_out", *key).with(json!({ "members": members }))
            }
            EventKind::ActAwaiting { key, attempt, awaited, child, locks } => {
                let data = match awaited {
                    Awaited::Signal => json!({ "for": "signal" }),
                    Awaited::Child => json!({ "for": "task", "task": child.map(|child| child.to_string()) }),
                    Awaited::Lock => {
                        let locks: Vec<&str> = locks.iter().map(|lock| lock.as_str()).collect();
                        json!({ "for": "lock", "locks": locks })
                    }
                };
                Self::act("waiting", *key, *attempt).with(data)
            }
            EventKind::ActLocked { key, name, fence } => {
                Self::whole("locked", *key).with(json!({ "lock": name.as_str(), "fence": fence }))
            }
            EventKind::ActUnlocked { key, name, fence, reason, by } => {
                let data = json!({ "lock": name.as_str(), "fence": fence, "reason": reason });
                Self::whole("unlocked", *key).with(data).by(by.as_ref())
            }
            EventKind::ActTaken { key, attempt } => Self::act("taken", *key, *attempt),
            EventKind::ActUnanswered { key, attempt } => Self::act("unanswered", *key, *attempt),
            EventKind::SignalKept { name, by, .. } => {
                Self::task("signal_kept").with(json!({ "signal": name.as_str() })).by(by.as_ref())
            }
            EventKind::SignalReceived { key, name, by } => {
                Self::whole("signalled", *key).with(json!({ "signal": name.as_str() })).by(by.as_ref())
            }
            EventKind::QueueJoined => Self::queue("joined", task),
            EventKind::QueueGranted { fence } => {
                let said = Self::queue("granted", task);
                let data = json!({ "queue": said.data["queue"], "fence": fence });
                said.with(data)
            }
            EventKind::QueueLost { fence, reason, by } => {
                let said = Self::queue("lost", task).by(by.as_ref());
                let data = json!({ "queue": said.data["queue"], "fence": fence, "reason": reason });
                said.with(data)
            }
            EventKind::UniqueOverridden { by } => Self::task("unique_overridden").by(by.as_ref()),
            EventKind::StepAmended { step, before, after, by } => {
                let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
                let data = json!({ "before": parse(before), "after": parse(after) });
                Self { step: Some(*step), ..Self::new("step.amended".to_owned()).with(data).by(by.as_ref()) }
            }
        }
    }

    fn new(kind: String) -> Self {
        Self { kind, step: None, member: None, attempt: None, direction: None, actor: None, data: json!({}) }
    }

    fn task(verb: &str) -> Self {
        Self::new(format!("task.{verb}"))
    }

    /// Of the exclusive queue of the task.
    fn queue(verb: &str, task: &Task) -> Self {
        let queue = task.input.exclusive.as_ref().map(|queue| queue.as_str());
        Self::new(format!("queue.{verb}")).with(json!({ "queue": queue }))
    }

    fn act(verb: &str, key: ActKey, attempt: u32) -> Self {
        let subject = match key.direction {
            Direction::Forward => "step",
            Direction::Rollback => "rollback",
        };
        Self {
            step: Some(key.step),
            member: key.index(),
            attempt: Some(attempt),
            direction: Some(key.direction),
            ..Self::new(format!("{subject}.{verb}"))
        }
    }

    /// Of an act, and of no attempt of it.
    fn whole(verb: &str, key: ActKey) -> Self {
        Self { attempt: None, ..Self::act(verb, key, 0) }
    }

    fn rolling_back(cause: &Cause) -> Self {
        let said = Self::task("rolling_back");
        match cause {
            Cause::Failure { step } => Self { step: Some(*step), ..said.with(json!({ "cause": "failure" })) },
            Cause::GivenUp { step, by } => {
                Self { step: Some(*step), ..said.with(json!({ "cause": "given_up" })).by(by.as_ref()) }
            }
            Cause::Cancel { by } => said.with(json!({ "cause": "cancel" })).by(by.as_ref()),
            Cause::Deadline => said.with(json!({ "cause": "deadline" })),
            Cause::Parent => said.with(json!({ "cause": "parent" })),
            Cause::Rollout { rollout } => {
                said.with(json!({ "cause": "rollout", "rollout": rollout.as_str() }))
            }
            Cause::ResultTooLarge { bytes } => {
                said.with(json!({ "cause": "result_too_large", "bytes": bytes }))
            }
        }
    }

    fn alarm_resolved(kind: StuckKind, step: Option<usize>, by: Option<&Actor>) -> Self {
        Self {
            step,
            ..Self::new("alarm.resolved".to_owned()).with(json!({ "reason": kind.as_str() })).by(by)
        }
    }

    fn failure(self, failure: &Failure, until: Option<Timestamp>) -> Self {
        let mut data = json!({ "message": failure.message, "code": failure.code });
        if let Some(until) = until {
            data["until"] = json!(view::time(until));
        } else {
            data["retryable"] = json!(failure.retryable);
        }
        self.with(data)
    }

    fn with(self, data: Value) -> Self {
        Self { data, ..self }
    }

    fn by(self, actor: Option<&Actor>) -> Self {
        Self { actor: actor.map(ToString::to_string), ..self }
    }
}
