//! What a commit may do.
//!
//! A store shows what it has as a [`RowView`] and a [`ClaimView`]: as it is on disk, with the earlier changes of the same
//! commit. [`BuiltOn::decide`](super::BuiltOn::decide) returns the outcome of the next change. If that is
//! [`Outcome::Committed`], the store applies the change before it decides the one after it.
//!
//! A change has the first of these outcomes that fits:
//!
//! | outcome | reason |
//! |---|---|
//! | `KeyTaken` | its idempotency key names a task |
//! | `Conflict` | a version, a generation, a message or an exclusive queue is not what its author knew; or it overlooks a claim, or one that was given back |
//! | `Heard` | a session that it takes for lost is not, or has the claim no more |
//! | `Repeats` | it is a new task that is deduplicated to a task with the same unique key |
//! | `Committed` | none of these |

use std::sync::Arc;

use windlass_core::{
    ActKey, AlarmId, Flow, LockHolder, LockName, Millis, Name, Task, TaskId,
    planted::{Bug, is_planted},
};

use crate::port::{Change, LostClaim, MessageId, Outcome, RecordKind, SessionId, TaskChange, UniqueKey};

/// What a store keeps of the aggregates that a change touches.
pub trait RowView {
    /// The task that an idempotency key names, and the fingerprint of what was submitted.
    fn submitted(&self, scope: &[u8; 32]) -> Option<(TaskId, [u8; 32])>;

    /// The version of a task; 0 if it does not exist.
    fn task_version(&self, id: TaskId) -> u64;

    /// The version of a lock. One that is not stored has the version of the floor.
    fn lock_version(&self, name: &LockName) -> u64;

    /// Who holds a lock.
    fn lock_holder(&self, name: &LockName) -> Option<LockHolder>;

    /// The version of an alarm; 0 if it does not exist.
    fn alarm_version(&self, id: &AlarmId) -> u64;

    /// The version of a record; 0 if it does not exist.
    fn record_version(&self, kind: RecordKind, name: &Name) -> u64;

    /// The newest version of a flow; 0 if it does not exist.
    fn flow_version(&self, name: &Name) -> u32;

    /// Whether the message was sent and not consumed.
    fn has_message(&self, message: &MessageId) -> bool;

    /// See [`Store::generation`](crate::Store::generation); `None` if there is one for ever.
    fn generation(&self) -> Option<u64> {
        None
    }

    /// Whether a flow is in the catalogue. Only a store whose catalogue can lose what was read of it must look.
    fn has_flow(&self, _flow: &Arc<Flow>) -> bool {
        true
    }
}

/// What a store knows of the sessions that have attempts.
pub trait ClaimView {
    /// The session that has the current attempt of an act.
    fn holder(&self, task: TaskId, key: ActKey) -> Option<Holder>;

    /// Which acts of a change have a ready attempt that a session has, or had and gave back; with its number.
    fn handed_out(&self, change: &TaskChange) -> impl Iterator<Item = (ActKey, u32)>;

    /// Whether a session was silent for longer than its lease, or is unknown.
    fn is_over(&self, session: SessionId, at: Millis) -> bool;

    /// The newest task with a unique key, and whether a session has an attempt of it.
    fn first(&self, key: &UniqueKey) -> Option<(&Task, bool)>;
}

/// A session that has an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Number of the attempt.
    pub attempt: u32,
    /// Number of the claim.
    pub claim: u64,
    /// The session.
    pub session: SessionId,
}

/// The outcome of a change as far as rows decide it, without claims and unique keys.
#[must_use]
pub(crate) fn fits(change: &Change, rows: &impl RowView) -> Outcome {
    if let Some((task, fingerprint)) = change.submit_key().and_then(|key| rows.submitted(&key.scope)) {
        return Outcome::KeyTaken { task, fingerprint };
    }
    let is_of = |decided_in| rows.generation().is_none_or(|generation| generation == decided_in);
    let has_message = |message| rows.has_message(message) || is_planted(Bug::MessageTwice);
    let fits = change.consumes().is_none_or(has_message)
        && match change {
            Change::Task(change) => {
                let is_known = match change.before {
                    0 => rows.has_flow(&change.task.flow),
                    _ => is_of(change.generation),
                };
                is_known
                    && task_version_fits(change, rows)
                    && !change.is_fenced_out(|name| rows.lock_holder(name))
            }
            Change::Alarm(change) => {
                change.alarm.as_ref().is_none_or(|alarm| rows.alarm_version(&alarm.id) == change.before)
            }
            Change::Lock(change) => {
                let is_current = is_of(change.generation) || is_planted(Bug::LostLockState);
                is_current && rows.lock_version(&change.lock.name) == change.before
            }
            Change::Record(change) => {
                let version = rows.record_version(change.kind, &change.name);
                let is_lost = version > 0 && is_planted(Bug::RecordChangeLost);
                is_of(change.generation) && (version == change.before || is_lost)
            }
            Change::Flow(stored) => stored.flow.version == rows.flow_version(&stored.flow.name) + 1,
            Change::Consume(_)
            | Change::Queue(_)
            | Change::Limit(_)
            | Change::Journal(_)
            | Change::Audit(_)
            | Change::Key(_)
            | Change::Logs(_)
            | Change::Announced(_)
            | Change::Probe => true,
        };
    if fits { Outcome::Committed } else { Outcome::Conflict }
}

fn task_version_fits(change: &TaskChange, rows: &impl RowView) -> bool {
    let version = rows.task_version(change.task.id);
    version == change.before || version > 0 && is_planted(Bug::LostUpdate)
}

/// The outcome of a change.
pub(super) fn outcome(change: &Change, rows: &impl RowView, claims: &impl ClaimView) -> Outcome {
    let outcome = fits(change, rows);
    match change {
        Change::Task(change) if outcome == Outcome::Committed => claims_fit(change, claims),
        _ => outcome,
    }
}

fn claims_fit(change: &TaskChange, claims: &impl ClaimView) -> Outcome {
    let id = change.task.id;
    let overlooks = |key| claims.holder(id, key).is_some_and(|holder| change.overlooks(key, holder));
    if change.acts().any(overlooks)
        || claims.handed_out(change).any(|(key, attempt)| change.forgets(key, attempt))
    {
        return Outcome::Conflict;
    }
    let is_lost = |lost: &LostClaim| {
        let holder = claims.holder(id, lost.key);
        holder.is_some_and(|holder| (holder.claim, holder.session) == (lost.claim, lost.session))
            && lost.over_at.is_none_or(|at| claims.is_over(lost.session, at))
    };
    if !change.lost.iter().all(is_lost) {
        return Outcome::Heard;
    }
    let first = change.unique().and_then(|key| claims.first(&key));
    match first.filter(|(first, is_held)| change.is_stood_for_by(first, *is_held)) {
        Some((first, _)) => Outcome::Repeats { task: first.id },
        None => Outcome::Committed,
    }
}
