//! Where servers share a store, tasks join their exclusive queues before their submits are answered: whatever is submitted after
//! the reply joins behind them, on any server. A single server delivers these messages in the order of the tasks.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use windlass_core::{
    Lock, LockCommand, LockName, LockOwner, Message, Task, TaskId,
    planted::{Bug, is_planted},
};
use windlass_store::{Change, Envelope, StoreError};

use super::{
    batch::Place,
    inbox::{Item, Operation, Reply},
    part::Part,
};
use crate::Engine;

/// The maximum number of undelivered messages that are read to find those of existing tasks.
const UNDELIVERED_MAX: usize = 20_000;

/// Has existing tasks join as well, before submits that are deduplicated to them are answered: the server that accepted such a
/// task may have stopped before it delivered the message. Adds the messages to `by_place`, where those of new tasks are. A
/// submit gets a conflict if the message of its task is not found, or if the store fails; its sender repeats it.
pub(super) async fn join_existing(
    engine: &Engine,
    operations: &[Operation],
    asked: &[Place],
    replies: &mut [Vec<Option<Reply>>],
    by_place: &mut BTreeMap<Place, Envelope>,
) {
    let existing = existing_in_queues(operations, asked, replies);
    if existing.is_empty() || engine.store.cluster().is_none() || is_planted(Bug::JoinNotAwaited) {
        return;
    }
    // Two submits of one batch may be deduplicated to one task.
    let joins = by_place.values().filter_map(|join| Some((joining_task(join)?, join.clone())));
    let joining: HashMap<TaskId, Envelope> = joins.collect();
    let tasks = existing.iter().map(|(_, task)| *task).filter(|task| !joining.contains_key(task)).collect();
    let undelivered = match undelivered(engine, tasks).await {
        Ok(undelivered) => undelivered,
        Err(error) => {
            tracing::warn!(%error, "cannot read whether existing tasks have joined their exclusive queues: repeated submits get a conflict");
            existing.iter().for_each(|((operation, item), _)| {
                replies[*operation][*item] = Some(Reply::Conflict);
            });
            return;
        }
    };
    for (place, task) in existing {
        match (joining.get(&task), undelivered.get(&task)) {
            (Some(join), _) | (None, Some(Some(join))) => drop(by_place.insert(place, join.clone())),
            (None, Some(None)) => replies[place.0][place.1] = Some(Reply::Conflict),
            (None, None) => {}
        }
    }
}

/// The tasks among these that have not joined their queue yet, each with its undelivered message. `None` if the message is not
/// found: another server may have delivered it after this one has read the lock.
async fn undelivered(
    engine: &Engine,
    tasks: BTreeSet<TaskId>,
) -> Result<HashMap<TaskId, Option<Envelope>>, StoreError> {
    if tasks.is_empty() {
        return Ok(HashMap::new());
    }
    let loaded = engine.store.load(&tasks.into_iter().collect::<Vec<_>>()).await?;
    let mut waiting: Vec<(LockName, LockOwner)> =
        loaded.iter().flatten().filter_map(|loaded| first_wait(&loaded.task)).collect();
    if waiting.is_empty() {
        return Ok(HashMap::new());
    }
    let names: BTreeSet<LockName> = waiting.iter().map(|(queue, _)| queue.clone()).collect();
    let locks = engine.store.locks_by_name(&names.into_iter().collect::<Vec<_>>()).await?;
    let locks: HashMap<&LockName, &Lock> = locks.iter().map(|lock| (&lock.name, lock)).collect();
    waiting.retain(|(queue, owner)| !locks.get(queue).is_some_and(|lock| lock.has(owner)));
    if waiting.is_empty() {
        return Ok(HashMap::new());
    }
    let messages = engine.store.messages(UNDELIVERED_MAX).await?;
    let messages = messages.into_iter().filter_map(|envelope| Some((joining_task(&envelope)?, envelope)));
    let mut messages: HashMap<TaskId, Envelope> = messages.collect();
    Ok(waiting.into_iter().map(|(_, owner)| (owner.task, messages.remove(&owner.task))).collect())
}

/// The queue for which a task has waited since it was accepted, and its owner there. A task that joins at its start time, or again,
/// gets its position by a time, whenever its message is delivered.
fn first_wait(task: &Task) -> Option<(LockName, LockOwner)> {
    let is_first = task.waits_for_queue() && task.state.queue.turn == 1 && task.input.at.is_none();
    let queue = task.input.exclusive.as_ref().filter(|_| is_first)?;
    Some((queue.clone(), task.queue_owner()?))
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
fn joining_task(envelope: &Envelope) -> Option<TaskId> {
    match &envelope.message {
        Message::Lock { command: LockCommand::Join { owner, .. }, .. } => Some(owner.task),
        _ => None,
    }
}

/// Takes the requests for exclusive queues out of the messages that new tasks send, with the places of their submits.
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
        let join = sent.iter().position(|envelope| joining_task(envelope).is_some())?;
        Some((place, sent.swap_remove(join)))
    });
    joins.collect()
}
