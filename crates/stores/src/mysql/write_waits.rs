//! Writes what tasks wait for.

use windlass_core::{Free, Ready, TaskId, Waiting};

use super::script::{Cell, Script, cells};
use crate::rows::{WaitBefore, WaitWrite, Writes, fairness_bytes, free_code, to_integer};

const HEAD: &str = "INSERT INTO windlass_wait (task, act, attempt, due_at, module, command, fairness, place,
    ready_at, timeout, free, queue, kept_back)";

/// A row that is new or says something else now: nobody has its attempt.
const PUT: &str = "ON DUPLICATE KEY UPDATE attempt = VALUES(attempt), due_at = VALUES(due_at),
    module = VALUES(module), command = VALUES(command), fairness = VALUES(fairness), place = VALUES(place),
    ready_at = VALUES(ready_at), timeout = VALUES(timeout), free = VALUES(free), queue = VALUES(queue),
    kept_back = VALUES(kept_back), session = NULL, claim = NULL, claimed_at = NULL, timeout_at = NULL";

/// The same of an attempt that the session has that has it.
const KEEP: &str = "ON DUPLICATE KEY UPDATE due_at = VALUES(due_at), module = VALUES(module),
    command = VALUES(command), fairness = VALUES(fairness), place = VALUES(place),
    ready_at = VALUES(ready_at), timeout = VALUES(timeout), free = VALUES(free)";

/// Adds statements that write what tasks wait for. What becomes of their rows is known: they were read and locked.
pub(super) fn add_waits(script: &mut Script, writes: &Writes) {
    let (mut put, mut keep, mut ended, mut deleted) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for write in writes.tasks.values() {
        let id = write.task.id;
        if write.task.is_ended() {
            ended.extend((!write.is_new).then_some(Cell::from(id)));
            continue;
        }
        for (act, wait) in &write.waits {
            match wait {
                WaitWrite::Put { waiting, before: WaitBefore::Claimed } => {
                    keep.push(row(id, *act, waiting, true));
                }
                WaitWrite::Put { waiting, .. } => put.push(row(id, *act, waiting, false)),
                // Nothing is waited for, and the attempt was handed out before.
                WaitWrite::Rest { attempt } => {
                    let mut rest = cells![id, *act, *attempt];
                    rest.resize(13, Cell::Null);
                    put.push(rest);
                }
                WaitWrite::Delete if write.is_new => {}
                WaitWrite::Delete => deleted.push((Cell::from(id), Cell::from(*act))),
            }
        }
    }
    script.for_keys("DELETE FROM windlass_wait WHERE task", ended, "");
    script.for_pairs("DELETE FROM windlass_wait WHERE", ("task", "act"), deleted, "");
    script.insert(HEAD, keep, KEEP);
    script.insert(HEAD, put, PUT);
}

fn row(task: TaskId, act: i64, waiting: &Waiting, is_claimed: bool) -> Vec<Cell<'_>> {
    let ready: Option<&Ready> = waiting.ready.as_ref();
    let free = ready.filter(|_| !is_claimed).map(|ready| ready.free);
    cells![
        task,
        act,
        waiting.attempt,
        waiting.due_at.map(|at| at.0),
        ready.map(|ready| &ready.module),
        ready.map(|ready| &ready.command),
        ready.map(|ready| fairness_bytes(ready.fairness.as_deref())),
        ready.map(|ready| ready.rank),
        ready.map(|ready| ready.ready_at.0),
        ready.map(|ready| to_integer(ready.timeout.0)),
        ready.map(|ready| i64::from(free_code(ready.free))),
        ready.filter(|_| free == Some(Free::HandOut)).map(|ready| &ready.module),
        free.filter(|free| *free != Free::HandOut).map(|_| true),
    ]
}
