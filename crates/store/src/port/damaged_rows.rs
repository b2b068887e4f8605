//! What is said of damaged rows that are of no task: what the server does without them, and what an operator does.

use std::fmt::Display;

use windlass_core::{
    LockName, Name,
    planted::{Bug, is_planted},
};

use super::{DamagedTask, Limit};

/// What to do about a row that only a backup can bring back.
const RESTORE: &str = "Run `windlass doctor`, then restore the row from a backup and restart the server";

impl DamagedTask {
    /// A version of a flow: the server does not use another one in its place.
    #[must_use]
    pub fn flow(name: &str, version: impl Display, fault: impl Display) -> Self {
        let reason = format!("{fault}. The tasks of this version wait. {RESTORE}");
        Self::row("flow", &format!("{name}.{version}"), reason)
    }

    /// A message between aggregates.
    #[must_use]
    pub fn message(sender: &str, n: u64, fault: impl Display) -> Self {
        let reason = format!("{fault}. The task or lock that the message is for waits for it. {RESTORE}");
        Self::row("message", &format!("{sender}.{n}"), reason)
    }

    /// An alarm.
    #[must_use]
    pub fn alarm(id: &str, fault: impl Display) -> Self {
        let reason = format!(
            "{fault}. Lists omit the alarm. The server replaces the row when it raises that alarm again"
        );
        Self::row("alarm", id, reason)
    }

    /// Events of a task that are to be announced.
    #[must_use]
    pub fn announcement(task: &str, fault: impl Display) -> Self {
        let reason = format!("{fault}. The server announces no later event of this task. {RESTORE}");
        Self::row("outbox", task, reason)
    }

    /// A lock that the server keeps closed: see [`windlass_core::Lock::close`]. `fault` is absent where it was closed before.
    #[must_use]
    pub fn closed_lock(name: &LockName, fault: Option<&str>) -> Self {
        let fault = fault.map(|fault| format!(" ({fault})")).unwrap_or_default();
        let reason = format!(
            "lock {name} is closed: its row was damaged{fault}, so the server cannot know which step or task has it. No other \
             gets it. Make sure that nothing uses what it protects, then run `windlass lock release {name} --reason TEXT`"
        );
        Self::row("lock", name.as_str(), reason)
    }

    /// A row of a lock whose name cannot be read.
    #[must_use]
    pub fn unknown_lock(found: &str, fault: impl Display) -> Self {
        let reason = format!(
            "the row of a lock is damaged, and its name cannot be read (\"{found}\"): {fault}. The server closes the locks \
             that steps have and that are not stored. {RESTORE}"
        );
        Self::row("lock", found, reason)
    }

    /// A step that waits for a lock. `owner` is the task, where it can be read.
    #[must_use]
    pub fn lock_waiter(name: &str, place: u64, owner: Option<String>, fault: impl Display) -> Self {
        let who = owner.map_or_else(|| "a task".to_owned(), |task| format!("task {task}"));
        let reason = format!(
            "the row of {who} that waits for lock {name} is damaged: {fault}. It may never get the lock: see \
             `windlass lock show {name}`. {RESTORE}, or cancel the task"
        );
        Self::row("lock_waiter", &format!("{name}.{place}"), reason)
    }

    /// The floor of the locks. `floor` is what the server uses instead.
    #[must_use]
    pub fn lock_floor(floor: u64, fault: impl Display) -> Self {
        let reason = format!(
            "the floor of the locks' fencing tokens was damaged: {fault}. The server has set it to {floor}, above every \
             fencing token that it knows. There is nothing to do but to look after the disk"
        );
        Self::row("lock_floor", "one", reason)
    }

    /// A limit. The server keeps its queue closed: see [`Limit::closed`].
    #[must_use]
    pub fn limit(name: &Name, queue: &Name, fault: impl Display) -> Self {
        let reason = format!(
            "the row of limit {name} is damaged: {fault}. The server hands out nothing of queue {queue}, because it \
             cannot know how much may run. Set the limit again with `windlass limit set {name} --queue {queue} …`, or \
             remove it with `windlass limit remove {name}`"
        );
        Self::row("limit", name.as_str(), reason)
    }

    /// A limit whose queue cannot be read.
    #[must_use]
    pub fn unknown_limit(name: &str, fault: impl Display) -> Self {
        let reason = format!(
            "the row of limit \"{name}\" is damaged, and its name or queue cannot be read: {fault}. The server does not \
             apply the limit. Set it again with `windlass limit set`"
        );
        Self::row("limit", name, reason)
    }

    /// A record, such as a trigger or a device.
    #[must_use]
    pub fn record(kind: &str, name: &str, fault: impl Display) -> Self {
        let reason = format!(
            "the row of {kind} \"{name}\" is damaged: {fault}. The server works without it. Apply it again, or remove it"
        );
        Self::row("record", &format!("{kind}.{name}"), reason)
    }

    /// A paused queue. The server keeps it paused.
    #[must_use]
    pub fn queue(name: &Name, fault: impl Display) -> Self {
        let reason = format!(
            "the row of the paused queue {name} is damaged: {fault}. The server keeps the queue paused. Check that it is \
             the queue that you paused. Pause it again with `windlass queue pause {name}`, or run `windlass queue resume \
             {name}`"
        );
        Self::row("queue", name.as_str(), reason)
    }

    /// A paused queue whose name cannot be read.
    #[must_use]
    pub fn unknown_queue(found: &str, fault: impl Display) -> Self {
        let reason = format!(
            "the row of a paused queue is damaged, and its name cannot be read (\"{found}\"): {fault}. The server hands out \
             what is in that queue. Pause the queue again with `windlass queue pause`"
        );
        Self::row("queue", found, reason)
    }

    /// A line of tasks at rest.
    #[must_use]
    pub fn line(name: &str, fault: impl Display) -> Self {
        let reason = format!(
            "a row about a queue's tasks on disk ({name}) was damaged: {fault}. The server has written it again from the \
             tasks. There is nothing to do but to look after the disk"
        );
        Self::row("line", name, reason)
    }

    /// The row about the file itself, which has the key of the tokens.
    #[must_use]
    pub fn meta(fault: impl Display) -> Self {
        let reason = format!(
            "the row about the file itself was damaged: {fault}. The server has made a new key for tokens and refuses \
             tokens made with the old key: steps that workers had are handed out again, with the same idempotency keys. \
             There is nothing to do but to look after the disk"
        );
        Self::row("meta", "one", reason)
    }
}

impl Limit {
    /// In place of a limit whose row is damaged: nothing of the queue is handed out. It goes when the limit is set again or
    /// removed.
    #[must_use]
    pub fn closed(name: Name, queue: Name) -> Self {
        let running = (!is_planted(Bug::DamagedLimitIgnored)).then_some(0);
        Self { name, queue, command: None, per_key: false, running, starts: None }
    }
}
