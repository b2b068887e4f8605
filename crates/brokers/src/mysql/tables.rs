//! The tables. Missing ones are created; existing ones may have more columns, and narrower ones.

use std::collections::HashMap;

use mysql_async::{Conn, prelude::Queryable as _};

use super::{
    document::{Group, Row, Task},
    failure,
};
use crate::BrokerError;

/// The statements that create missing tables. Texts are of the type that holds 16 MiB: `text` ends at 64 KiB.
const CREATE: [&str; 2] = [
    "CREATE TABLE IF NOT EXISTS task_state (
        id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
        uuid varchar(255) NOT NULL,
        name varchar(255) NOT NULL,
        state varchar(255) NOT NULL,
        results mediumtext,
        error_info mediumtext,
        created_at datetime(6),
        UNIQUE KEY uuid (uuid)
    ) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin",
    "CREATE TABLE IF NOT EXISTS group_metadata (
        id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
        group_uuid varchar(255) NOT NULL,
        tasks_uuid mediumtext,
        chord_enabled tinyint(1) DEFAULT 0,
        created_at datetime(6),
        UNIQUE KEY group_uuid (group_uuid)
    ) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin",
];

/// Creates the tables unless they exist.
///
/// # Errors
/// When an existing one lacks a column: names both.
pub(super) async fn prepare(conn: &mut Conn) -> Result<(), BrokerError> {
    let columns: Vec<(String, String)> = conn
        .query(
            "SELECT LOWER(table_name), LOWER(column_name) FROM information_schema.columns
             WHERE table_schema = DATABASE() AND table_name IN ('task_state', 'group_metadata')",
        )
        .await
        .map_err(|error| failure(&error))?;
    let mut tables: HashMap<String, Vec<String>> = HashMap::new();
    for (table, column) in columns {
        tables.entry(table).or_default().push(column);
    }
    let wanted = [(Task::TABLE, Task::COLUMNS), (Group::TABLE, Group::COLUMNS)];
    for ((table, wanted), create) in wanted.into_iter().zip(CREATE) {
        let Some(columns) = tables.get(table) else {
            conn.query_drop(create).await.map_err(|error| failure(&error))?;
            continue;
        };
        if let Some(missing) =
            wanted.iter().chain(&["created_at"]).find(|column| !columns.iter().any(|is| is == *column))
        {
            return Err(BrokerError::Failed(format!(
                "the table {table} has no column {missing}: add it, or use a database without this table"
            )));
        }
    }
    Ok(())
}
