//! A task in a batch, and what is done to it.

use std::{collections::BTreeSet, sync::Arc};

use windlass_core::{
    Act, ActKey, ActState, Attempt, Command, Context, EVALUATION_STEPS_PER_TRANSITION_MAX, Effect, Event,
    EventKind, Input, Outcome, Rejection, Task, TaskId, Transition, apply, is_to_stop,
    planted::{Bug, is_planted},
};

use super::{batch::Place, part::Pending};
use crate::{
    inbox::{NewTask, Over, Reply},
    ports::{
        AttemptId, Claim, Claimed, Envelope, Loaded, LogLine, LostClaim, MessageId, Now, SessionId,
        TaskChange,
    },
    submit::unique_key,
};

/// A task and what is done to it: all commands of a batch make one change, but for messages.
pub(super) struct TaskWork {
    /// The task as it is by now; nothing when it is not there.
    loaded: Option<Loaded>,
    pub(super) steps: Vec<TaskStep>,
    /// How many steps evaluating expressions took for it.
    evaluated: u64,
}

/// Why a new task is not accepted.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It has no unique key, as a message says.
    NoUniqueKey(String),
    /// The rules refuse it.
    Rejected(Rejection),
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NoUniqueKey(message) => Self::NoUniqueKey { message },
            Refusal::Rejected(rejection) => Self::Rejected(rejection),
        }
    }
}

/// One change of a task. A message that is consumed has one of its own, so that one that was consumed elsewhere fails
/// alone, or with what was built on it.
pub(super) struct TaskStep {
    pub(super) change: TaskChange,
    /// The task afterwards.
    pub(super) loaded: Loaded,
    pub(super) pending: Vec<Pending>,
    /// Attempts that workers are to stop.
    pub(super) stops: Vec<(SessionId, AttemptId)>,
}

impl TaskWork {
    pub(super) fn new(loaded: Option<Loaded>) -> Self {
        Self { loaded, steps: Vec::new(), evaluated: 0 }
    }

    /// How many steps evaluating expressions took since this was last asked.
    pub(super) fn take_evaluated(&mut self) -> u64 {
        std::mem::take(&mut self.evaluated)
    }

    /// The task as it is by now.
    pub(super) fn task(&self) -> Option<&Arc<Task>> {
        self.loaded.as_ref().map(|loaded| &loaded.task)
    }

    /// Accepts a new task. `consumes` is the message by which another task started it. How many steps that took is added
    /// to `evaluated`, also where it is refused.
    pub(super) fn accept(
        new: &NewTask,
        consumes: Option<&MessageId>,
        place: Place,
        now: Now,
        evaluated: &mut u64,
    ) -> Result<Self, Refusal> {
        let NewTask { done, overrides_unique, key, .. } = new;
        let (unique, steps) = unique_key(&new.task.flow, &new.task.input);
        *evaluated += steps;
        let task = match unique.map_err(Refusal::NoUniqueKey)? {
            None => new.task.clone(),
            unique => {
                let input = Arc::new(Input { unique, ..(*new.task.input).clone() });
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

    /// Decides a command. `claim` is that of the token by which a worker reports, `logs` are lines that come with
    /// its report. Gives the reply where it waits for no change.
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
            // Nothing to do. When an item before it in this batch changed the task, its outcome is awaited.
            if let Some(step) = self.steps.last_mut() {
                step.pending.push(Pending { place, reply: None });
                return None;
            }
            return Some(Reply::Task(loaded));
        }
        let stops = stops(&loaded, &transition, &command);
        let offered = match &command {
            Command::Report(report) => {
                claim_of(&loaded, &report.attempt).filter(|claim| claim.session.is_courier())
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

    /// Gives an attempt up whose session was over, if the session has it still; the store has the last word,
    /// since another server may hear of the session meanwhile. Gives the reply where it waits for no change.
    pub(super) fn lose(&mut self, lost: &Claimed, over: Over, place: Place, now: Now) -> Option<Reply> {
        let Some(loaded) = self.loaded.clone() else { return Some(Reply::Missing) };
        let AttemptId { key, attempt, claim, .. } = lost.id;
        let has = |held: &Claim| (held.key, held.number, held.session) == (key, claim, lost.session);
        if !loaded.claims.iter().any(has) {
            return self.refuse(Rejection::Stale, place);
        }
        let attempt = Attempt { key, number: attempt, started_at: Some(lost.at) };
        let command = if over.is_death { Command::Lose(attempt) } else { Command::Reclaim(attempt) };
        let transition = match transition(&loaded, &command, now) {
            Ok(transition) => transition,
            Err(rejection) => return self.refuse(rejection, place),
        };
        let stops = stops(&loaded, &transition, &command);
        let step = self.take(loaded, transition, None, place);
        step.stops.extend(stops);
        step.change.lost.push(LostClaim { key, claim, session: lost.session, at: over.at });
        None
    }

    /// Decides what a message says. Tells whether it found something to do, and is consumed by that.
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

    /// A refusal holds when the task is on disk as it was decided on.
    fn refuse(&mut self, rejection: Rejection, place: Place) -> Option<Reply> {
        let reply = Reply::Rejected(rejection);
        let Some(step) = self.steps.last_mut() else { return Some(reply) };
        step.pending.push(Pending { place, reply: Some(reply) });
        None
    }

    /// Takes a transition of `before` into the task's change, or into a change of its own that consumes a message.
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
            messages: Vec::new(),
            submit_key: None,
            consumes: consumes.cloned(),
            lost: Vec::new(),
            reported: Vec::new(),
            offered: Vec::new(),
            announces: false,
        };
        let acts: BTreeSet<ActKey> = events.iter().filter_map(|event| event.kind.act()).collect();
        let offered = before.offered().filter(|claim| acts.contains(&claim.key));
        let offered: Vec<(ActKey, u64)> = offered.map(|claim| (claim.key, claim.number)).collect();
        let loaded = goes_on(before, task, &acts);
        self.loaded = Some(loaded.clone());
        let goes_on =
            self.steps.last().is_some_and(|step| consumes.or(step.change.consumes.as_ref()).is_none());
        let mut step = match self.steps.pop() {
            Some(step) if goes_on => step,
            last => {
                self.steps.extend(last);
                TaskStep { change, loaded: loaded.clone(), pending: Vec::new(), stops: Vec::new() }
            }
        };
        step.take(loaded, events, effects);
        step.change.offered.extend(offered);
        step.pending.push(Pending { place, reply: None });
        self.steps.push_mut(step)
    }
}

impl TaskStep {
    /// The task goes on by these events.
    fn take(&mut self, loaded: Loaded, events: Vec<Event>, effects: Vec<Effect>) {
        let change = &mut self.change;
        change.task = loaded.task.clone();
        self.loaded = loaded;
        for event in &events {
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

/// Which workers must stop because of what just happened: their task turned around, their step's deadline passed,
/// or the attempt was given up.
fn stops(before: &Loaded, transition: &Transition, command: &Command) -> Vec<(SessionId, AttemptId)> {
    let after = &transition.task;
    let given_up = match command {
        Command::TimeOut(attempt) | Command::Lose(attempt) | Command::Reclaim(attempt) => Some(attempt.key),
        _ => None,
    };
    // Of a task that goes on in its direction, only those attempts can be to stop to which something happened.
    let all = before.task.state.phase != after.state.phase;
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

/// A report under a lower claim than the one known is late, unless a courier has that one: then somebody did what was
/// offered before. One that passes gets the time it was handed out.
fn check_claim(loaded: &Loaded, command: &Command, token: Option<u64>) -> Result<Command, Rejection> {
    let mut command = command.clone();
    if let (Command::Report(report), Some(token)) = (&mut command, token)
        && let Some(claim) = claim_of(loaded, &report.attempt)
    {
        if token < claim.number && !claim.session.is_courier() && !is_planted(Bug::NoFence) {
            return Err(Rejection::Stale);
        }
        report.attempt.started_at = Some(claim.at);
    }
    Ok(command)
}

fn claim_of<'a>(loaded: &'a Loaded, attempt: &Attempt) -> Option<&'a Claim> {
    loaded.claims.iter().find(|claim| claim.key == attempt.key && claim.attempt == attempt.number)
}

/// The rules refuse a report of an attempt that is over. To its worker that is a repetition only when the attempt ended
/// with what it says: one that was given up has no accepted result, and what comes of it is late.
fn late_or_repeated(task: &Task, command: &Command, rejection: Rejection) -> Rejection {
    match (command, rejection) {
        (Command::Report(report), Rejection::Duplicate)
            if task.act(report.attempt.key).is_some_and(|act| !ended_with(act, &report.outcome)) =>
        {
            Rejection::Stale
        }
        (_, rejection) => rejection,
    }
}

/// Whether this outcome is what the act's last attempt ended with, as far as the act tells: it keeps the failure of a
/// deadline in place of those that come after it.
fn ended_with(act: &Act, outcome: &Outcome) -> bool {
    match (outcome, act.state) {
        (Outcome::Succeeded(_), state) => state == ActState::Succeeded,
        (Outcome::RetryLater { .. }, ActState::Delayed { .. }) => act.postponements() > 0,
        _ if act.overdue => true,
        (Outcome::Failed(failure), _) => act.trouble() == Some(failure),
        (Outcome::RetryLater { message, .. }, _) => {
            act.trouble().is_some_and(|failure| failure.message.ends_with(message.as_ref()))
        }
    }
}

/// What the rules make of a command. Where that would break an invariant, the task is held instead.
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

/// The task after a transition in which something happened to `acts`: claims end with their attempts, and so does that
/// one was handed out.
fn goes_on(before: Loaded, task: Arc<Task>, acts: &BTreeSet<ActKey>) -> Loaded {
    let Loaded { task: was, mut claims, mut handed_out, mut awaited, generation } = before;
    let is_open = |claim: &Claim| {
        task.act(claim.key).is_some_and(|act| act.state == ActState::Ready && act.attempt == claim.attempt)
    };
    claims.retain(|claim| !acts.contains(&claim.key) || is_open(claim));
    let is_current = |act: &Act| matches!(act.state, ActState::Ready | ActState::Parked);
    let goes_on = |key: &ActKey| match (was.act(*key), task.act(*key)) {
        (Some(was), Some(act)) => was.attempt == act.attempt && is_current(act),
        _ => false,
    };
    for key in acts.iter().filter(|key| !goes_on(key)) {
        handed_out.remove(key);
        awaited.remove(key);
    }
    Loaded { task, claims, handed_out, awaited, generation }
}

fn attempt_id(task: TaskId, claim: &Claim) -> AttemptId {
    AttemptId { task, key: claim.key, attempt: claim.attempt, claim: claim.number }
}
