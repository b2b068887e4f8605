//! From changes to rows: what one transaction writes.
//!
//! Each row is a statement of its own. Inserts of 8 or 16 rows at a time were tried: they saved 3 to 6 % of the
//! writer's instructions with a hundred changes in a transaction, which is not worth a second way of writing.

use std::collections::{BTreeMap, BTreeSet, hash_map::Entry};

use rusqlite::{Connection, Statement, params};
use windlass_core::{AlarmState, Name, Phase, TaskId, Timestamp};
use windlass_store::{
    AlarmChange, Change, KeyChange, LogLine, QueueChange, StoredFlow, TaskChange,
    resident::{Line, LinePlace, Rest},
    stored,
};

use super::{
    checksum::{Checksum, Table},
    claim_rows::ClaimRows,
    directory::{Directory, Place},
    encoding::{act_code, to_integer},
    error::Fault,
    history_rows::HistoryRows,
    limits::LimitRows,
    lock_rows::LockRows,
    member_rows::{UPSERT_MEMBER, write_member},
    meta::Meta,
    query::{DELETE_FINAL, SELECT_FINAL_PLACE, SELECT_RESTING_PLACE},
    record_rows::RecordRows,
    task_rows::{insert_final, insert_submit_key, insert_task, place_at_rest, write_active, write_resting},
    touched::{Draft, Home, Touched},
    unique_rows::UniqueRows,
};

/// The statements that write, prepared once for a connection, and the numbers of the next rows.
pub(super) struct Rows<'c> {
    insert_task: Statement<'c>,
    insert_active: Statement<'c>,
    update_active: Statement<'c>,
    delete_active: Statement<'c>,
    upsert_member: Statement<'c>,
    select_resting: Statement<'c>,
    upsert_resting: Statement<'c>,
    delete_resting: Statement<'c>,
    select_final: Statement<'c>,
    delete_final: Statement<'c>,
    upsert_line: Statement<'c>,
    history: HistoryRows<'c>,
    insert_final: Statement<'c>,
    insert_submit_key: Statement<'c>,
    locks: LockRows<'c>,
    upsert_alarm: Statement<'c>,
    insert_flow: Statement<'c>,
    insert_retention: Statement<'c>,
    delete_flow: Statement<'c>,
    upsert_queue: Statement<'c>,
    delete_queue: Statement<'c>,
    insert_log: Statement<'c>,
    limits: LimitRows<'c>,
    records: RecordRows<'c>,
    pub(super) claims: ClaimRows<'c>,
    unique: UniqueRows<'c>,
    update_latest_at: Statement<'c>,
    next_task: i64,
    next_log: i64,
    meta: Meta,
}

impl<'c> Rows<'c> {
    /// Prepares the statements, and finds where the tables end.
    pub(super) fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        let prepare = |sql: &str| connection.prepare(sql);
        let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        Ok(Self {
            insert_task: prepare(
                "INSERT INTO task (n, id, flow, version, created_at, head, params, scope, checksum)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?,
            insert_active: prepare("INSERT INTO active (task, last, state, checksum) VALUES (?1, ?2, ?3, ?4)")?,
            update_active: prepare("UPDATE active SET last = ?2, state = ?3, checksum = ?4 WHERE task = ?1")?,
            delete_active: prepare("DELETE FROM active WHERE task = ?1")?,
            upsert_member: prepare(UPSERT_MEMBER)?,
            select_resting: prepare(SELECT_RESTING_PLACE)?,
            upsert_resting: prepare(
                "INSERT INTO resting
                 (id, task, last, wake_at, never_handed_out, module, command, rank, state, checksum)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
                 ON CONFLICT (id) DO UPDATE SET last = ?3, wake_at = ?4, never_handed_out = ?5,
                 module = ?6, command = ?7, rank = ?8, state = ?9, checksum = ?10",
            )?,
            upsert_line: prepare(
                "INSERT INTO line (module, command, rank, id, checksum) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (module, command) DO UPDATE SET rank = ?3, id = ?4, checksum = ?5",
            )?,
            delete_resting: prepare("DELETE FROM resting WHERE id = ?1")?,
            select_final: prepare(SELECT_FINAL_PLACE)?,
            delete_final: prepare(DELETE_FINAL)?,
            history: HistoryRows::new(connection)?,
            insert_final: prepare(
                "INSERT INTO final (status, id, task, last, ended_at, state, checksum)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?,
            insert_submit_key: prepare(
                "INSERT INTO submit_key (scope, fingerprint, task, created_at, orphan, checksum)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?,
            locks: LockRows::new(connection)?,
            upsert_alarm: prepare(
                "INSERT INTO alarm (id, version, task, resolved, raised_at, data, checksum)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (id) DO UPDATE
                 SET version = ?2, resolved = ?4, raised_at = ?5, data = ?6, checksum = ?7",
            )?,
            delete_flow: prepare("DELETE FROM flow WHERE name = ?1")?,
            insert_retention: prepare(
                "INSERT INTO flow_retention (name, version, kept, checksum) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (name, version) DO UPDATE SET kept = ?3, checksum = ?4",
            )?,
            insert_flow: prepare(
                // A row that is there is damaged, or the flow would have a higher version.
                "INSERT INTO flow (name, version, created_at, data, checksum) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (name, version) DO UPDATE SET created_at = ?3, data = ?4, checksum = ?5",
            )?,
            upsert_queue: prepare(
                "INSERT INTO queue (name, paused_at, by_name, by_claimed, checksum) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (name) DO UPDATE SET paused_at = ?2, by_name = ?3, by_claimed = ?4, checksum = ?5",
            )?,
            delete_queue: prepare("DELETE FROM queue WHERE name = ?1")?,
            insert_log: prepare(
                "INSERT INTO log (seq, task, act, attempt, at, line, checksum) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?,
            limits: LimitRows::new(connection)?,
            records: RecordRows::new(connection)?,
            claims: ClaimRows::new(connection)?,
            unique: UniqueRows::new(connection)?,
            update_latest_at: prepare("UPDATE meta SET latest_at = ?1, checksum = ?2")?,
            next_task: number(
                "SELECT 1 + max((SELECT coalesce(max(n), 0) FROM task),
                                (SELECT coalesce(max(task), 0) FROM remains))",
            )?,
            next_log: number("SELECT coalesce(max(seq), 0) + 1 FROM log")?,
            meta: Meta::read(connection)?,
        })
    }

    /// Writes the rows of one change. Its active row, and those of its members, come with [`Rows::finish`].
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
            Change::Lock(change) => {
                self.locks.write(change)?;
                Some(change.at)
            }
            Change::Consume(message) => {
                self.locks.consume(Some(message))?;
                None
            }
            Change::Flow(flow) => {
                self.write_flow(flow)?;
                Some(flow.created_at)
            }
            Change::Queue(change) => {
                self.write_queue(change)?;
                change.paused.as_ref().map(|paused| paused.at)
            }
            Change::Limit(change) => {
                self.limits.write(change)?;
                None
            }
            Change::Record(change) => {
                self.records.write(change)?;
                None
            }
            Change::Journal(entries) => {
                self.records.append(entries)?;
                entries.last().map(|entry| entry.at)
            }
            Change::Audit(entry) => {
                self.records.append(std::slice::from_ref(entry))?;
                Some(entry.at)
            }
            Change::Key(KeyChange { key, task, at }) => {
                insert_submit_key(&mut self.insert_submit_key, key, *task, *at, true)?;
                Some(*at)
            }
            Change::Logs(lines) => {
                self.write_logs(lines)?;
                lines.last().map(|line| line.at)
            }
            Change::Announced(announced) => {
                self.history.forget(announced)?;
                None
            }
            Change::Probe => {
                // There and back: SQLite does not write a row that stays as it is.
                let latest_at = self.meta.latest_at;
                for at in [Timestamp(latest_at.0 + 1), latest_at] {
                    self.update_latest_at.execute([at.0, self.meta.checksum(at)])?;
                }
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
                entry.insert(Draft { place, task, was: Home::New, rest, members: BTreeSet::new() })
            }
            Entry::Vacant(entry) => {
                let (place, was) = match directory.get(task.id) {
                    Some(place) => (place, Home::Active),
                    None => place_at_rest(&mut self.select_resting, &mut self.select_final, task.id)?,
                };
                entry.insert(Draft { place, task, was, rest, members: BTreeSet::new() })
            }
        };
        (draft.task, draft.rest) = (task, rest);
        draft.members.extend(change.changed_members());
        if change.before == 0 {
            insert_task(&mut self.insert_task, &mut self.insert_submit_key, draft.place.task, change)?;
            self.unique.write(change)?;
        }
        self.history.write(change, &mut draft.place)?;
        self.write_logs(&change.logs)?;
        self.records.append(&change.journal)?;
        self.locks.send(&change.messages)?;
        self.locks.consume(change.consumes.as_ref())?;
        Ok(())
    }

    /// Writes what the transaction's tasks came to, and the latest time.
    pub(super) fn finish(&mut self, touched: &Touched<'_>) -> Result<(), Fault> {
        for (id, draft) in &touched.tasks {
            let Draft { place, task, was, rest, members } = draft;
            let state = stored::write_state(&task.state);
            for (step, number) in members {
                let of_step = task.state.steps[*step].members.as_deref();
                if let Some(member) = of_step.and_then(|members| members.get(*number)) {
                    write_member(&mut self.upsert_member, place.task, *step, *number, member)?;
                }
            }
            let goes = draft.home();
            if goes != Some(*was) {
                match was {
                    Home::New => {}
                    Home::Active => drop(self.delete_active.execute([place.task])?),
                    Home::Resting => drop(self.delete_resting.execute([id.to_bytes()])?),
                    Home::Final => drop(self.delete_final.execute([id.to_bytes()])?),
                }
            }
            match task.state.phase {
                Phase::Ended(ending) => {
                    let ended_at = task.state.ended_at.unwrap_or_default();
                    insert_final(&mut self.insert_final, *id, *place, ending, ended_at, &state)?;
                }
                _ => match rest {
                    Some(rest) => {
                        write_resting(&mut self.upsert_resting, *id, *place, rest, &state)?;
                    }
                    None => {
                        let known = *was == Home::Active;
                        let statement = if known { &mut self.update_active } else { &mut self.insert_active };
                        write_active(statement, *place, &state)?;
                    }
                },
            }
        }
        let latest_at = touched.latest_at;
        if latest_at > self.meta.latest_at {
            self.update_latest_at.execute([latest_at.0, self.meta.checksum(latest_at)])?;
            self.meta.latest_at = latest_at;
        }
        Ok(())
    }

    /// Deletes flows that came with tasks: they have one version, and none says how long its tasks are kept.
    pub(super) fn delete_flows(&mut self, names: &[Name]) -> Result<(), Fault> {
        for name in names {
            self.delete_flow.execute([name.as_str()])?;
        }
        Ok(())
    }

    /// Writes up to where attempts may be handed out.
    pub(super) fn write_limits(&mut self, limits: &BTreeMap<Line, LinePlace>) -> Result<(), Fault> {
        for (line, limit) in limits {
            let (module, command) = (line.module.as_str(), line.command.as_str());
            let id = limit.task.to_bytes();
            let checksum =
                Checksum::of(Table::Line).text(module).text(command).number(limit.rank).blob(&id).finish();
            self.upsert_line.execute(params![module, command, limit.rank, id, checksum])?;
        }
        Ok(())
    }

    fn write_alarm(&mut self, change: &AlarmChange) -> Result<(), Fault> {
        if let Some(alarm) = &change.alarm {
            let (id, version) = (&*alarm.id.0, to_integer(change.before + 1));
            let (task, resolved) = (alarm.task.to_bytes(), alarm.state == AlarmState::Resolved);
            let (raised_at, data) = (alarm.raised_at.0, stored::write_alarm(alarm));
            let checksum = Checksum::of(Table::Alarm)
                .text(id)
                .number(version)
                .blob(&task)
                .number(resolved.into())
                .number(raised_at)
                .blob(&data)
                .finish();
            self.upsert_alarm.execute(params![id, version, task, resolved, raised_at, data, checksum])?;
        }
        self.locks.consume(change.consumes.as_ref())
    }

    fn write_flow(&mut self, stored: &StoredFlow) -> Result<(), Fault> {
        let flow = &*stored.flow;
        let (name, at, data) = (flow.name.as_str(), stored.created_at.0, stored::write_flow(flow));
        let checksum =
            Checksum::of(Table::Flow).text(name).number(flow.version.into()).number(at).blob(&data).finish();
        self.insert_flow.execute(params![name, flow.version, at, data, checksum])?;
        if let Some(kept) = flow.retention.map(|kept| to_integer(kept.0)) {
            let checksum = Checksum::of(Table::FlowRetention)
                .text(name)
                .number(flow.version.into())
                .number(kept)
                .finish();
            self.insert_retention.execute(params![name, flow.version, kept, checksum])?;
        }
        Ok(())
    }

    fn write_queue(&mut self, change: &QueueChange) -> Result<(), Fault> {
        let name = change.name.as_str();
        match &change.paused {
            Some(paused) => {
                let by_name = paused.by.as_ref().map(|by| &*by.name);
                let by_claimed = paused.by.as_ref().map(|by| by.claimed);
                let checksum = Checksum::of(Table::Queue)
                    .text(name)
                    .number(paused.at.0)
                    .optional_text(by_name)
                    .optional_number(by_claimed.map(i64::from))
                    .finish();
                self.upsert_queue.execute(params![name, paused.at.0, by_name, by_claimed, checksum])?;
            }
            None => {
                self.delete_queue.execute([name])?;
            }
        }
        Ok(())
    }

    fn write_logs(&mut self, lines: &[LogLine]) -> Result<(), Fault> {
        for line in lines {
            let (seq, task, act) = (self.next_log, line.task.to_bytes(), act_code(line.key));
            self.next_log += 1;
            let checksum = Checksum::of(Table::Log)
                .number(seq)
                .blob(&task)
                .number(act)
                .number(line.attempt.into())
                .number(line.at.0)
                .text(&line.line)
                .finish();
            let (attempt, at, line) = (line.attempt, line.at.0, &*line.line);
            self.insert_log.execute(params![seq, task, act, attempt, at, line, checksum])?;
        }
        Ok(())
    }
}
