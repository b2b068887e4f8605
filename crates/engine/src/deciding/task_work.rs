//! A task in a batch and the changes to it.

use std::{collections::BTreeSet, sync::Arc};

use windlass_core::{
    ActKey, Attempt, Command, Context, EVALUATION_STEPS_PER_TRANSITION_MAX, Effect, Event, EventKind, Input,
    Rejection, Task, TaskId, Transition, apply, is_to_stop,
    planted::{Bug, is_planted},
};
use windlass_store::{
    AttemptId, Claim, Claimed, Envelope, Loaded, LogLine, LostClaim, MessageId, Now, SessionId, TaskChange,
};

use crate::{
    commands::submit::{exclusive_queue, unique_key},
    deciding::{
        batch::Place,
        device_log,
        inbox::{Loss, NewTask, Reply},
        part::Pending,
        reports::{check_claim, claim_of, late_or_repeated},
    },
};

/// A task and the changes to it: all commands of a batch make one change, but each message makes its own.
pub(super) struct TaskWork {
    /// The task after the items decided so far; `None` if it does not exist.
    loaded: Option<Loaded>,
    pub(super) steps: Vec<TaskStep>,
    /// How many of the steps were made before messages of this commit were delivered; absent as long as none were.
    own: Option<usize>,
    /// The number of steps that evaluating its expressions took.
    evaluated: u64,
}

/// Why a new task is not accepted.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Its unique key could not be computed; this is the error message.
    NoUniqueKey(String),
    /// The name of its exclusive queue could not be computed, or its parent has the queue; this is the error message.
    NoQueueName(String),
    /// The rules refuse it.
    Rejected(Rejection),
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NoUniqueKey(message) => Self::NoUniqueKey { message },
            Refusal::NoQueueName(message) => Self::NoQueueName { message },
            Refusal::Rejected(rejection) => Self::Rejected(rejection),
        }
    }
}

/// One change of a task. A consumed message has a change of its own. If another server has already consumed the
/// message, only this change and the changes built on it fail.
pub(super) struct TaskStep {
    pub(super) change: TaskChange,
    /// The task afterwards.
    pub(super) loaded: Loaded,
    pub(super) pending: Vec<Pending>,
    /// Attempts that workers must stop.
    pub(super) stops: Vec<(SessionId, AttemptId)>,
}

impl TaskWork {
    pub(super) fn new(loaded: Option<Loaded>) -> Self {
        Self { loaded, steps: Vec::new(), own: None, evaluated: 0 }
    }

    /// From now on messages of this commit are delivered.
    pub(super) fn begin_follow_ups(&mut self) {
        self.own.get_or_insert(self.steps.len());
    }

    /// The changes, and those that follow from messages of this commit.
    pub(super) fn into_steps(mut self) -> (Vec<TaskStep>, Vec<TaskStep>) {
        let follow_ups = self.own.map_or_else(Vec::new, |own| self.steps.split_off(own));
        (self.steps, follow_ups)
    }

    /// The number of evaluation steps since the last call.
    pub(super) fn take_evaluated(&mut self) -> u64 {
        std::mem::take(&mut self.evaluated)
    }

    /// The task after the items decided so far.
    pub(super) fn task(&self) -> Option<&Arc<Task>> {
        self.loaded.as_ref().map(|loaded| &loaded.task)
    }

    /// Accepts a new task. `consumes` is the message by which its `parent` started it. The evaluation steps are added
    /// to `evaluated`, also if the task is refused.
    pub(super) fn accept(
        new: &NewTask,
        parent: Option<&Task>,
        consumes: Option<&MessageId>,
        place: Place,
        now: Now,
        evaluated: &mut u64,
    ) -> Result<Self, Refusal> {
        let NewTask { done, overrides_unique, key, .. } = new;
        let (unique, steps) = unique_key(&new.task.flow, &new.task.input);
        *evaluated += steps;
        let (exclusive, steps) = exclusive_queue(&new.task.flow, &new.task.input);
        *evaluated += steps;
        let names = (unique.map_err(Refusal::NoUniqueKey)?, exclusive.map_err(Refusal::NoQueueName)?);
        if let (Some(queue), Some(parent)) = (&names.1, parent)
            && parent.input.exclusive.as_ref() == Some(queue)
        {
            let message = format!(
                "the task that starts this one, {}, keeps the queue {queue} until it has ended, so this one would wait \
                 forever: use another queue, or none",
                parent.id
            );
            return Err(Refusal::NoQueueName(message));
        }
        let task = match names {
            (None, None) => new.task.clone(),
            (unique, exclusive) => {
                let input = Arc::new(Input { unique, exclusive, ..(*new.task.input).clone() });
                Arc::new(Task { input, ..(*new.task).clone() })
            }
        };
        let (done, by) = (done.clone(), task.input.by.clone());
        let accept = Command::Accept { done, overrides_unique: *overrides_unique, by };
        let transition = apply(&task, &accept, &Context::at(now.wall)).map_err(|rejection| {
            if rejection == Rejection::TooMuchToEvaluate {
                *evaluated += EVALUATION_STEPS_PER_TRANSITION_MAX;
            }
            Refusal::Rejected(rejection)
        })?;
        let mut work = Self::new(None);
        let step = work.take(Loaded::untouched(task), transition, consumes, place);
        step.change.submit_key = key.clone().filter(|_| !is_planted(Bug::NoSubmitKey));
        Ok(work)
    }

    /// Decides a command. `claim` is the claim number in the token of a reporting worker, `logs` are the lines of its
    /// report. Returns the reply if it does not depend on a change of this batch.
    pub(super) fn decide(
        &mut self,
        command: &Command,
        claim: Option<u64>,
        logs: &[LogLine],
        place: Place,
        now: Now,
    ) -> Option<Reply> {
        let Some(loaded) = self.loaded.clone() else { return Some(Reply::Missing) };
        let command = match check_claim(&loaded, command, claim) {
            Ok(command) => command,
            Err(rejection) => return self.refuse(rejection, place),
        };
        let transition = match transition(&loaded, &command, now) {
            Ok(transition) => transition,
            Err(rejection) => return self.refuse(late_or_repeated(&loaded.task, &command, rejection), place),
        };
        if transition.events.is_empty() {
            // Nothing to do. If an earlier item of this batch changed the task, wait for the outcome of that change.
            if let Some(step) = self.steps.last_mut() {
                step.pending.push(Pending { place, reply: None });
                return None;
            }
            return Some(Reply::Task(loaded));
        }
        let stops = stops(&loaded, &transition, &command);
        let offered = match &command {
            Command::Report(report) => {
                claim_of(&loaded, &report.attempt).filter(|claim| claim.session.is_publisher())
            }
            _ => None,
        };
        let offered = offered.map_or(0, |claim| claim.number);
        let step = self.take(loaded, transition, None, place);
        step.stops.extend(stops);
        step.change.logs.extend_from_slice(logs);
        if let (Command::Report(report), Some(claim)) = (&command, claim)
            && !is_planted(Bug::NoFence)
        {
            step.change.reported.push((report.attempt.key, claim.max(offered)));
        }
        None
    }

    /// Ends an attempt that will have no outcome, if the session still has it. If the session is over, the store decides
    /// finally, since another server may hear from it in the meantime. Returns the reply if it does not depend on a change
    /// of this batch.
    pub(super) fn lose(&mut self, lost: &Claimed, loss: Loss, place: Place, now: Now) -> Option<Reply> {
        let Some(loaded) = self.loaded.clone() else { return Some(Reply::Missing) };
        let AttemptId { key, attempt, claim, .. } = lost.id;
        let has = |held: &Claim| (held.key, held.number, held.session) == (key, claim, lost.session);
        if !loaded.claims.iter().any(has) {
            return self.refuse(Rejection::Stale, place);
        }
        let attempt = |at| Attempt { key, number: attempt, started_at: Some(at) };
        let command = match loss {
            Loss::Silent { is_death: true, .. } => Command::Lose(attempt(lost.at)),
            Loss::Silent { is_death: false, .. } => Command::Reclaim(attempt(lost.at)),
            // Somebody has taken its message, nobody knows when.
            Loss::Unanswered => Command::Lose(attempt(now.wall)),
        };
        let transition = match transition(&loaded, &command, now) {
            Ok(transition) => transition,
            Err(rejection) => return self.refuse(rejection, place),
        };
        let stops = stops(&loaded, &transition, &command);
        let step = self.take(loaded, transition, None, place);
        step.stops.extend(stops);
        let over_at = match loss {
            Loss::Silent { at, .. } => Some(at),
            Loss::Unanswered => None,
        };
        step.change.lost.push(LostClaim { key, claim, session: lost.session, over_at });
        None
    }

    /// Decides a message. Returns whether it found something to do; if so, the change consumes the message.
    pub(super) fn consume(&mut self, command: &Command, message: &MessageId, place: Place, now: Now) -> bool {
        let Some(loaded) = self.loaded.clone() else { return false };
        let Ok(transition) = transition(&loaded, command, now) else { return false };
        if transition.events.is_empty() {
            return false;
        }
        let stops = stops(&loaded, &transition, command);
        self.take(loaded, transition, Some(message), place).stops.extend(stops);
        true
    }

    /// A refusal is valid once the task it was decided on is on disk.
    fn refuse(&mut self, rejection: Rejection, place: Place) -> Option<Reply> {
        let reply = Reply::Rejected(rejection);
        let Some(step) = self.steps.last_mut() else { return Some(reply) };
        step.pending.push(Pending { place, reply: Some(reply) });
        None
    }

    /// Adds a transition of `before` to the task's change, or to a separate change that consumes a message.
    fn take(
        &mut self,
        before: Loaded,
        transition: Transition,
        consumes: Option<&MessageId>,
        place: Place,
    ) -> &mut TaskStep {
        let Transition { task, events, effects, evaluation_steps } = transition;
        self.evaluated += evaluation_steps;
        let task = Arc::new(task);
        let change = TaskChange {
            before: before.task.state.events,
            generation: before.generation,
            task: task.clone(),
            events: Vec::new(),
            waits: Vec::new(),
            results: Vec::new(),
            logs: Vec::new(),
            journal: Vec::new(),
            messages: Vec::new(),
            submit_key: None,
            consumes: consumes.cloned(),
            lost: Vec::new(),
            reported: Vec::new(),
            offered: Vec::new(),
            handed_out: Vec::new(),
            announces: false,
            fence: before.task.queue_fence().map(|(name, fence)| (name.clone(), fence)),
        };
        let acts: BTreeSet<ActKey> = events.iter().filter_map(|event| event.kind.act()).collect();
        let offered = before.offered().filter(|claim| acts.contains(&claim.key));
        let offered: Vec<(ActKey, u64)> = offered.map(|claim| (claim.key, claim.number)).collect();
        let handed_out: Vec<ActKey> = before.handed_out.intersection(&acts).copied().collect();
        let journal = device_log::of_events(&before.task, &task, &events);
        let loaded = goes_on(before, task, &acts);
        self.loaded = Some(loaded.clone());
        let is_separate = self.own == Some(self.steps.len());
        let goes_on = !is_separate
            && self.steps.last().is_some_and(|step| consumes.or(step.change.consumes.as_ref()).is_none());
        let mut step = match self.steps.pop() {
            Some(step) if goes_on => step,
            last => {
                self.steps.extend(last);
                TaskStep { change, loaded: loaded.clone(), pending: Vec::new(), stops: Vec::new() }
            }
        };
        step.take(loaded, events, effects);
        step.change.offered.extend(offered);
        if step.change.handed_out.is_empty() {
            step.change.handed_out = handed_out;
        } else {
            step.change.handed_out.extend(handed_out);
        }
        step.change.journal.extend(journal);
        step.pending.push(Pending { place, reply: None });
        self.steps.push_mut(step)
    }
}

impl TaskStep {
    /// Adds these events and effects to the change.
    fn take(&mut self, loaded: Loaded, events: Vec<Event>, effects: Vec<Effect>) {
        let change = &mut self.change;
        change.task = loaded.task.clone();
        self.loaded = loaded;
        for event in &events {
            match &event.kind {
                EventKind::QueueLost { .. } => change.fence = None,
                EventKind::QueueGranted { fence } => {
                    let queue = change.task.input.exclusive.clone();
                    change.fence = queue.map(|queue| (queue, *fence));
                }
                _ => {}
            }
            if let EventKind::ActSucceeded { key, result: Some(result), .. }
            | EventKind::ActResolved { key, result: Some(result), .. } = &event.kind
            {
                change.results.push((*key, result.clone()));
            }
        }
        for effect in effects {
            match effect {
                Effect::Send(message) => {
                    let id = MessageId::of_task(change.task.id, change.before + 1, change.messages.len());
                    change.messages.push(Envelope { id, message });
                }
                wait => change.waits.push(wait),
            }
        }
        change.events.extend(events);
    }
}

/// The attempts that workers must stop because of this transition: their task started rolling back or was stopped, their
/// step's deadline passed, or the attempt was lost, reclaimed or timed out.
fn stops(before: &Loaded, transition: &Transition, command: &Command) -> Vec<(SessionId, AttemptId)> {
    let after = &transition.task;
    let given_up = match command {
        Command::TimeOut(attempt) | Command::Lose(attempt) | Command::Reclaim(attempt) => Some(attempt.key),
        _ => None,
    };
    // While the task keeps its direction and is not stopped, only attempts with an event can have to stop.
    let all = before.task.state.phase != after.state.phase || before.task.state.pause != after.state.pause;
    let happened = |claim: &Claim| transition.events.iter().any(|event| event.kind.act() == Some(claim.key));
    let mut stops = Vec::new();
    for claim in before.claims.iter().filter(|claim| all || happened(claim)) {
        let turned = is_to_stop(after, claim.key) && !is_to_stop(&before.task, claim.key);
        if turned || given_up == Some(claim.key) {
            stops.push((claim.session, attempt_id(after.id, claim)));
        }
    }
    stops
}

/// Applies the rules to a command. If the transition would break an invariant, the task is held instead.
fn transition(loaded: &Loaded, command: &Command, now: Now) -> Result<Transition, Rejection> {
    let context = loaded.context(now.wall);
    match apply(&loaded.task, command, &context) {
        Err(Rejection::Fault(message)) => {
            tracing::error!(task = %loaded.task.id, %message, "a transition would have broken an invariant; the task is held");
            apply(&loaded.task, &Command::Hold { message: message.into() }, &context)
        }
        decided => decided,
    }
}

/// The task after a transition with events for `acts`: claims end with their attempts, and so do the marks in
/// `handed_out` and `awaited`.
fn goes_on(before: Loaded, task: Arc<Task>, acts: &BTreeSet<ActKey>) -> Loaded {
    let Loaded { task: was, mut claims, mut handed_out, mut awaited, generation } = before;
    claims.retain(|claim| !acts.contains(&claim.key) || task.has_ready(claim.key, claim.attempt));
    let goes_on = |key: &ActKey| was.act(*key).is_some_and(|was| task.has_current(*key, was.attempt));
    for key in acts.iter().filter(|key| !goes_on(key)) {
        handed_out.remove(key);
        awaited.remove(key);
    }
    Loaded { task, claims, handed_out, awaited, generation }
}

fn attempt_id(task: TaskId, claim: &Claim) -> AttemptId {
    AttemptId { task, key: claim.key, attempt: claim.attempt, claim: claim.number }
}
