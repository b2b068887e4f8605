//! From the rows of a task to the task.

use std::{collections::BTreeSet, sync::Arc};

use windlass_core::{Act, ActKey, ActState, Flow, Json, Name, State, TaskId, Timestamp, Wakeup};
use windlass_store::{AttemptId, Claim, Claimed, Loaded, SessionId, StoreError, resident::TaskRow, stored};

use crate::rows::{act_key, any_name, from_integer, small, wakeup};

/// The rows of a task as they were read together.
#[derive(Debug)]
pub(crate) struct TaskParts {
    pub(crate) id: TaskId,
    pub(crate) flow: Name,
    pub(crate) version: u32,
    /// What was submitted, encoded, without its parameters.
    pub(crate) head: Vec<u8>,
    pub(crate) params: String,
    /// The state, encoded.
    pub(crate) state: Vec<u8>,
    /// Members by step and number, encoded; in this order.
    pub(crate) members: Vec<(i64, i64, Vec<u8>)>,
    /// What acts returned.
    pub(crate) results: Vec<(i64, String)>,
    /// Claims: act, attempt, number, session, since when.
    pub(crate) claims: Vec<(i64, i64, i64, u128, i64)>,
    /// The last attempts that sessions got, by act.
    pub(crate) handed_out: Vec<(i64, i64)>,
}

impl TaskParts {
    /// The task, with its flow in that version.
    pub(crate) fn into_loaded(self, flow: Arc<Flow>) -> Result<Loaded, StoreError> {
        let (id, of_task) = (self.id, |error: StoreError| of_task(self.id, &error));
        let mut row = TaskRow {
            id,
            flow: self.flow,
            version: self.version,
            input: stored::read_input(&self.head, &self.params).map_err(of_task)?,
            state: stored::read_state(&self.state).map_err(of_task)?,
            never_handed_out: false,
            is_body_away: false,
        };
        for (step, number, member) in &self.members {
            let of_step = usize::try_from(*step).ok().and_then(|step| row.state.steps.get_mut(step));
            let members = of_step.and_then(|step| Arc::make_mut(step).members.as_mut());
            let Some(members) = members.filter(|members| i64::from(members.begun()) + 1 == *number) else {
                let message = format!("item {number} of its step {step} does not belong to it");
                return Err(of_task(StoreError::Damaged(message)));
            };
            members.restore(stored::read_member(member).map_err(of_task)?);
        }
        for (act, result) in &self.results {
            let key = act_key(*act);
            // An execution that did not succeed has no result, whatever it had before an operator retried it.
            if act_of(&row.state, key).is_some_and(|act| act.state == ActState::Succeeded) {
                row.set_result(key, Json::from_stored(result));
            }
        }
        let task = row.into_task(|_, _| Some(flow))?;
        let claims = self.claims.into_iter().map(|(act, attempt, number, session, at)| Claim {
            key: act_key(act),
            attempt: small(attempt),
            number: from_integer(number),
            session: SessionId(session),
            at: Timestamp(at),
        });
        let claims = claims.collect();
        let handed_out = self.handed_out.into_iter().map(|(act, attempt)| (act_key(act), small(attempt)));
        let handed_out: BTreeSet<ActKey> = handed_out
            .filter(|(key, attempt)| task.has_current(*key, *attempt))
            .map(|(key, _)| key)
            .collect();
        Ok(Loaded { claims, handed_out, ..Loaded::untouched(Arc::new(task)) })
    }
}

fn act_of(state: &State, key: ActKey) -> Option<&Act> {
    let step = state.steps.get(key.step)?;
    if key.is_member() {
        return Some(step.members.as_ref()?.get(key.member)?.act(key.direction));
    }
    Some(step.act(key.direction))
}

/// A fault of the rows of a task.
pub(crate) fn of_task(id: TaskId, error: &StoreError) -> StoreError {
    match error {
        StoreError::Damaged(message) => StoreError::Damaged(format!("task {id}: {message}")),
        other => other.clone(),
    }
}

/// A claim as it stands in a row of waits.
pub(crate) fn claimed_wait(
    task: u128,
    act: i64,
    attempt: i64,
    claim: i64,
    session: u128,
    at: i64,
    module: &str,
) -> Result<Claimed, StoreError> {
    let Wakeup::Act(key) = wakeup(act) else {
        return Err(StoreError::Damaged(format!("task {}: its start is claimed", TaskId(task))));
    };
    let id = AttemptId { task: TaskId(task), key, attempt: small(attempt), claim: from_integer(claim) };
    Ok(Claimed { id, session: SessionId(session), at: Timestamp(at), module: any_name(module) })
}

/// A name from a column.
pub(crate) fn name(text: &str) -> Result<Name, StoreError> {
    Name::new(text).map_err(|error| StoreError::Damaged(error.to_string()))
}
