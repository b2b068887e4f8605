//! Locks, their waiters, and messages between aggregates: their rows, written and read.

use std::collections::BTreeMap;

use rusqlite::{Connection, Row, Statement, params};
use windlass_core::{Lock, LockName, Name, version_after_damage};
use windlass_store::{DamagedTask, Envelope, LockChange, MessageId, Sender, resident::DamagedLocks, stored};

use crate::sqlite::{
    checksum::{Checksum, Table},
    encoding::{from_integer, task_id, to_integer},
    error::{Fault, or_reason},
    read::{any_text, from_sql, name},
    recover::select_all,
};

/// What stands before the name of a lock that sends a message. No task has this id.
const LOCK_SENDER: [u8; 16] = [0; 16];

/// The statements that write locks and messages.
pub(in crate::sqlite) struct LockRows<'c> {
    upsert_lock: Statement<'c>,
    delete_lock: Statement<'c>,
    raise_floor: Statement<'c>,
    insert_waiter: Statement<'c>,
    delete_waiter: Statement<'c>,
    insert_message: Statement<'c>,
    delete_message: Statement<'c>,
}

impl<'c> LockRows<'c> {
    pub(in crate::sqlite) fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
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
    pub(in crate::sqlite) fn write(&mut self, change: &LockChange) -> Result<(), Fault> {
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
            let holder = stored::write_tenure(&stored::Tenure::of(&change.lock));
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
    pub(in crate::sqlite) fn send(&mut self, messages: &[Envelope]) -> Result<(), Fault> {
        for envelope in messages {
            let (sender, n) = (sender_bytes(&envelope.id.sender), to_integer(envelope.id.n));
            let data = stored::write_message(&envelope.message);
            let checksum = Checksum::of(Table::Message).blob(&sender).number(n).blob(&data).finish();
            self.insert_message.execute(params![sender, n, data, checksum])?;
        }
        Ok(())
    }

    /// Deletes a message that is consumed.
    pub(in crate::sqlite) fn consume(&mut self, message: Option<&MessageId>) -> Result<(), Fault> {
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
pub(in crate::sqlite) fn read_messages(
    connection: &Connection,
    damage: &mut Vec<DamagedTask>,
) -> Result<Vec<Envelope>, Fault> {
    let mut statement = connection.prepare(&select_all(Table::Message))?;
    let mut rows = statement.query([])?;
    let mut messages = Vec::new();
    while let Some(row) = rows.next()? {
        match or_reason(read_message(row))? {
            Ok(message) => messages.push(message),
            Err(reason) => {
                let sender = match read_sender(row) {
                    Ok(Sender::Task(task)) => task.to_string(),
                    Ok(Sender::Lock(name)) => format!("lock.{name}"),
                    Err(_) => "unknown".to_owned(),
                };
                let n = row.get(1).map(from_integer).unwrap_or_default();
                damage.push(DamagedTask::message(&sender, n, reason));
            }
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
pub(in crate::sqlite) fn found_floor(connection: &Connection) -> rusqlite::Result<()> {
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
pub(in crate::sqlite) fn read_floor(connection: &Connection) -> Result<u64, Fault> {
    let mut statement = connection.prepare(&select_all(Table::LockFloor))?;
    let mut rows = statement.query([])?;
    let Some(row) = rows.next()? else { return Ok(0) };
    Table::LockFloor.check(row, 0)?;
    Ok(from_integer(row.get(1)?))
}

/// Writes a damaged floor again, in the transaction that is open, and returns what was wrong: above all that any lock may
/// have had.
pub(in crate::sqlite) fn mend_floor(connection: &Connection) -> Result<Option<DamagedTask>, Fault> {
    let Err(fault) = or_reason(read_floor(connection))? else { return Ok(None) };
    let known = "SELECT version FROM lock_floor UNION ALL SELECT version FROM lock
                 UNION ALL SELECT place FROM lock_waiter";
    let known: Vec<i64> =
        connection.prepare(known)?.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    let floor = version_after_damage(known.into_iter().map(from_integer));
    connection.execute("UPDATE lock_floor SET version = ?1", [to_integer(floor)])?;
    Table::LockFloor.seal(connection, "one = 1", &[])?;
    Ok(Some(DamagedTask::lock_floor(floor, fault)))
}

/// All locks that are stored, and those whose rows are damaged. What is wrong with rows is added to `damage`.
pub(in crate::sqlite) fn read_locks(
    connection: &Connection,
    damage: &mut Vec<DamagedTask>,
) -> Result<(Vec<Lock>, DamagedLocks), Fault> {
    let mut locks = BTreeMap::<LockName, Lock>::new();
    let mut damaged = DamagedLocks::default();
    let mut statement = connection.prepare(&select_all(Table::Lock))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        match or_reason(read_lock(row))? {
            Ok(lock) => drop(locks.insert(lock.name.clone(), lock)),
            Err(fault) => match name(row, 0) {
                Ok(name) => {
                    let version = row.get(1).map(from_integer).unwrap_or_default();
                    locks.insert(name.clone(), Lock::new(name.clone(), version));
                    damaged.insert(Some(name), fault);
                }
                Err(_) => {
                    damage.push(DamagedTask::unknown_lock(&any_text(row, 0), fault));
                    damaged.insert(None, String::new());
                }
            },
        }
    }
    let mut statement = connection.prepare(&select_all(Table::LockWaiter))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        read_waiter(row, &mut locks, &mut damaged, damage)?;
    }
    Ok((locks.into_values().collect(), damaged))
}

fn read_lock(row: &Row<'_>) -> Result<Lock, Fault> {
    let name = name(row, 0)?;
    Table::Lock.check(row, 0).map_err(|fault| Fault::damaged(format!("lock {name}: {fault}")))?;
    let mut lock = Lock::new(name, from_integer(row.get(1)?));
    stored::read_tenure(row.get_ref(2)?.as_blob().map_err(from_sql)?)?.restore(&mut lock);
    Ok(lock)
}

/// Puts one who waits into its lock. A damaged row counts as far as it can be read: a lock that comes to a step that does
/// not want it goes on to the next one. One that waits for a lock that is not stored shows that the lock's row is damaged.
fn read_waiter(
    row: &Row<'_>,
    locks: &mut BTreeMap<LockName, Lock>,
    damaged: &mut DamagedLocks,
    damage: &mut Vec<DamagedTask>,
) -> Result<(), Fault> {
    let checked = or_reason(Table::LockWaiter.check(row, 0))?;
    let place = row.get(1).map(from_integer).unwrap_or_default();
    let waiter =
        row.get_ref(2)?.as_blob().map_err(from_sql).and_then(|data| Ok(stored::read_lock_waiter(data)?));
    let (name, waiter) = (name(row, 0).ok(), or_reason(waiter)?);
    let mut fault = checked.err().or_else(|| waiter.as_ref().err().cloned());
    let owner = waiter.as_ref().ok().map(|waiter| waiter.owner.task.to_string());
    match (&name, waiter) {
        (Some(name), Ok(waiter)) => {
            if !locks.contains_key(name) && fault.is_none() {
                locks.insert(name.clone(), Lock::new(name.clone(), place));
                damaged.insert(Some(name.clone()), "its row is missing".to_owned());
            }
            let lock = locks.get_mut(name);
            match lock.filter(|lock| fault.is_none() || lock.may_restore(place, &waiter.owner)) {
                Some(lock) => lock.restore(place, waiter),
                None => fault = fault.or(Some("there is no such lock".to_owned())),
            }
        }
        _ => fault = fault.or(Some("its name cannot be read".to_owned())),
    }
    if let Some(fault) = fault {
        damage.push(DamagedTask::lock_waiter(&any_text(row, 0), place, owner, fault));
    }
    Ok(())
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
