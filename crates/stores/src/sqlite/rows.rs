//! From changes to rows: what one transaction writes.
//!
//! Each row is a statement of its own. Inserts of 8 or 16 rows at a time were tried: they saved 3 to 6 % of the
//! writer's instructions with a hundred changes in a transaction, which is not worth a second way of writing.

use std::collections::{BTreeMap, hash_map::Entry};

use rusqlite::{Connection, OptionalExtension, Statement, params};
use windlass_core::{AlarmState, Phase, TaskId, Timestamp};
use windlass_engine::{
    ports::{AlarmChange, Change, LogLine, QueueChange, StoredFlow, TaskChange},
    resident::{Line, LinePlace, Rest},
    stored,
};

use super::{
    directory::{Directory, Place},
    encoding::{act_code, ending_code, to_integer},
    error::Fault,
    query::SELECT_RESTING_PLACE,
    touched::{Draft, Home, Touched},
};

/// The statements that write, prepared once for a connection, and the numbers of the next rows.
pub(super) struct Rows<'c> {
    insert_task: Statement<'c>,
    insert_active: Statement<'c>,
    update_active: Statement<'c>,
    delete_active: Statement<'c>,
    select_resting: Statement<'c>,
    upsert_resting: Statement<'c>,
    delete_resting: Statement<'c>,
    upsert_line: Statement<'c>,
    insert_history: Statement<'c>,
    insert_final: Statement<'c>,
    insert_submit_key: Statement<'c>,
    insert_message: Statement<'c>,
    delete_message: Statement<'c>,
    upsert_alarm: Statement<'c>,
    insert_flow: Statement<'c>,
    upsert_queue: Statement<'c>,
    delete_queue: Statement<'c>,
    insert_log: Statement<'c>,
    update_latest_at: Statement<'c>,
    next_task: i64,
    next_history: i64,
    latest_at: Timestamp,
}

impl<'c> Rows<'c> {
    /// Prepares the statements, and finds where the tables end.
    pub(super) fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        let prepare = |sql: &str| connection.prepare(sql);
        let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        Ok(Self {
            insert_task: prepare(
                "INSERT INTO task (n, id, flow, version, created_at, head, params, scope)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?,
            insert_active: prepare("INSERT INTO active (task, last, state) VALUES (?1, ?2, ?3)")?,
            update_active: prepare("UPDATE active SET last = ?2, state = ?3 WHERE task = ?1")?,
            delete_active: prepare("DELETE FROM active WHERE task = ?1")?,
            select_resting: prepare(SELECT_RESTING_PLACE)?,
            upsert_resting: prepare(
                "INSERT INTO resting
                 (id, task, last, wake_at, never_handed_out, module, command, rank, state)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
                 ON CONFLICT (id) DO UPDATE SET last = ?3, wake_at = ?4, never_handed_out = ?5,
                 module = ?6, command = ?7, rank = ?8, state = ?9",
            )?,
            upsert_line: prepare(
                "INSERT INTO line (module, command, rank, id) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (module, command) DO UPDATE SET rank = ?3, id = ?4",
            )?,
            delete_resting: prepare("DELETE FROM resting WHERE id = ?1")?,
            insert_history: prepare(
                "INSERT INTO history (seq, task, previous, first, count, act, events, result)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?,
            insert_final: prepare(
                "INSERT INTO final (status, id, task, last, ended_at, state) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?,
            insert_submit_key: prepare(
                "INSERT INTO submit_key (scope, fingerprint, task, created_at, orphan) VALUES (?1, ?2, ?3, ?4, 0)",
            )?,
            insert_message: prepare("INSERT INTO message (task, n, data) VALUES (?1, ?2, ?3)")?,
            delete_message: prepare("DELETE FROM message WHERE task = ?1 AND n = ?2")?,
            upsert_alarm: prepare(
                "INSERT INTO alarm (id, version, task, resolved, raised_at, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT (id) DO UPDATE SET version = ?2, resolved = ?4, raised_at = ?5, data = ?6",
            )?,
            insert_flow: prepare(
                "INSERT INTO flow (name, version, created_at, data) VALUES (?1, ?2, ?3, ?4)",
            )?,
            upsert_queue: prepare(
                "INSERT INTO queue (name, paused_at, by_name, by_claimed) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (name) DO UPDATE SET paused_at = ?2, by_name = ?3, by_claimed = ?4",
            )?,
            delete_queue: prepare("DELETE FROM queue WHERE name = ?1")?,
            insert_log: prepare(
                "INSERT INTO log (task, act, attempt, at, line) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?,
            update_latest_at: prepare("UPDATE meta SET latest_at = ?1")?,
            next_task: number(
                "SELECT 1 + max((SELECT coalesce(max(n), 0) FROM task),
                                (SELECT coalesce(max(task), 0) FROM remains))",
            )?,
            next_history: number("SELECT coalesce(max(seq), 0) + 1 FROM history")?,
            latest_at: Timestamp(number("SELECT latest_at FROM meta")?),
        })
    }

    /// Writes the rows of one change. Its active row comes with [`Rows::finish`].
    pub(super) fn write<'b>(
        &mut self,
        touched: &mut Touched<'b>,
        directory: &Directory,
        change: &'b Change,
        resting: &'b BTreeMap<TaskId, Rest>,
    ) -> Result<(), Fault> {
        let at = match change {
            Change::Task(change) => {
                let rest = resting.get(&change.task.id);
                self.write_task(touched, directory, change, rest)?;
                change.events.last().map(|event| event.at)
            }
            Change::Alarm(change) => {
                self.write_alarm(change)?;
                change.alarm.as_ref().map(|alarm| alarm.raised_at)
            }
            Change::Flow(flow) => {
                self.write_flow(flow)?;
                Some(flow.created_at)
            }
            Change::Queue(change) => {
                self.write_queue(change)?;
                change.paused.as_ref().map(|paused| paused.at)
            }
            Change::Logs(lines) => {
                self.write_logs(lines)?;
                lines.last().map(|line| line.at)
            }
            Change::Probe => {
                // There and back: SQLite does not write a row that stays as it is.
                self.update_latest_at.execute([self.latest_at.0 + 1])?;
                self.update_latest_at.execute([self.latest_at.0])?;
                None
            }
        };
        touched.latest_at = touched.latest_at.max(at.unwrap_or_default());
        Ok(())
    }

    fn write_task<'b>(
        &mut self,
        touched: &mut Touched<'b>,
        directory: &Directory,
        change: &'b TaskChange,
        rest: Option<&'b Rest>,
    ) -> Result<(), Fault> {
        let task = &*change.task;
        let draft = match touched.tasks.entry(task.id) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) if change.before == 0 => {
                let place = Place { task: self.next_task, last: 0 };
                self.next_task += 1;
                entry.insert(Draft { place, task, was: Home::New, rest })
            }
            Entry::Vacant(entry) => {
                let (place, was) = match directory.get(task.id) {
                    Some(place) => (place, Home::Active),
                    None => (resting_place(&mut self.select_resting, task.id)?, Home::Resting),
                };
                entry.insert(Draft { place, task, was, rest })
            }
        };
        (draft.task, draft.rest) = (task, rest);
        if change.before == 0 {
            insert_task(&mut self.insert_task, &mut self.insert_submit_key, draft.place.task, change)?;
        }
        // A row for the events, which has room for one result; each further result has a row without events.
        let mut results = change.results.iter();
        let mut events = (!change.events.is_empty()).then(|| stored::write_events(&change.events));
        let mut first = to_integer(change.before + 1);
        let mut count = change.events.len() as i64;
        loop {
            let result = results.next();
            if events.is_none() && result.is_none() {
                break;
            }
            let seq = self.next_history;
            self.next_history += 1;
            let previous = (draft.place.last != 0).then_some(draft.place.last);
            let act = result.map(|(key, _)| act_code(*key));
            let json = result.map(|(_, json)| json.as_str());
            self.insert_history.execute(params![
                seq,
                draft.place.task,
                previous,
                first,
                count,
                act,
                events.as_deref(),
                json
            ])?;
            draft.place.last = seq;
            (events, first, count) = (None, first + count, 0);
        }
        self.write_logs(&change.logs)?;
        for envelope in &change.messages {
            self.insert_message.execute(params![
                envelope.id.task.to_bytes(),
                to_integer(envelope.id.n),
                stored::write_message(&envelope.message)
            ])?;
        }
        Ok(())
    }

    /// Writes what the transaction's tasks came to, and the latest time.
    pub(super) fn finish(&mut self, touched: &Touched<'_>) -> Result<(), Fault> {
        for (id, draft) in &touched.tasks {
            let Draft { place, task, was, rest } = draft;
            let state = stored::write_state(&task.state);
            let goes = draft.home();
            if goes != Some(*was) {
                match was {
                    Home::New => {}
                    Home::Active => drop(self.delete_active.execute([place.task])?),
                    Home::Resting => drop(self.delete_resting.execute([id.to_bytes()])?),
                }
            }
            match task.state.phase {
                Phase::Ended(ending) => {
                    let ended_at = task.state.ended_at.unwrap_or_default().0;
                    let status = ending_code(ending);
                    self.insert_final.execute(params![
                        status,
                        id.to_bytes(),
                        place.task,
                        place.last,
                        ended_at,
                        state
                    ])?;
                }
                _ => match rest {
                    Some(rest) => {
                        let line = rest.line.as_ref();
                        self.upsert_resting.execute(params![
                            id.to_bytes(),
                            place.task,
                            place.last,
                            rest.wake_at.map(|at| at.0),
                            rest.never_handed_out,
                            line.map(|(line, _)| line.module.as_str()),
                            line.map(|(line, _)| line.command.as_str()),
                            line.map(|(_, place)| place.rank),
                            state
                        ])?;
                    }
                    None if *was == Home::Active => {
                        self.update_active.execute(params![place.task, place.last, state])?;
                    }
                    None => {
                        self.insert_active.execute(params![place.task, place.last, state])?;
                    }
                },
            }
        }
        if touched.latest_at > self.latest_at {
            self.update_latest_at.execute([touched.latest_at.0])?;
            self.latest_at = touched.latest_at;
        }
        Ok(())
    }

    /// Writes up to where attempts may be handed out.
    pub(super) fn write_limits(&mut self, limits: &BTreeMap<Line, LinePlace>) -> Result<(), Fault> {
        for (line, limit) in limits {
            let (module, command) = (line.module.as_str(), line.command.as_str());
            self.upsert_line.execute(params![module, command, limit.rank, limit.task.to_bytes()])?;
        }
        Ok(())
    }

    fn write_alarm(&mut self, change: &AlarmChange) -> Result<(), Fault> {
        if let Some(alarm) = &change.alarm {
            self.upsert_alarm.execute(params![
                &*alarm.id.0,
                to_integer(change.before + 1),
                alarm.task.to_bytes(),
                alarm.state == AlarmState::Resolved,
                alarm.raised_at.0,
                stored::write_alarm(alarm)
            ])?;
        }
        if let Some(message) = &change.consumes {
            self.delete_message.execute(params![message.task.to_bytes(), to_integer(message.n)])?;
        }
        Ok(())
    }

    fn write_flow(&mut self, stored: &StoredFlow) -> Result<(), Fault> {
        let flow = &*stored.flow;
        self.insert_flow.execute(params![
            flow.name.as_str(),
            flow.version,
            stored.created_at.0,
            stored::write_flow(flow)
        ])?;
        Ok(())
    }

    fn write_queue(&mut self, change: &QueueChange) -> Result<(), Fault> {
        let name = change.name.as_str();
        match &change.paused {
            Some(paused) => {
                let by_name = paused.by.as_ref().map(|by| &*by.name);
                let by_claimed = paused.by.as_ref().map(|by| by.claimed);
                self.upsert_queue.execute(params![name, paused.at.0, by_name, by_claimed])?;
            }
            None => {
                self.delete_queue.execute([name])?;
            }
        }
        Ok(())
    }

    fn write_logs(&mut self, lines: &[LogLine]) -> Result<(), Fault> {
        for line in lines {
            self.insert_log.execute(params![
                line.task.to_bytes(),
                act_code(line.key),
                line.attempt,
                line.at.0,
                &*line.line
            ])?;
        }
        Ok(())
    }
}

/// Where the rows of a task are that rests.
fn resting_place(select: &mut Statement<'_>, id: TaskId) -> Result<Place, Fault> {
    let read = |row: &rusqlite::Row<'_>| Ok(Place { task: row.get(0)?, last: row.get(1)? });
    let place = select.query_row([id.to_bytes()], read).optional()?;
    place.ok_or_else(|| Fault::damaged(format!("task {id} changed, and is not active")))
}

fn insert_task(
    insert_task: &mut Statement<'_>,
    insert_submit_key: &mut Statement<'_>,
    n: i64,
    change: &TaskChange,
) -> Result<(), Fault> {
    let task = &*change.task;
    let input = &*task.input;
    insert_task.execute(params![
        n,
        task.id.to_bytes(),
        task.flow.name.as_str(),
        task.flow.version,
        input.created_at.0,
        stored::write_input(input),
        input.params.as_str(),
        change.submit_key.as_ref().map(|key| key.scope)
    ])?;
    if let Some(key) = &change.submit_key {
        insert_submit_key.execute(params![
            key.scope,
            key.fingerprint,
            task.id.to_bytes(),
            input.created_at.0
        ])?;
    }
    Ok(())
}
