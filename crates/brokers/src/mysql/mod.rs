//! Results for programs that read states of tasks from tables of MySQL or MariaDB.
//!
//! | file | concern |
//! |---|---|
//! | `mod.rs` | the connection, and the operations of a result backend |
//! | `tables.rs` | the tables: their columns, and the check of existing ones |
//! | `document.rs` | a document of the library as a row |
//! | `purge.rs` | removes rows whose time is over: the database has no times to live |

mod document;
mod purge;
mod tables;

use std::{collections::HashMap, time::Duration};

use async_trait::async_trait;
use mysql_async::{Conn, Error, Opts, OptsBuilder, Params, Value, prelude::Queryable as _};
use tokio::{sync::Mutex, time::timeout};

use self::document::{Document, Group, GroupColumns, Row, Task, TaskColumns};
use crate::{BrokerError, ResultBackend, ResultDocument};

/// The time limit for connecting.
const CONNECT_MAX: Duration = Duration::from_secs(8);

/// The time limit for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// The most rows of one statement.
const ROWS_MAX: usize = 200;

/// The most bytes of texts in one statement of several rows, below the smallest default of `max_allowed_packet`.
const BYTES_MAX: usize = 4 << 20;

/// Data too long for a column.
const TOO_LONG: u16 = 1406;

/// A database with the tables `task_state` and `group_metadata`.
pub(crate) struct MySqlResults {
    options: Opts,
    name: String,
    /// Between the UUIDs of a group.
    separator: String,
    /// How long rows are kept.
    keep: Duration,
    conn: Mutex<Option<Conn>>,
}

impl MySqlResults {
    /// Makes a client of a database by its URL, without connecting.
    pub(crate) fn open(url: &str, keep: Duration, separator: &str) -> Result<Self, BrokerError> {
        let options = windlass_tls::mysql_options(url)
            .map_err(|error| BrokerError::Invalid(format!("the URL of the database: {error}")))?;
        let database = options.db_name().unwrap_or_default();
        let name = format!("mysql://{}:{}/{database}", options.ip_or_hostname(), options.tcp_port());
        let options = OptsBuilder::from_opts(options).prefer_socket(false).tcp_nodelay(true).into();
        Ok(Self { options, name, separator: separator.to_owned(), keep, conn: Mutex::default() })
    }

    /// Does something with the connection, which is made when there is none. After an error it is closed.
    async fn with<T>(&self, work: impl AsyncFnOnce(&mut Conn) -> Result<T, Error>) -> Result<T, BrokerError> {
        let mut slot = self.conn.lock().await;
        // A caller that stops listening leaves no connection in the middle of an answer.
        let mut conn = match slot.take() {
            Some(conn) => conn,
            None => self.connect().await?,
        };
        let done = timeout(ANSWER_MAX, work(&mut conn)).await;
        let done = done.map_err(|_| BrokerError::Unreachable(format!("no answer within {ANSWER_MAX:?}")))?;
        if matches!(done, Ok(_) | Err(Error::Server(_))) {
            *slot = Some(conn);
        }
        done.map_err(|error| failure(&error))
    }

    async fn connect(&self) -> Result<Conn, BrokerError> {
        let connecting = timeout(CONNECT_MAX, Conn::new(self.options.clone())).await;
        let connected = connecting
            .map_err(|_| BrokerError::Unreachable(format!("no connection within {CONNECT_MAX:?}")))?;
        let mut conn = connected.map_err(|error| failure(&error))?;
        let settings =
            "SET SESSION time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'";
        conn.query_drop(settings).await.map_err(|error| failure(&error))?;
        tables::prepare(&mut conn).await?;
        Ok(conn)
    }

    /// Writes rows, unless one is too long for its columns.
    async fn fits<R: Row>(&self, rows: &[R]) -> Result<bool, BrokerError> {
        self.with(async |conn| match statement(conn, rows).await {
            Ok(()) => Ok(true),
            Err(Error::Server(error)) if error.code == TOO_LONG => Ok(false),
            Err(error) => Err(error),
        })
        .await
    }

    /// Writes rows of one table. A row that is too long for its columns is written as a notice of that.
    async fn upsert<R: Row>(&self, rows: &[R]) -> Result<(), BrokerError> {
        for rows in portions(rows) {
            if self.fits(rows).await? {
                continue;
            }
            for row in rows {
                if !self.fits(std::slice::from_ref(row)).await? {
                    let notice = [row.notice()];
                    self.with(async |conn| statement(conn, &notice).await).await?;
                }
            }
        }
        Ok(())
    }
}

#[async_trait]
impl ResultBackend for MySqlResults {
    fn name(&self) -> &str {
        &self.name
    }

    async fn read(&self, ids: &[String]) -> Result<Vec<Option<String>>, BrokerError> {
        let mut found = HashMap::new();
        for ids in ids.chunks(ROWS_MAX) {
            let rows = self.with(async |conn| {
                let tasks: Vec<TaskColumns> = conn.exec(select::<Task>(ids.len()), values(ids)).await?;
                let groups: Vec<GroupColumns> = conn.exec(select::<Group>(ids.len()), values(ids)).await?;
                Ok((tasks, groups))
            });
            let (tasks, groups) = rows.await?;
            let (tasks, groups) =
                (tasks.into_iter().map(Task::from_columns), groups.into_iter().map(Group::from_columns));
            found.extend(groups.map(|group| (group.id().to_owned(), group.document(&self.separator))));
            found.extend(tasks.map(|task| (task.id().to_owned(), task.document())));
        }
        Ok(ids.iter().map(|id| found.remove(id)).collect())
    }

    async fn write(&self, documents: &[ResultDocument]) -> Result<(), BrokerError> {
        let (mut tasks, mut groups) = (Vec::new(), Vec::new());
        for ResultDocument { text, .. } in documents {
            match document::read(text, &self.separator) {
                Some(Document::Task(task)) => tasks.push(task),
                Some(Document::Group(group)) => groups.push(group),
                None => {}
            }
        }
        self.upsert(&tasks).await?;
        self.upsert(&groups).await
    }

    /// Rows have no times of their own.
    async fn keep_for(&self, _ids: &[String], _span: Option<Duration>) -> Result<(), BrokerError> {
        Ok(())
    }

    async fn purge(&self) -> Result<u64, BrokerError> {
        let keep = self.keep.as_secs();
        let tasks = self.with(async |conn| purge::tasks(conn, keep).await).await?;
        let groups = self.with(async |conn| purge::groups(conn, keep, &self.separator).await).await?;
        Ok(tasks + groups)
    }
}

/// Parts that fit into one statement.
fn portions<R: Row>(rows: &[R]) -> Vec<&[R]> {
    let mut portions = Vec::new();
    let mut rest = rows;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |row: &&R| {
            bytes += row.bytes();
            bytes <= BYTES_MAX
        };
        let count = rest.iter().take(ROWS_MAX).take_while(fits).count().max(1);
        let (now, later) = rest.split_at(count);
        portions.push(now);
        rest = later;
    }
    portions
}

async fn statement<R: Row>(conn: &mut Conn, rows: &[R]) -> Result<(), Error> {
    let values: Vec<Value> = rows.iter().flat_map(Row::values).collect();
    conn.exec_drop(upsert::<R>(rows.len()), Params::Positional(values)).await
}

fn upsert<R: Row>(count: usize) -> String {
    let columns = R::COLUMNS.join(", ");
    let row = format!("({}, UTC_TIMESTAMP(6))", vec!["?"; R::COLUMNS.len()].join(", "));
    let rows = vec![row.as_str(); count].join(", ");
    let changed = R::COLUMNS.iter().skip(1).chain(&["created_at"]);
    let changes: Vec<String> = changed.map(|column| format!("{column} = VALUES({column})")).collect();
    let (table, changes) = (R::TABLE, changes.join(", "));
    format!("INSERT INTO {table} ({columns}, created_at) VALUES {rows} ON DUPLICATE KEY UPDATE {changes}")
}

fn select<R: Row>(count: usize) -> String {
    let marks = vec!["?"; count].join(", ");
    let (table, columns) = (R::TABLE, R::COLUMNS.join(", "));
    let id = R::COLUMNS.first().copied().unwrap_or_default();
    format!(
        "SELECT {columns}, DATE_FORMAT(created_at, '%Y-%m-%dT%H:%i:%s.%fZ') FROM {table} WHERE {id} IN ({marks})"
    )
}

fn values(ids: &[String]) -> Params {
    Params::Positional(ids.iter().map(|id| Value::from(id.as_str())).collect())
}

/// The meaning of an error. The server's words have no passwords in them.
fn failure(error: &Error) -> BrokerError {
    match error {
        Error::Server(error) => {
            let message = format!("{}: {}", error.code, error.message);
            match error.code {
                1044 | 1045 | 1142 | 1143 | 1698 => BrokerError::Refused(message),
                _ => BrokerError::Failed(message),
            }
        }
        Error::Io(error) => BrokerError::Unreachable(error.to_string()),
        error => BrokerError::Failed(error.to_string()),
    }
}
