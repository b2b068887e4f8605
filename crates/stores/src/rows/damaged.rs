//! Damaged rows that are of no task: each is left out, and the quarantine remembers it.

use windlass_core::{Alarm, AlarmId, AlarmKind, AlarmState, Lock, LockName, Name, TaskId, Timestamp};
use windlass_store::{DamagedTask, Envelope, Limit, MessageId, Quarantine, Sender, StoreError, stored};

use super::sender;

/// At most this many damaged tasks are left out of claims; others are claimed and released again.
const LEFT_OUT_MAX: usize = 1_000;

/// Tasks of which nothing is claimed: they cannot be read.
pub(crate) fn left_out(quarantine: &Quarantine) -> Vec<TaskId> {
    let mut tasks = quarantine.tasks();
    tasks.truncate(LEFT_OUT_MAX);
    tasks
}

/// A limit of `queue`, or what takes its place where its row is damaged: the queue is closed.
pub(crate) fn limit_or_closed(
    quarantine: &Quarantine,
    (found, queue): (&str, &str),
    read: Result<Limit, StoreError>,
) -> Result<Option<Limit>, StoreError> {
    let of = |name: &str| {
        let queue = Name::new(queue).ok()?;
        // A limit without a name can be removed by SQL alone.
        let name = Name::new(name).or_else(|_| Name::new("damaged")).ok()?;
        Some((name, queue))
    };
    let known = of(found);
    let row = |fault: &StoreError| match &known {
        Some((name, queue)) => DamagedTask::limit(name, queue, fault),
        None => DamagedTask::unknown_limit(found, fault),
    };
    let read = quarantine.readable_row(read, row)?;
    Ok(read.or_else(|| known.map(|(name, queue)| Limit::closed(name, queue))))
}

/// Puts a lock together: it is closed where its holder cannot be read.
pub(crate) fn lock(
    quarantine: &Quarantine,
    name: LockName,
    version: u64,
    tenure: Result<stored::Tenure, StoreError>,
) -> Result<Lock, StoreError> {
    let mut lock = Lock::new(name, version);
    let row = |fault: &StoreError| DamagedTask::closed_lock(&lock.name, Some(&fault.to_string()));
    match quarantine.readable_row(tenure, row)? {
        Some(tenure) => tenure.restore(&mut lock),
        None => lock.close(version),
    }
    if lock.is_closed() {
        quarantine.add(DamagedTask::closed_lock(&lock.name, None));
    }
    Ok(lock)
}

/// A message from its row; nothing where it is damaged.
pub(crate) fn message(
    quarantine: &Quarantine,
    of: &[u8],
    n: u64,
    data: &[u8],
) -> Result<Option<Envelope>, StoreError> {
    let sender = sender(of);
    let name = match &sender {
        Ok(Sender::Task(task)) => task.to_string(),
        Ok(Sender::Lock(name)) => format!("lock.{name}"),
        Err(_) => "unknown".to_owned(),
    };
    let read = sender.and_then(|sender| {
        let message = stored::read_message(data)?;
        Ok(Envelope { id: MessageId { sender, n }, message })
    });
    quarantine.readable_row(read, |fault| DamagedTask::message(&name, n, fault))
}

/// In place of an alarm whose row is damaged: lists omit it, and the next one of this id replaces it.
pub(crate) fn unreadable_alarm(id: &AlarmId) -> Alarm {
    Alarm {
        id: id.clone(),
        kind: AlarmKind::DamagedRow,
        task: TaskId::NONE,
        step: None,
        message: "the row of this alarm is damaged".into(),
        raised_at: Timestamp(0),
        raised: 0,
        state: AlarmState::Resolved,
        by: None,
    }
}

/// A number of a limit.
pub(crate) fn count(number: i64) -> Result<u32, StoreError> {
    u32::try_from(number).map_err(|_| StoreError::Damaged(format!("{number} is not a number of attempts")))
}

/// The name in a column of what waits; another one where it is damaged: the task's own state says what it is.
pub(crate) fn any_name(text: &str) -> Name {
    Name::new(text).or_else(|_| Name::new("damaged")).expect("\"damaged\" is a name")
}
