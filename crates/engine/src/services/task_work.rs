//! A task in a batch, and what is done to it.

use std::sync::Arc;

use windlass_core::{
    Act, ActKey, ActState, Attempt, Command, Context, Effect, EventKind, Json, Outcome, Rejection, Task,
    TaskId, Transition, apply, is_to_stop,
    planted::{Bug, is_planted},
};

use super::batch::{Pending, Place};
use crate::{
    inbox::Reply,
    ports::{AttemptId, Claim, Envelope, Loaded, LogLine, MessageId, Now, SessionId, SubmitKey, TaskChange},
};

/// A task and what is done to it: all commands of a batch make one change.
pub(super) struct TaskWork {
    /// The task as it is by now; nothing when it is not there.
    pub(super) loaded: Option<Loaded>,
    pub(super) change: Option<TaskChange>,
    pub(super) pending: Vec<Pending>,
    /// Attempts that workers are to stop.
    pub(super) stops: Vec<(SessionId, AttemptId)>,
}

impl TaskWork {
    pub(super) fn new(loaded: Option<Loaded>) -> Self {
        Self { loaded, change: None, pending: Vec::new(), stops: Vec::new() }
    }

    /// Takes a new task in. `done` are steps that the task of which it is a new run has done.
    pub(super) fn accept(
        task: &Arc<Task>,
        done: &[(usize, Option<Json>)],
        key: Option<&SubmitKey>,
        place: Place,
        now: Now,
    ) -> Result<Self, Rejection> {
        let accept = Command::Accept { done: done.to_vec(), by: task.input.by.clone() };
        let transition = apply(task, &accept, &Context::at(now.wall))?;
        let new = Loaded::untouched(task.clone());
        let mut work = Self::new(None);
        work.take(new, transition, Vec::new(), place);
        if let Some(change) = &mut work.change {
            change.submit_key = key.cloned();
        }
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
            if self.change.is_some() {
                self.pending.push(Pending { place, reply: None });
                return None;
            }
            return Some(Reply::Task(loaded));
        }
        self.note_stops(&loaded, &transition.task, &command);
        self.take(loaded, transition, logs.to_vec(), place);
        None
    }

    /// A refusal holds when the task is on disk as it was decided on.
    fn refuse(&mut self, rejection: Rejection, place: Place) -> Option<Reply> {
        let reply = Reply::Rejected(rejection);
        if self.change.is_none() {
            return Some(reply);
        }
        self.pending.push(Pending { place, reply: Some(reply) });
        None
    }

    /// Takes a transition of `before` into the task's change.
    fn take(&mut self, before: Loaded, transition: Transition, logs: Vec<LogLine>, place: Place) {
        let Transition { task, events, effects } = transition;
        let task = Arc::new(task);
        let change = self.change.get_or_insert_with(|| TaskChange {
            before: before.task.state.events,
            generation: before.generation,
            task: task.clone(),
            events: Vec::new(),
            waits: Vec::new(),
            results: Vec::new(),
            logs: Vec::new(),
            messages: Vec::new(),
            submit_key: None,
        });
        change.task = task.clone();
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
                    let n = change.before + 1 + change.messages.len() as u64;
                    change.messages.push(Envelope { id: MessageId { task: task.id, n }, message });
                }
                wait => change.waits.push(wait),
            }
        }
        change.events.extend(events);
        change.logs.extend(logs);
        self.loaded = Some(goes_on(before, task));
        self.pending.push(Pending { place, reply: None });
    }

    /// Which workers must stop because of what just happened: their task turned around, their step's deadline
    /// passed, or the attempt was given up.
    fn note_stops(&mut self, before: &Loaded, after: &Task, command: &Command) {
        let given_up = match command {
            Command::TimeOut(attempt) | Command::Lose(attempt) => Some(attempt.key),
            _ => None,
        };
        for claim in &before.claims {
            let turned = is_to_stop(after, claim.key) && !is_to_stop(&before.task, claim.key);
            if turned || given_up == Some(claim.key) {
                self.stops.push((claim.session, attempt_id(after.id, claim)));
            }
        }
    }
}

/// A report under a lower claim than the one known is late; one that passes gets the time it was handed out.
fn check_claim(loaded: &Loaded, command: &Command, token: Option<u64>) -> Result<Command, Rejection> {
    let mut command = command.clone();
    if let (Command::Report(report), Some(token)) = (&mut command, token)
        && let Some(claim) = claim_of(loaded, &report.attempt)
    {
        if token < claim.number && !is_planted(Bug::NoFence) {
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
        (Outcome::RetryLater { .. }, ActState::Delayed { .. }) => act.postponements > 0,
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

/// The task after a transition: claims end with their attempts, and so does that one was handed out.
fn goes_on(before: Loaded, task: Arc<Task>) -> Loaded {
    let Loaded { task: was, mut claims, mut handed_out, mut awaited, generation } = before;
    claims.retain(|claim| {
        task.act(claim.key).is_some_and(|act| act.state == ActState::Ready && act.attempt == claim.attempt)
    });
    let is_current = |act: &Act| matches!(act.state, ActState::Ready | ActState::Parked);
    let goes_on = |key: &ActKey| match (was.act(*key), task.act(*key)) {
        (Some(was), Some(act)) => was.attempt == act.attempt && is_current(act),
        _ => false,
    };
    handed_out.retain(goes_on);
    awaited.retain(goes_on);
    Loaded { task, claims, handed_out, awaited, generation }
}

fn attempt_id(task: TaskId, claim: &Claim) -> AttemptId {
    AttemptId { task, key: claim.key, attempt: claim.attempt, claim: claim.number }
}
