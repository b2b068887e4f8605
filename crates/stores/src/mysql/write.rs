//! Writes what a batch came to: a statement or a few for each kind of row.
//!
//! Rows that are known to be there are written by `INSERT … ON DUPLICATE KEY UPDATE`, which takes many at once. Those
//! thought to be new are only inserted, so that one that is there after all fails.

use windlass_core::{AlarmState, Phase};
use windlass_store::{QueuePause, stored};

use super::{
    script::{Cell, Script, cells},
    write_waits::add_waits,
};
use crate::rows::{TaskWrite, Writes, act_code, ending_code, sender_bytes, to_integer};

/// Adds statements that write all of it.
pub(super) fn add_writes(script: &mut Script, writes: &Writes) {
    add_tasks(script, writes);
    add_waits(script, writes);
    add_parts(script, writes);
    add_outbox(script, writes);
    add_keys(script, writes);
    add_messages(script, writes);
    add_locks(script, writes);
    add_alarms(script, writes);
    add_flows(script, writes);
    add_queues(script, writes);
    add_limits(script, writes);
    add_records(script, writes);
    let lines = writes
        .logs
        .iter()
        .map(|line| cells![line.task, act_code(line.key), line.attempt, line.at.0, &*line.line]);
    script.insert("INSERT INTO windlass_log (task, act, attempt, at, line)", lines, "");
    if writes.probe {
        script.add("UPDATE windlass_meta SET probed = probed + 1", []);
    }
}

fn add_tasks(script: &mut Script, writes: &Writes) {
    let new = || writes.tasks.values().filter(|write| write.is_new);
    let inputs = new().map(|write| {
        let (task, input) = (&*write.task, &*write.task.input);
        cells![
            task.id,
            &task.flow.name,
            task.flow.version,
            input.created_at.0,
            stored::write_input(input),
            input.params.as_str(),
            write.scope.as_ref(),
        ]
    });
    let head = "INSERT INTO windlass_task (id, flow, version, created_at, head, params, scope)";
    script.insert(head, inputs, "");
    let head = "INSERT INTO windlass_state (task, events, ending, kept_since, kept_until, kept_for, state)";
    script.insert(head, new().map(state), "");
    let known = writes.tasks.values().filter(|write| !write.is_new);
    script.insert(
        head,
        known.map(state),
        "ON DUPLICATE KEY UPDATE events = VALUES(events), ending = VALUES(ending),
         kept_since = VALUES(kept_since), kept_until = VALUES(kept_until), kept_for = VALUES(kept_for),
         state = VALUES(state)",
    );
}

fn state(write: &TaskWrite) -> Vec<Cell<'_>> {
    let (state, retention) = (&write.task.state, write.task.flow.retention);
    let ending = match state.phase {
        Phase::Ended(ending) => Some(ending_code(ending)),
        _ => None,
    };
    let ended_at = state.ended_at.filter(|_| ending.is_some());
    let kept_since = ended_at.filter(|_| retention.is_none()).map(|at| at.0);
    let kept_until = ended_at.zip(retention).map(|(at, kept)| (at + kept).0);
    cells![
        write.task.id,
        to_integer(state.events),
        ending,
        kept_since,
        kept_until,
        write.task.kept_for(),
        stored::write_state(state)
    ]
}

/// Members, results and events.
fn add_parts(script: &mut Script, writes: &Writes) {
    let members = writes.tasks.values().flat_map(|write| {
        write.members.iter().filter_map(|(step, number)| {
            let member = write.task.state.steps[*step].members.as_deref()?.get(*number)?;
            Some(cells![write.task.id, to_integer(*step as u64), *number, stored::write_member(member)])
        })
    });
    script.insert(
        "INSERT INTO windlass_member (task, step, number, state)",
        members,
        "ON DUPLICATE KEY UPDATE state = VALUES(state)",
    );
    let results = writes.tasks.values().flat_map(|write| {
        write.results.iter().map(|(act, result)| cells![write.task.id, *act, result.as_str()])
    });
    script.insert(
        "INSERT INTO windlass_result (task, act, value)",
        results,
        "ON DUPLICATE KEY UPDATE value = VALUES(value)",
    );
    let history =
        writes.history.iter().map(|(task, last, events)| cells![*task, to_integer(*last), &events[..]]);
    script.insert("INSERT INTO windlass_history (task, last, events)", history, "");
}

/// What is to be announced, and what was.
fn add_outbox(script: &mut Script, writes: &Writes) {
    let unannounced = writes
        .unannounced
        .iter()
        .map(|(task, after, last)| cells![*task, to_integer(*after), to_integer(*last)]);
    script.insert("INSERT INTO windlass_outbox (task, after, last)", unannounced, "");
    let announced = writes.announced.iter();
    script.for_pairs(
        "DELETE FROM windlass_outbox WHERE",
        ("task", "after"),
        announced.map(|named| (Cell::from(named.task), to_integer(named.after).into())),
        "",
    );
}

/// Idempotency keys and unique keys.
fn add_keys(script: &mut Script, writes: &Writes) {
    let mut keys: Vec<_> = writes.submit_keys.iter().collect();
    keys.sort_unstable_by_key(|write| write.key.scope);
    let keys = keys.into_iter().map(|write| {
        let orphan = write.is_other.then_some(1_i64);
        cells![&write.key.scope, &write.key.fingerprint, write.task, write.created_at.0, orphan]
    });
    script.insert("INSERT INTO windlass_submit_key (scope, fingerprint, task, created_at, orphan)", keys, "");
    for (was_there, tail) in [(false, ""), (true, "ON DUPLICATE KEY UPDATE task = VALUES(task)")] {
        let keys = writes.unique.iter().filter(|(_, (_, was))| *was == was_there);
        let keys = keys.map(|(key, (task, _))| cells![&key.flow, &*key.key, *task]);
        script.insert("INSERT INTO windlass_unique_task (flow, value, task)", keys, tail);
    }
}

fn add_messages(script: &mut Script, writes: &Writes) {
    let consumed = writes.consumed.iter();
    script.for_pairs(
        "DELETE FROM windlass_message WHERE",
        ("sender", "n"),
        consumed.map(|id| (sender_bytes(&id.sender).into(), to_integer(id.n).into())),
        "",
    );
    let sent = writes.sent.iter();
    let sent = sent.map(|(id, message)| {
        cells![sender_bytes(&id.sender), to_integer(id.n), stored::write_message(message)]
    });
    script.insert("INSERT INTO windlass_message (sender, n, data)", sent, "");
}

fn add_locks(script: &mut Script, writes: &Writes) {
    let gone = writes.locks.iter().filter(|(_, (lock, was_kept))| lock.is_none() && *was_kept);
    script.for_keys("DELETE FROM windlass_lock WHERE name", gone.map(|(name, _)| name.into()), "");
    if let Some(floor) = writes.lock_floor {
        script.add("UPDATE windlass_lock_floor SET version = ? WHERE one = 1", cells![to_integer(floor)]);
    }
    let update = "ON DUPLICATE KEY UPDATE version = VALUES(version), holder = VALUES(holder)";
    for (was_kept, tail) in [(false, ""), (true, update)] {
        let locks = writes.locks.values().filter(|(_, was)| *was == was_kept);
        let locks = locks.filter_map(|(lock, _)| lock.as_ref());
        let locks = locks.map(|lock| {
            cells![&lock.name, to_integer(lock.version), stored::write_tenure(&stored::Tenure::of(lock))]
        });
        script.insert("INSERT INTO windlass_lock (name, version, holder)", locks, tail);
    }
    let left = writes.lock_waiters.iter().filter(|(_, waiter)| waiter.is_none());
    script.for_pairs(
        "DELETE FROM windlass_lock_waiter WHERE",
        ("name", "place"),
        left.map(|((name, place), _)| (Cell::from(name), to_integer(*place).into())),
        "",
    );
    let joined = writes.lock_waiters.iter().filter_map(|((name, place), waiter)| {
        Some(cells![name, to_integer(*place), stored::write_lock_waiter(waiter.as_ref()?)])
    });
    script.insert("INSERT INTO windlass_lock_waiter (name, place, waiter)", joined, "");
}

fn add_alarms(script: &mut Script, writes: &Writes) {
    let update = "ON DUPLICATE KEY UPDATE version = VALUES(version), resolved = VALUES(resolved),
        raised_at = VALUES(raised_at), data = VALUES(data)";
    for (was_there, tail) in [(false, ""), (true, update)] {
        let alarms = writes.alarms.values().filter(|(.., was)| *was == was_there);
        let alarms = alarms.map(|(alarm, version, _)| {
            cells![
                &*alarm.id.0,
                to_integer(*version),
                alarm.task,
                alarm.state == AlarmState::Resolved,
                alarm.raised_at.0,
                stored::write_alarm(alarm),
            ]
        });
        script.insert(
            "INSERT INTO windlass_alarm (id, version, task, resolved, raised_at, data)",
            alarms,
            tail,
        );
    }
}

fn add_flows(script: &mut Script, writes: &Writes) {
    // One that came with a task before is held until the end, for nobody to delete it meanwhile.
    let (brought, hold) = (writes.brought.values(), "ON DUPLICATE KEY UPDATE created_at = created_at");
    for (flows, tail) in [(writes.flows.iter().collect(), ""), (brought.collect::<Vec<_>>(), hold)] {
        let flows = flows.into_iter().map(|stored| {
            let flow = &stored.flow;
            cells![&flow.name, flow.version, stored.created_at.0, stored::write_flow(flow)]
        });
        script.insert("INSERT INTO windlass_flow (name, version, created_at, data)", flows, tail);
    }
}

fn add_queues(script: &mut Script, writes: &Writes) {
    let by = |pause: &'_ Option<QueuePause>| pause.as_ref().and_then(|pause| pause.by.clone());
    let queues = writes.queues.iter().map(|(name, pause)| {
        let by = by(pause);
        let by_name = by.as_ref().map(|by| by.name.as_bytes().to_vec());
        cells![name, false, pause.as_ref().map(|pause| pause.at.0), by_name, by.map(|by| by.claimed)]
    });
    script.insert(
        "INSERT INTO windlass_queue (name, used, paused_at, by_name, by_claimed)",
        queues,
        "ON DUPLICATE KEY UPDATE paused_at = VALUES(paused_at), by_name = VALUES(by_name),
         by_claimed = VALUES(by_claimed)",
    );
}

fn add_limits(script: &mut Script, writes: &Writes) {
    let gone = || writes.limits.iter().filter(|(_, limit)| limit.is_none()).map(|(name, _)| name.into());
    script.for_keys("DELETE FROM windlass_limit WHERE name", gone(), "");
    script.for_keys("DELETE FROM windlass_begun WHERE name", gone(), "");
    let limits = writes.limits.values().flatten().map(|limit| {
        cells![
            &limit.name,
            &limit.queue,
            limit.command.as_ref(),
            limit.per_key,
            limit.running,
            limit.starts.map(|starts| starts.count),
            limit.starts.map(|starts| to_integer(starts.per.0)),
        ]
    });
    script.insert(
        "INSERT INTO windlass_limit (name, queue, command, per_key, running, starts, per)",
        limits,
        "ON DUPLICATE KEY UPDATE queue = VALUES(queue), command = VALUES(command),
         per_key = VALUES(per_key), running = VALUES(running), starts = VALUES(starts), per = VALUES(per)",
    );
}

/// Records, and entries of journals.
fn add_records(script: &mut Script, writes: &Writes) {
    let gone = writes.records.iter().filter(|(_, (record, was_there))| record.is_none() && *was_there);
    script.for_pairs(
        "DELETE FROM windlass_record WHERE",
        ("kind", "name"),
        gone.map(|((kind, name), _)| (Cell::from(kind.code()), Cell::from(name))),
        "",
    );
    let update = "ON DUPLICATE KEY UPDATE version = VALUES(version), body = VALUES(body)";
    for (was_there, tail) in [(false, ""), (true, update)] {
        let records = writes.records.values().filter(|(_, was)| *was == was_there);
        let records = records.filter_map(|(record, _)| record.as_ref()).map(|record| {
            cells![record.kind.code(), &record.name, to_integer(record.version), &*record.body]
        });
        script.insert("INSERT INTO windlass_record (kind, name, version, body)", records, tail);
    }
    let entries = writes.journal.iter();
    let entries = entries.map(|entry| cells![entry.kind.code(), &entry.subject, entry.at.0, &*entry.body]);
    script.insert("INSERT INTO windlass_journal (kind, subject, at, body)", entries, "");
}
