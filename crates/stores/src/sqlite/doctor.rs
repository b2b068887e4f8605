//! Looking at a store without opening it for work: what is in it, and what is wrong with it.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OptionalExtension, Row};
use windlass_core::{LockHolder, State, TaskId, TaskStatus, Timestamp, is_adhoc};
use windlass_store::{StoreError, stored};

use super::{
    checksum::{Table, unchecked_to},
    connect::{Role, connect},
    encoding::{ENDED, from_integer, task_id},
    error::describe,
    inode_lock::behind_links,
    lock,
    member_rows::restore_members,
    migrate::{self, Format, VERSION},
    open::OpenError,
    prefill::wal_path,
    recover::select_all,
};

/// At most this many problems are listed.
const PROBLEMS_MAX: usize = 100;

/// What the doctor found in a store.
#[derive(Debug, Clone)]
pub struct Report {
    /// The file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub file_bytes: u64,
    /// Size of the write-ahead log in bytes; most of it is filled ahead and empty.
    pub wal_bytes: u64,
    /// Version of its format.
    pub format: i32,
    /// The newest format this program knows.
    pub format_known: i32,
    /// Who has it open: what that server wrote about itself.
    pub opened_by: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// How often it was opened.
    pub epoch: u32,
    /// How many tasks have not ended.
    pub active: u64,
    /// How many of them rest: nothing will wake them soon.
    pub resting: u64,
    /// How many tasks have ended in each way.
    pub ended: BTreeMap<TaskStatus, u64>,
    /// How many flows there are, in how many versions together, without those that were submitted with tasks.
    pub flows: (u64, u64),
    /// How many alarms are open.
    pub open_alarms: u64,
    /// How many messages between aggregates are under way.
    pub messages: u64,
    /// How many log lines are kept.
    pub log_lines: u64,
    /// What is wrong, at most a hundred things. Empty: all that was read is sound.
    pub problems: Vec<String>,
}

/// Reads the store at `path` whole, without changing it, also while a server has it open.
///
/// # Errors
/// When it is not there, is something else, is of a newer format, or cannot be read.
pub fn doctor(path: &Path) -> Result<Report, OpenError> {
    let path = &*behind_links(path);
    let file_bytes = fs::metadata(path).map_err(|error| OpenError::io("read", path, error))?.len();
    let wal_bytes = match fs::metadata(wal_path(path)) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(OpenError::io("read the write-ahead log of", path, error)),
    };
    let opened_by =
        lock::holder(path).map_err(|error| OpenError::io("read the lock file of", path, error))?;
    let sqlite = |error| OpenError::sqlite(path, &error);
    // A file without a log is looked at as one that nobody changes: SQLite would make a log and leave it there.
    let is_alone = opened_by.is_none() && !wal_path(path).exists();
    let role = if is_alone { Role::Onlooker } else { Role::Reader };
    let mut connection = connect(path, role).map_err(sqlite)?;
    let format = match migrate::format(&connection).map_err(sqlite)? {
        Format::Windlass(found) if found == VERSION => found,
        Format::Windlass(found) if found > VERSION => {
            return Err(OpenError::Newer { path: path.into(), found, known: VERSION });
        }
        Format::Windlass(found) => {
            let message = format!("it has the older format {found}: start a server on it once");
            return Err(OpenError::Sqlite { path: path.into(), message });
        }
        Format::Empty | Format::Foreign => {
            let found = "an empty file, or one of another program".to_owned();
            return Err(OpenError::Foreign { path: path.into(), found });
        }
    };
    // All of it from one state of the file, though a server may go on writing.
    let snapshot = connection.transaction().map_err(sqlite)?;
    let count = |sql: &str| snapshot.query_row(sql, [], |row| row.get(0).map(from_integer)).map_err(sqlite);
    let mut ended = BTreeMap::new();
    for (status, code) in ENDED {
        ended.insert(status, count(&format!("SELECT count(*) FROM final WHERE status = {code}"))?);
    }
    let (created_at, epoch) = snapshot
        .query_row("SELECT created_at, epoch FROM meta", [], |row| Ok((Timestamp(row.get(0)?), row.get(1)?)))
        .optional()
        .map_err(sqlite)?
        .unwrap_or_default();
    Ok(Report {
        path: path.into(),
        file_bytes,
        wal_bytes,
        format,
        format_known: VERSION,
        opened_by,
        created_at,
        epoch,
        active: count("SELECT (SELECT count(*) FROM active) + (SELECT count(*) FROM resting)")?,
        resting: count("SELECT count(*) FROM resting")?,
        ended,
        flows: flows(&snapshot).map_err(sqlite)?,
        open_alarms: count("SELECT count(*) FROM alarm WHERE resolved = 0")?,
        messages: count("SELECT count(*) FROM message")?,
        log_lines: count("SELECT count(*) FROM log WHERE task <> zeroblob(16)")?,
        problems: problems(&snapshot),
    })
}

/// Flows, and all their versions. Flows that were submitted with tasks are not counted, as in an export.
fn flows(connection: &Connection) -> rusqlite::Result<(u64, u64)> {
    let mut statement = connection.prepare("SELECT name, count(*) FROM flow GROUP BY name")?;
    let mut rows = statement.query([])?;
    let (mut flows, mut versions) = (0, 0);
    while let Some(row) = rows.next()? {
        if !row.get_ref(0)?.as_str().is_ok_and(is_adhoc) {
            flows += 1;
            versions += from_integer(row.get(1)?);
        }
    }
    Ok((flows, versions))
}

/// What is wrong: the file itself first, then rows that are not as they were written, then rows that nothing leads
/// to, then rows that cannot be read.
fn problems(connection: &Connection) -> Vec<String> {
    let mut problems = Vec::new();
    let mut note = |result: rusqlite::Result<Vec<String>>| {
        let found = result.unwrap_or_else(|error| vec![describe(&error)]);
        problems.extend(found.into_iter().take(PROBLEMS_MAX - problems.len().min(PROBLEMS_MAX)));
    };
    note(integrity(connection));
    for table in Table::ALL {
        note(checksums(connection, table));
    }
    for (what, sql) in BROKEN_LINKS {
        note(broken_links(connection, what, sql));
    }
    for home in [Table::Active, Table::Resting, Table::Final] {
        note(members(connection, home));
    }
    for (what, sql, check) in DECODED {
        note(undecodable(connection, what, sql, *check));
    }
    problems
}

fn integrity(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare("PRAGMA integrity_check(100)")?;
    let lines: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(lines.into_iter().filter(|line| line != "ok").collect())
}

/// Rows of a table whose checksums are not theirs, or that lack one.
fn checksums(connection: &Connection, table: Table) -> rusqlite::Result<Vec<String>> {
    let unchecked_to = unchecked_to(connection)?;
    let mut statement = connection.prepare(&select_all(table))?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let what = match table.is_as_written(row, 0)? {
            Some(true) => continue,
            Some(false) => "is not as it was written: its checksum differs",
            None if table.may_be_unchecked(row, unchecked_to)? => continue,
            None => "has lost its checksum",
        };
        let row = row_name(connection, table, row);
        found.push(format!("row {row} of the table {} {what}{}", table.name(), consequence(table)));
        if found.len() >= PROBLEMS_MAX {
            break;
        }
    }
    Ok(found)
}

/// What a server does that starts on a damaged row of no task. The alarm that it raises then also says what to do.
fn consequence(table: Table) -> &'static str {
    match table {
        Table::Lock => "; a server keeps the lock closed until an operator releases it",
        Table::Limit => {
            "; a server hands out nothing of the limit's queue until the limit is set again or removed"
        }
        Table::Queue => "; a server keeps the queue paused",
        Table::Record => "; a server works without it until it is applied again",
        Table::Meta => "; a server makes a new key for tokens and refuses tokens made before",
        Table::LockFloor => "; a server sets it above every fencing token that it knows",
        Table::Line => "; a server writes it again from the tasks",
        _ => "",
    }
}

/// A row for people: by its task, where it has one.
fn row_name(connection: &Connection, table: Table, row: &Row<'_>) -> String {
    let Some(column) = table.number_column() else { return name_of(row) };
    let number: Option<i64> = row.get(column).ok();
    let id = connection.query_row("SELECT id FROM task WHERE n = ?1", [number], |row| task_id(row, 0));
    match (id, table) {
        (Ok(id), Table::History) => format!("{} (task {id})", name_of(row)),
        (Ok(id), _) => id.to_string(),
        (Err(_), _) => name_of(row),
    }
}

/// Rows that lead to others which are not there: what it is, and a query that counts them.
const BROKEN_LINKS: &[(&str, &str)] = &[
    (
        "active tasks without what was submitted",
        "SELECT count(*) FROM active WHERE NOT EXISTS (SELECT 1 FROM task WHERE n = active.task)",
    ),
    (
        "resting tasks without what was submitted",
        "SELECT count(*) FROM resting
         WHERE NOT EXISTS (SELECT 1 FROM task WHERE n = resting.task AND id = resting.id)",
    ),
    (
        "resting tasks without history",
        "SELECT count(*) FROM resting
         WHERE NOT EXISTS (SELECT 1 FROM history WHERE seq = resting.last AND task = resting.task)",
    ),
    (
        "tasks that are both active and resting",
        "SELECT count(*) FROM resting WHERE EXISTS (SELECT 1 FROM active WHERE active.task = resting.task)",
    ),
    (
        "ended tasks without what was submitted",
        "SELECT count(*) FROM final
         WHERE NOT EXISTS (SELECT 1 FROM task WHERE n = final.task AND id = final.id)",
    ),
    (
        "active tasks without history",
        "SELECT count(*) FROM active
         WHERE NOT EXISTS (SELECT 1 FROM history WHERE seq = active.last AND task = active.task)",
    ),
    (
        "rows of history that follow a missing one",
        "SELECT count(*) FROM history AS later WHERE previous IS NOT NULL
         AND NOT EXISTS (SELECT 1 FROM history WHERE seq = later.previous AND task = later.task)",
    ),
    (
        "ended tasks without history",
        "SELECT count(*) FROM final
         WHERE NOT EXISTS (SELECT 1 FROM history WHERE seq = final.last AND task = final.task)",
    ),
    (
        "tasks that are neither active nor resting nor ended, or several of it",
        "SELECT count(*) FROM task WHERE 1 <> (SELECT count(*) FROM active WHERE active.task = task.n)
         + (SELECT count(*) FROM resting WHERE resting.id = task.id)
         + (SELECT count(*) FROM final WHERE final.status IN (1, 2, 3, 4) AND final.id = task.id)",
    ),
    (
        "items of tasks that are not there",
        "SELECT count(*) FROM member WHERE NOT EXISTS (SELECT 1 FROM task WHERE n = member.task)
         AND NOT EXISTS (SELECT 1 FROM remains WHERE remains.task = member.task)",
    ),
    (
        "rows of the outbox without the history that they lead to",
        "SELECT count(*) FROM outbox
         WHERE NOT EXISTS (SELECT 1 FROM history WHERE seq = outbox.seq AND first = outbox.after + 1)",
    ),
    (
        "tasks of a flow that is not in the catalogue",
        "SELECT count(*) FROM task
         WHERE NOT EXISTS (SELECT 1 FROM flow WHERE name = task.flow AND version = task.version)",
    ),
];

fn broken_links(connection: &Connection, what: &str, sql: &str) -> rusqlite::Result<Vec<String>> {
    let count: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    Ok(if count > 0 { vec![format!("{what}: {count}")] } else { Vec::new() })
}

/// Reads the last column of a row as what was written there.
type Check = fn(&Row<'_>) -> rusqlite::Result<Result<(), StoreError>>;

/// What is encoded, where: a query for its name (or a task's id) and its data, and how it is read.
const DECODED: &[(&str, &str, Check)] =
    &[
        ("state of active task", "SELECT id, state FROM active JOIN task ON n = task", |row| {
            Ok(stored::read_state(row.get_ref(1)?.as_blob()?).map(drop::<State>))
        }),
        ("state of resting task", "SELECT id, state FROM resting", |row| {
            Ok(stored::read_state(row.get_ref(1)?.as_blob()?).map(drop::<State>))
        }),
        ("state of ended task", "SELECT id, state FROM final", |row| {
            Ok(stored::read_state(row.get_ref(1)?.as_blob()?).map(drop))
        }),
        ("input of task", "SELECT id, head FROM task", |row| {
            Ok(stored::read_input(row.get_ref(1)?.as_blob()?, "{}").map(drop))
        }),
        ("events in row", "SELECT seq, events FROM history WHERE events IS NOT NULL", |row| {
            Ok(stored::read_events(row.get_ref(1)?.as_blob()?).map(drop))
        }),
        ("flow", "SELECT name, data FROM flow", |row| {
            Ok(stored::read_flow(row.get_ref(1)?.as_blob()?).map(drop))
        }),
        ("alarm", "SELECT id, data FROM alarm", |row| {
            Ok(stored::read_alarm(row.get_ref(1)?.as_blob()?).map(drop))
        }),
        ("lock", "SELECT name, holder FROM lock", |row| {
            Ok(stored::read_tenure(row.get_ref(1)?.as_blob()?).and_then(|tenure| closed(tenure.holder())))
        }),
        ("message of task", "SELECT task, data FROM message", |row| {
            Ok(stored::read_message(row.get_ref(1)?.as_blob()?).map(drop))
        }),
    ];

/// A lock that was closed because its row was damaged, and not opened since.
fn closed(holder: Option<LockHolder>) -> Result<(), StoreError> {
    match holder {
        Some(holder) if holder.owner.task == TaskId::NONE => {
            let message = "it is closed since its row was damaged: see its alarm";
            Err(StoreError::Damaged(message.to_owned()))
        }
        _ => Ok(()),
    }
}

/// Tasks in one table whose members are not those that their states say they may have. A state that cannot be read
/// is reported elsewhere.
fn members(connection: &Connection, home: Table) -> rusqlite::Result<Vec<String>> {
    let table = home.name();
    let mut statement = connection.prepare(&format!(
        "SELECT task.id, {table}.task, {table}.state FROM {table} JOIN task ON task.n = {table}.task
         WHERE {table}.task IN (SELECT DISTINCT task FROM member)"
    ))?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let Ok(mut state) = stored::read_state(row.get_ref(2)?.as_blob()?) else { continue };
        if let Err(fault) = restore_members(connection, &mut state, row.get(1)?) {
            found.push(format!("items of task {}: {fault}", name_of(row)));
        }
        if found.len() >= PROBLEMS_MAX {
            break;
        }
    }
    Ok(found)
}

fn undecodable(
    connection: &Connection,
    what: &str,
    sql: &str,
    check: Check,
) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let reason = match check(row) {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error.to_string(),
            Err(error) => describe(&error),
        };
        found.push(format!("{what} {}: {reason}", name_of(row)));
        if found.len() >= PROBLEMS_MAX {
            break;
        }
    }
    Ok(found)
}

/// The first column of a row, for people: a task's id, a number or a text.
fn name_of(row: &Row<'_>) -> String {
    if let Ok(id) = task_id(row, 0) {
        return id.to_string();
    }
    match row.get_ref(0) {
        Ok(value) => match (value.as_str(), value.as_i64()) {
            (Ok(text), _) => text.to_owned(),
            (_, Ok(number)) => number.to_string(),
            _ => "(unnamed)".to_owned(),
        },
        Err(_) => "(unnamed)".to_owned(),
    }
}
