//! Child tasks: the messages between a task and the child tasks that its steps started.
//!
//! ```text
//! parent ──Start───▶ child … ──ChildEnded──▶ parent     the step succeeds with its result, or fails with its message
//! parent ──Cancel──▶ child … ──ChildEnded──▶ parent     the parent started rolling back while the child was running
//! parent ─Rollback─▶ child … ──ChildEnded──▶ parent     the child had succeeded: it rolls back, which rolls the step back
//! ```
//!
//! Each arrow is a message: written in its sender's commit, consumed in its receiver's commit. A child task that did
//! not succeed has rolled back by then, so its step needs no rollback.

use serde::{Deserialize, Serialize};

use crate::{
    ActKey, ActState, Actor, Awaited, CHILD_TIMEOUT_DEFAULT, Cause, DATA_CODE, DEADLINE_CODE, Direction,
    Doer, Ending, Event, EventKind, Failure, Input, Json, Message, Millis, Name, Parent, Phase, Task, TaskId,
    Timestamp,
    planted::{Bug, is_planted},
    values::mix::mix,
};

/// The maximum nesting depth of tasks, the topmost one included: deeper nesting is hardly intended, and a flow that
/// runs itself would start tasks forever.
pub const DEPTH_MAX: u32 = 8;

/// The maximum bytes of a child task's parameters: the same as for a submit.
pub const CHILD_PARAMS_BYTES_MAX: usize = 1 << 20;

/// The maximum bytes of a child task's results: the same as for a worker's result.
pub const CHILD_RESULT_BYTES_MAX: usize = 256 << 10;

/// A command from a task to its child task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChildCommand {
    /// Start.
    Start(Box<ChildStart>),
    /// Stop, and roll back. An ended child task does not change.
    Cancel,
    /// Roll back, although it has succeeded.
    Undo,
}

/// The start of a child task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildStart {
    /// Its flow; the newest version when it starts.
    pub flow: Name,
    /// Its parameters, as the text of a JSON object.
    pub params: Box<str>,
    /// From -10 to 10.
    pub priority: i8,
    /// Its deadline; after that it starts rolling back.
    pub until: Option<Timestamp>,
    /// Who submitted the topmost task.
    pub by: Option<Actor>,
    /// W3C trace context of that submit.
    pub traceparent: Option<Box<str>>,
}

/// The result of a child task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChildEnd {
    /// It has succeeded, with the results of its steps, as the text of a JSON object.
    Succeeded(Option<Box<str>>),
    /// It was never started, or has rolled back.
    Undone(Failure),
    /// It was deleted at the end of its retention.
    Gone,
}

impl ChildStart {
    /// The input of the child task. The deadline of its flow applies as well.
    #[must_use]
    pub fn input(&self, parent: Parent, flow_deadline: Option<Millis>, now: Timestamp) -> Input {
        Input {
            priority: self.priority,
            deadline: self.until.map(|until| until - now).into_iter().chain(flow_deadline).min(),
            parent: Some(parent),
            by: self.by.clone(),
            traceparent: self.traceparent.clone(),
            ..Input::new(Json::from_stored(&self.params), now)
        }
    }
}

impl ChildEnd {
    /// The result of an ended task for its parent; `None` as long as it has not ended.
    #[must_use]
    pub fn of(task: &Task) -> Option<Self> {
        let Phase::Ended(ending) = task.state.phase else { return None };
        let how = match ending {
            Ending::Succeeded => {
                let returned = Some(task.returned()).filter(|returned| !returned.is_empty());
                return Some(Self::Succeeded(returned.map(|returned| returned.as_str().into())));
            }
            Ending::RolledBack => "was rolled back",
            Ending::Failed => "failed",
            Ending::Cancelled => "was cancelled",
        };
        let because = task.message().map(|message| format!(": {message}")).unwrap_or_default();
        let message = format!("task {} of the flow {} {how}{because}", task.id, task.flow.name);
        let (code, retryable) = match (task.failed_step(), &task.state.cause) {
            (Some(failure), _) => (failure.code, failure.retryable),
            // Another child task may be faster.
            (None, Some(Cause::Deadline)) => (DEADLINE_CODE, true),
            (None, Some(Cause::ResultTooLarge { .. })) => (DATA_CODE, false),
            // An operator who cancelled it does not want another one.
            (None, _) => (1, false),
        };
        Some(Self::Undone(Failure::new(&message, code, retryable)))
    }
}

/// The messages to child tasks and to the parent that follow from these events.
pub(crate) fn messages(before: &Task, after: &Task, events: &[Event]) -> Vec<Message> {
    let to_child = |key: ActKey, attempt: u32, child: TaskId, command: ChildCommand| {
        let top = after.input.parent.map_or(after.id, |parent| parent.top);
        let parent = Parent { task: after.id, key, attempt, depth: after.depth() + 1, top };
        Message::Child { child, parent, command }
    };
    let told = |event: &Event| match &event.kind {
        EventKind::ActAwaiting { key, attempt, awaited: Awaited::Child, child: Some(child), .. } => {
            let command = match key.direction {
                Direction::Forward => ChildCommand::Start(Box::new(after.child_start(*key)?)),
                Direction::Rollback => ChildCommand::Undo,
            };
            Some(to_child(*key, *attempt, *child, command))
        }
        EventKind::ActResultDropped { key, attempt, .. } => {
            let child = after.act(*key)?.child()?;
            Some(to_child(*key, *attempt, child, ChildCommand::Undo))
        }
        EventKind::TaskEnded(Ending::Cancelled) if is_planted(Bug::ChildEndLost) => None,
        EventKind::TaskEnded(_) => {
            let Parent { task, key, .. } = after.input.parent?;
            Some(Message::ChildEnded { parent: task, key, child: after.id, end: ChildEnd::of(after)? })
        }
        _ => None,
    };
    let mut messages: Vec<Message> = events.iter().filter_map(told).collect();
    // A task that starts rolling back cancels its child tasks, and waits for their ends.
    if before.state.phase != after.state.phase && after.state.phase == Phase::Backward {
        let open = after.open_acts().filter(|(key, act)| {
            key.direction == Direction::Forward && act.state == ActState::Awaiting(Awaited::Child)
        });
        messages.extend(
            open.filter_map(|(key, act)| {
                Some(to_child(key, act.attempt, act.child()?, ChildCommand::Cancel))
            }),
        );
    }
    messages
}

impl Task {
    /// The start of the child task for this execution.
    fn child_start(&self, key: ActKey) -> Option<ChildStart> {
        let (act, action) = (self.act(key)?, self.action(key)?);
        let timeout = Some(action.timeout).filter(|timeout| *timeout < CHILD_TIMEOUT_DEFAULT);
        let times_out_at = act.ready_at.zip(timeout).map(|(ready_at, timeout)| ready_at + timeout);
        Some(ChildStart {
            flow: self.runs_flow(key.step)?.clone(),
            params: self.params_for(key).as_str().into(),
            priority: self.input.priority,
            until: times_out_at.into_iter().chain(act.deadline_at).min(),
            by: self.input.by.clone(),
            traceparent: self.input.traceparent.clone(),
        })
    }

    /// Its nesting depth below the topmost task.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.input.parent.map_or(0, |parent| parent.depth)
    }

    /// The flow that a step runs as a child task, if it does.
    #[must_use]
    pub fn runs_flow(&self, step: usize) -> Option<&Name> {
        match &self.flow.steps.get(step)?.run.doer {
            Doer::Flow { name } => Some(name),
            Doer::Worker { .. } | Doer::Signal { .. } | Doer::Device(_) => None,
        }
    }

    /// The topmost task, whose rollback may require a rollback of this one. Until that task has ended, this one must be
    /// kept.
    #[must_use]
    pub fn kept_for(&self) -> Option<TaskId> {
        let done = self.state.phase == Phase::Ended(Ending::Succeeded);
        self.input.parent.filter(|_| done).map(|parent| parent.top)
    }

    /// The results of its steps, merged in definition order: its result for its parent.
    #[must_use]
    pub fn returned(&self) -> Json {
        Json::merge(self.state.steps.iter().filter_map(|step| step.forward.result.as_ref()))
    }
}

impl TaskId {
    /// The id of the child task of an attempt: a UUID of version 7 like all others, whose random bits are a hash of its
    /// parent and attempt. So each attempt has one child task, however often it is started.
    #[must_use]
    pub fn of_child(parent: Self, key: ActKey, attempt: u32, at: Timestamp) -> Self {
        let (attempt, at) = if is_planted(Bug::ChildOfBefore) { (1, Timestamp(0)) } else { (attempt, at) };
        let time = u128::try_from(at.0).unwrap_or(0) & 0xffff_ffff_ffff;
        let act = (key.step as u64) << 32 | u64::from(key.member);
        #[expect(clippy::cast_possible_truncation, reason = "both halves are mixed in")]
        let words = [(parent.0 >> 64) as u64, parent.0 as u64, act, u64::from(attempt)];
        let hash = |seed: u64| words.iter().fold(seed, |hash, word| mix(hash ^ word));
        let (high, low) = (u128::from(hash(1)) & 0xfff, u128::from(hash(2)) & (u128::MAX >> 66));
        // Layout: time 48 | version 4 | 12 | variant 2 | 62.
        Self(time << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_attempt_of_every_act_has_a_child_of_its_own() {
        let mut ids = BTreeSet::new();
        let mut made = 0;
        for parent in [1 << 64, 1, 2, u128::MAX] {
            for (step, member, attempt) in
                (0..20).flat_map(|n| [(n, 1, 1), (0, n as u32 + 2, 1), (0, 0, n as u32 + 2)])
            {
                let key = ActKey::forward(step).of_member(member);
                let id = TaskId::of_child(TaskId(parent), key, attempt, Timestamp(1_700_000_000_000));
                assert_eq!(id, TaskId::of_child(TaskId(parent), key, attempt, Timestamp(1_700_000_000_000)));
                let uuid = uuid::Uuid::from_u128(id.0);
                assert_eq!((uuid.get_version_num(), uuid.get_variant()), (7, uuid::Variant::RFC4122));
                ids.insert(id);
                made += 1;
            }
        }
        assert_eq!(ids.len(), made);
        let later = TaskId::of_child(TaskId(1), ActKey::forward(0), 1, Timestamp(1_700_000_000_001));
        assert!(ids.iter().all(|id| *id < later), "ids sort by when they were made");
    }

    #[test]
    fn a_child_has_the_time_that_is_left_and_no_more_than_its_flow_gives() {
        let start = ChildStart {
            flow: Name::new("copy").unwrap(),
            params: "{}".into(),
            priority: 3,
            until: Some(Timestamp(500)),
            by: None,
            traceparent: None,
        };
        let parent =
            Parent { task: TaskId(1), key: ActKey::forward(0), attempt: 1, depth: 1, top: TaskId(1) };
        let deadline =
            |flow: Option<u64>, now| start.input(parent, flow.map(Millis), Timestamp(now)).deadline;
        assert_eq!(deadline(None, 100), Some(Millis(400)));
        assert_eq!(deadline(Some(300), 100), Some(Millis(300)));
        assert_eq!(deadline(Some(3_000), 600), Some(Millis(0)), "its time was over before it began");
        let free = ChildStart { until: None, ..start };
        assert_eq!(free.input(parent, None, Timestamp(100)).deadline, None);
    }
}
