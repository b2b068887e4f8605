//! What an export consists of.

use std::fmt;

use serde::{Deserialize, Serialize};
use windlass_core::{ActKey, Actor, Millis, Name, TaskId, Timestamp};

use crate::port::{Limit, LogLine, MessageId, Sender, Starts};

/// The newest format, and those before it are read.
pub(super) const FORMAT: u32 = 5;

/// The first format that has the floor of locks.
pub(super) const FORMAT_WITH_LOCK_FLOOR: u32 = 3;

/// One thing of a store. The order is that of the file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Record {
    /// A version of a flow; those of a name in their order.
    Flow { created_at: Timestamp, flow: Vec<u8> },
    /// A limit.
    Limit(LimitRecord),
    /// A queue that is paused.
    Queue { name: Name, at: Timestamp, by: Option<Actor> },
    /// A message that was not consumed.
    Message { sender: SenderRecord, n: u64, message: Vec<u8> },
    /// A task; those submitted first before others.
    Task(Box<TaskRecord>),
    /// Log lines of the task before.
    Logs(Vec<LogRecord>),
    /// A lock, and who waits for it.
    Lock { name: Name, version: u64, holder: Vec<u8>, waiters: Vec<Vec<u8>> },
    /// An alarm; those raised first before others.
    Alarm(Vec<u8>),
    /// An idempotency key that stays by itself.
    Key { scope: [u8; 32], fingerprint: [u8; 32], task: TaskId, at: Timestamp },
    /// Nothing follows.
    End { totals: Totals, digest: [u8; 32] },
    /// How many events of a task are not announced yet, from the one after `after` on. These records precede the task, in
    /// the order in which the events happened. New with format 2.
    Unannounced { task: TaskId, after: u64, count: u64 },
    /// The floor of locks, first of all. New with format 3.
    LockFloor(u64),
    /// A trigger or a device, by the number of its kind. New with format 5.
    Stored { kind: i64, name: Name, body: Vec<u8> },
    /// Entries of journals, by the numbers of their kinds; oldest first. New with format 5.
    Journal(Vec<(i64, Name, Timestamp, Vec<u8>)>),
}

/// How much was taken out of a store, or into one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Versions of flows.
    pub flows: u64,
    /// Tasks.
    pub tasks: u64,
    /// Log lines.
    pub log_lines: u64,
    /// Locks.
    pub locks: u64,
    /// Alarms.
    pub alarms: u64,
    /// Limits, paused queues, messages, what is to be announced, keys that stay by themselves, triggers, devices, and
    /// entries of journals.
    pub others: u64,
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flows, tasks, log_lines, locks, alarms, .. } = self;
        let of =
            |count: u64, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
        let counts = [
            of(*tasks, "task", "tasks"),
            of(*flows, "version of a flow", "versions of flows"),
            of(*log_lines, "log line", "log lines"),
            of(*locks, "lock", "locks"),
            of(*alarms, "alarm", "alarms"),
        ];
        f.write_str(&counts.join(", "))
    }
}

impl Totals {
    pub(super) fn count(&mut self, record: &Record) {
        match record {
            Record::Flow { .. } => self.flows += 1,
            Record::Task(_) => self.tasks += 1,
            Record::Logs(lines) => self.log_lines += lines.len() as u64,
            Record::Lock { .. } => self.locks += 1,
            Record::Alarm(_) => self.alarms += 1,
            Record::Limit(_)
            | Record::Queue { .. }
            | Record::Message { .. }
            | Record::Unannounced { .. }
            | Record::Stored { .. }
            | Record::Key { .. } => {
                self.others += 1;
            }
            Record::Journal(entries) => self.others += entries.len() as u64,
            Record::LockFloor(_) | Record::End { .. } => {}
        }
    }
}

/// A task.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TaskRecord {
    pub(super) id: TaskId,
    pub(super) flow: Name,
    pub(super) version: u32,
    /// The flow itself, where the task brought it along.
    pub(super) brought: Option<Vec<u8>>,
    /// What was submitted, without its parameters.
    pub(super) input: Vec<u8>,
    pub(super) params: Box<str>,
    pub(super) state: Vec<u8>,
    /// Members by step, in the order of their numbers.
    pub(super) members: Vec<(usize, Vec<u8>)>,
    pub(super) results: Vec<(ActKey, Box<str>)>,
    /// All of its events.
    pub(super) events: Vec<u8>,
    /// Scope and fingerprint of the key under which it was submitted.
    pub(super) key: Option<([u8; 32], [u8; 32])>,
    /// Acts whose current attempt a worker may have had.
    pub(super) handed_out: Vec<ActKey>,
}

/// Who sent a message.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum SenderRecord {
    Task(TaskId),
    Lock(Name),
}

impl SenderRecord {
    pub(super) fn new(sender: Sender) -> Self {
        match sender {
            Sender::Task(task) => Self::Task(task),
            Sender::Lock(name) => Self::Lock(name),
        }
    }

    pub(super) fn into_id(self, n: u64) -> MessageId {
        let sender = match self {
            Self::Task(task) => Sender::Task(task),
            Self::Lock(name) => Sender::Lock(name),
        };
        MessageId { sender, n }
    }
}

/// A limit.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LimitRecord {
    name: Name,
    queue: Name,
    command: Option<Name>,
    per_key: bool,
    running: Option<u32>,
    starts: Option<(u32, Millis)>,
}

impl LimitRecord {
    pub(super) fn new(limit: Limit) -> Self {
        let Limit { name, queue, command, per_key, running, starts } = limit;
        Self {
            name,
            queue,
            command,
            per_key,
            running,
            starts: starts.map(|starts| (starts.count, starts.per)),
        }
    }

    pub(super) fn into_limit(self) -> Limit {
        let Self { name, queue, command, per_key, running, starts } = self;
        let starts = starts.map(|(count, per)| Starts { count, per });
        Limit { name, queue, command, per_key, running, starts }
    }
}

/// A log line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LogRecord {
    task: TaskId,
    key: ActKey,
    attempt: u32,
    at: Timestamp,
    line: Box<str>,
}

impl LogRecord {
    pub(super) fn new(line: LogLine) -> Self {
        let LogLine { task, key, attempt, at, line } = line;
        Self { task, key, attempt, at, line }
    }

    pub(super) fn into_line(self) -> LogLine {
        let Self { task, key, attempt, at, line } = self;
        LogLine { task, key, attempt, at, line }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_for_people() {
        let totals = Totals { flows: 1, tasks: 2, locks: 1, ..Totals::default() };
        assert_eq!(totals.to_string(), "2 tasks, 1 version of a flow, 0 log lines, 1 lock, 0 alarms");
    }
}
