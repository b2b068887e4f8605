//! Tasks join their exclusive queues before their submits are answered: whatever is submitted after the reply joins behind them, on any
//! server.

use std::collections::{BTreeMap, HashMap};

use windlass_core::{
    LockCommand, Message, TaskId,
    planted::{Bug, is_planted},
};
use windlass_store::{Change, Envelope, StoreError};

use super::{
    batch::Place,
    inbox::{Item, Operation, Reply},
    part::Part,
};
use crate::Engine;

/// The maximum number of undelivered messages among which a submit looks for the one of an existing task.
const UNDELIVERED_MAX: usize = 20_000;

/// Submits of flows with an exclusive queue that are deduplicated to an existing task are answered after that task has joined,
/// like those of new tasks. The server that accepted the task may have stopped before it delivered the message.
/// If the store fails, these submits have no replies.
pub(super) async fn join_existing(
    engine: &Engine,
    operations: &[Operation],
    asked: &[Place],
    replies: &mut [Vec<Option<Reply>>],
    joining: &mut BTreeMap<Place, Envelope>,
) -> Result<(), (Vec<Place>, StoreError)> {
    let existing = existing_in_queues(operations, asked, replies);
    if existing.is_empty() || is_planted(Bug::JoinNotAwaited) {
        return Ok(());
    }
    let messages = match engine.store.messages(UNDELIVERED_MAX).await {
        Ok(messages) => messages,
        Err(error) => {
            existing.iter().for_each(|((operation, item), _)| replies[*operation][*item] = None);
            return Err((existing.into_iter().map(|(place, _)| place).collect(), error));
        }
    };
    let are_all = messages.len() < UNDELIVERED_MAX;
    let joins = messages.into_iter().filter_map(|envelope| Some((joins(&envelope)?, envelope)));
    let undelivered: HashMap<TaskId, Envelope> = joins.collect();
    for (place, task) in existing {
        match undelivered.get(&task) {
            Some(join) => drop(joining.insert(place, join.clone())),
            None if are_all => {}
            None => replies[place.0][place.1] = Some(Reply::Conflict),
        }
    }
    Ok(())
}

/// The existing tasks that submits of flows with an exclusive queue got as replies.
fn existing_in_queues(
    operations: &[Operation],
    asked: &[Place],
    replies: &[Vec<Option<Reply>>],
) -> Vec<(Place, TaskId)> {
    let existing = asked.iter().filter_map(|&(operation, item)| match &replies[operation][item] {
        Some(Reply::KeyTaken { task, .. } | Reply::Repeats { task }) => Some(((operation, item), *task)),
        _ => None,
    });
    let has_queue = |&(operation, item): &Place| match &operations[operation].items[item] {
        Item::Submit(new) => new.task.flow.exclusive.is_some(),
        _ => false,
    };
    existing.filter(|(place, _)| has_queue(place)).collect()
}

/// The task that joins its exclusive queue with a message.
fn joins(envelope: &Envelope) -> Option<TaskId> {
    match &envelope.message {
        Message::Lock { command: LockCommand::Join { owner, .. }, .. } => Some(owner.task),
        _ => None,
    }
}

/// Takes the requests for exclusive queues out of the messages that new tasks send, with the places of their submits. A
/// submit is answered after its task has joined: whatever is submitted after that joins behind it, on any server.
pub(super) fn take_joins(
    sent: &mut [Vec<Envelope>],
    changes: &[Change],
    parts: &[Part],
) -> Vec<Option<(Place, Envelope)>> {
    let parts = changes.iter().zip(parts).zip(sent);
    let joins = parts.map(|((change, part), sent)| {
        let is_new =
            matches!(change, Change::Task(change) if change.before == 0 && change.consumes.is_none());
        let place = part.pending.first().filter(|_| is_new)?.place;
        let join = sent.iter().position(|envelope| joins(envelope).is_some())?;
        Some((place, sent.swap_remove(join)))
    });
    joins.collect()
}
