//! Locks, their waiters, and messages between aggregates: their rows, written and read.

use std::collections::BTreeMap;

use rusqlite::{Connection, Row, Statement, params};
use windlass_core::{Lock, LockName, Name};
use windlass_engine::{
    ports::{Envelope, LockChange, MessageId, Sender},
    stored,
};

use super::{
    checksum::{Checksum, Table},
    encoding::{from_integer, task_id, to_integer},
    error::{Fault, or_reason},
    read::{from_sql, name},
    recover::select_all,
};

/// What stands before the name of a lock that sends a message. No task has this id.
const LOCK_SENDER: [u8; 16] = [0; 16];

/// The statements that write locks and messages.
pub(super) struct LockRows<'c> {
    upsert_lock: Statement<'c>,
    delete_lock: Statement<'c>,
    raise_floor: Statement<'c>,
    insert_waiter: Statement<'c>,
    delete_waiter: Statement<'c>,
    insert_message: Statement<'c>,
    delete_message: Statement<'c>,
}

impl<'c> LockRows<'c> {
    pub(super) fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        let prepare = |sql: &str| connection.prepare(sql);
        Ok(Self {
            upsert_lock: prepare(
                "INSERT INTO lock (name, version, holder, checksum) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (name) DO UPDATE SET version = ?2, holder = ?3, checksum = ?4",
            )?,
            delete_lock: prepare("DELETE FROM lock WHERE name = ?1")?,
            raise_floor: prepare(
                "INSERT INTO lock_floor (one, version, checksum) VALUES (1, ?1, ?2)
                 ON CONFLICT (one) DO UPDATE SET version = ?1, checksum = ?2 WHERE version < ?1",
            )?,
            insert_waiter: prepare(
                "INSERT INTO lock_waiter (name, place, waiter, checksum) VALUES (?1, ?2, ?3, ?4)",
            )?,
            delete_waiter: prepare("DELETE FROM lock_waiter WHERE name = ?1 AND place = ?2")?,
            insert_message: prepare("INSERT INTO message (task, n, data, checksum) VALUES (?1, ?2, ?3, ?4)")?,
            delete_message: prepare("DELETE FROM message WHERE task = ?1 AND n = ?2")?,
        })
    }

    /// Writes what a change makes of a lock.
    pub(super) fn write(&mut self, change: &LockChange) -> Result<(), Fault> {
        let (name, version) = (change.lock.name.as_str(), to_integer(change.lock.version));
        if let Some(place) = change.left {
            self.delete_waiter.execute(params![name, to_integer(place)])?;
        }
        if let Some((place, waiter)) = &change.joined {
            let (place, waiter) = (to_integer(*place), stored::write_lock_waiter(waiter));
            let checksum = Checksum::of(Table::LockWaiter).text(name).number(place).blob(&waiter).finish();
            self.insert_waiter.execute(params![name, place, waiter, checksum])?;
        }
        if change.kept {
            let holder = stored::write_lock_holder(&change.lock.holder);
            let checksum = Checksum::of(Table::Lock).text(name).number(version).blob(&holder).finish();
            self.upsert_lock.execute(params![name, version, holder, checksum])?;
        } else {
            self.delete_lock.execute([name])?;
            let checksum = Checksum::of(Table::LockFloor).number(1).number(version).finish();
            self.raise_floor.execute([version, checksum])?;
        }
        self.send(&change.messages)?;
        self.consume(change.consumes.as_ref())
    }

    /// Writes messages that are sent.
    pub(super) fn send(&mut self, messages: &[Envelope]) -> Result<(), Fault> {
        for envelope in messages {
            let (sender, n) = (sender_bytes(&envelope.id.sender), to_integer(envelope.id.n));
            let data = stored::write_message(&envelope.message);
            let checksum = Checksum::of(Table::Message).blob(&sender).number(n).blob(&data).finish();
            self.insert_message.execute(params![sender, n, data, checksum])?;
        }
        Ok(())
    }

    /// Deletes a message that is consumed.
    pub(super) fn consume(&mut self, message: Option<&MessageId>) -> Result<(), Fault> {
        if let Some(message) = message {
            self.delete_message.execute(params![sender_bytes(&message.sender), to_integer(message.n)])?;
        }
        Ok(())
    }
}

fn sender_bytes(sender: &Sender) -> Vec<u8> {
    match sender {
        Sender::Task(task) => task.to_bytes().to_vec(),
        Sender::Lock(name) => [&LOCK_SENDER, name.as_bytes()].concat(),
    }
}

fn read_sender(row: &Row<'_>) -> Result<Sender, Fault> {
    let bytes = row.get_ref(0)?.as_blob().map_err(from_sql)?;
    match bytes.split_at_checked(LOCK_SENDER.len()) {
        Some((LOCK_SENDER_BYTES, name)) if !name.is_empty() => {
            let name = std::str::from_utf8(name).ok().and_then(|name| Name::new(name).ok());
            name.map(Sender::Lock).ok_or_else(|| Fault::damaged("a message is of a lock without a name"))
        }
        _ => Ok(Sender::Task(task_id(row, 0)?)),
    }
}

const LOCK_SENDER_BYTES: &[u8] = &LOCK_SENDER;

/// All messages that were not consumed. What is wrong with damaged ones is added to `damage`; they stay where they are.
pub(super) fn read_messages(
    connection: &Connection,
    damage: &mut Vec<String>,
) -> Result<Vec<Envelope>, Fault> {
    let mut statement = connection.prepare(&select_all(Table::Message))?;
    let mut rows = statement.query([])?;
    let mut messages = Vec::new();
    while let Some(row) = rows.next()? {
        match or_reason(read_message(row))? {
            Ok(message) => messages.push(message),
            Err(reason) => damage.push(reason),
        }
    }
    Ok(messages)
}

fn read_message(row: &Row<'_>) -> Result<Envelope, Fault> {
    let sender = read_sender(row)?;
    let read = || {
        Table::Message.check(row, 0)?;
        Ok(stored::read_message(row.get_ref(2)?.as_blob().map_err(from_sql)?)?)
    };
    let message = read().map_err(|fault: Fault| of_sender(&sender, &fault))?;
    Ok(Envelope { id: MessageId { sender, n: from_integer(row.get(1)?) }, message })
}

fn of_sender(sender: &Sender, fault: &Fault) -> Fault {
    match sender {
        Sender::Task(task) => Fault::damaged(format!("a message of task {task}: {fault}")),
        Sender::Lock(name) => Fault::damaged(format!("a message of lock {name}: {fault}")),
    }
}

/// Gives an older store a floor. Fences followed the clock until then, so it is ahead of the clock by a day.
pub(super) fn found_floor(connection: &Connection) -> rusqlite::Result<()> {
    let raised = connection.execute(
        "INSERT INTO lock_floor (one, version)
         SELECT 1, max(CAST(unixepoch('subsec') * 1000 AS INTEGER), (SELECT coalesce(max(version), 0) FROM lock))
                + 24 * 3600 * 1000
         WHERE EXISTS (SELECT 1 FROM task) OR EXISTS (SELECT 1 FROM lock)",
        [],
    )?;
    if raised == 0 { Ok(()) } else { Table::LockFloor.seal(connection, "one = 1", &[]) }
}

/// The floor of locks.
pub(super) fn read_floor(connection: &Connection) -> Result<u64, Fault> {
    let mut statement = connection.prepare(&select_all(Table::LockFloor))?;
    let mut rows = statement.query([])?;
    let Some(row) = rows.next()? else { return Ok(0) };
    Table::LockFloor.check(row, 0)?;
    Ok(from_integer(row.get(1)?))
}

/// All locks that are stored.
pub(super) fn read_locks(connection: &Connection) -> Result<Vec<Lock>, Fault> {
    let mut locks = BTreeMap::<LockName, Lock>::new();
    let mut statement = connection.prepare(&select_all(Table::Lock))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let name = name(row, 0)?;
        Table::Lock.check(row, 0).map_err(|fault| Fault::damaged(format!("lock {name}: {fault}")))?;
        let mut lock = Lock::new(name.clone(), from_integer(row.get(1)?));
        lock.holder = stored::read_lock_holder(row.get_ref(2)?.as_blob().map_err(from_sql)?)?;
        locks.insert(name, lock);
    }
    let mut statement = connection.prepare(&select_all(Table::LockWaiter))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let name = name(row, 0)?;
        let damaged = |fault: &str| Fault::damaged(format!("who waits for lock {name}: {fault}"));
        Table::LockWaiter.check(row, 0).map_err(|fault| damaged(&fault.to_string()))?;
        let waiter = stored::read_lock_waiter(row.get_ref(2)?.as_blob().map_err(from_sql)?)?;
        let lock = locks.get_mut(&name).ok_or_else(|| damaged("there is no such lock"))?;
        lock.restore(from_integer(row.get(1)?), waiter);
    }
    Ok(locks.into_values().collect())
}

#[cfg(test)]
mod tests {
    use windlass_core::TaskId;

    use super::*;

    #[test]
    fn senders_are_told_apart() {
        let lock = |name: &str| sender_bytes(&Sender::Lock(Name::new(name).unwrap()));
        assert_eq!(sender_bytes(&Sender::Task(TaskId(7))).len(), 16);
        assert_ne!(lock("a-name-of-16-byt"), sender_bytes(&Sender::Task(TaskId(0))));
        assert_ne!(lock("a"), lock("b"));
    }
}
