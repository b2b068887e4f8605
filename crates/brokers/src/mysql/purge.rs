//! Removes rows whose time is over. Rows have numbers in the order in which they were made, so old ones come first, and a
//! table is not read as a whole.

use mysql_async::{Conn, Error, prelude::Queryable as _};

/// The rows that one statement looks at.
const PAGE: usize = 1_000;

/// The most rows that one round looks at.
const ROUND_MAX: usize = 100_000;

/// Removes states of tasks that ended more than `keep` seconds ago. Returns their number.
pub(super) async fn tasks(conn: &mut Conn, keep: u64) -> Result<u64, Error> {
    let (mut after, mut removed) = (0u64, 0);
    for _ in 0..ROUND_MAX / PAGE {
        let rows: Vec<(u64, bool, bool)> = conn
            .exec(
                format!(
                    "SELECT id, created_at IS NULL OR created_at < UTC_TIMESTAMP(6) - INTERVAL ? SECOND,
                        state IN ('SUCCESS', 'FAILURE')
                     FROM task_state WHERE id > ? ORDER BY id LIMIT {PAGE}"
                ),
                (keep, after),
            )
            .await?;
        let over: Vec<u64> =
            rows.iter().filter(|(_, is_old, has_ended)| *is_old && *has_ended).map(|row| row.0).collect();
        removed += remove(conn, "task_state", &over).await?;
        match rows.last() {
            Some(last) if rows.iter().any(|row| row.1) => after = last.0,
            _ => break,
        }
    }
    Ok(removed)
}

/// Removes groups that were written more than `keep` seconds ago and of whose tasks none has a state. Returns their number.
pub(super) async fn groups(conn: &mut Conn, keep: u64, separator: &str) -> Result<u64, Error> {
    let (mut after, mut removed) = (0u64, 0);
    for _ in 0..ROUND_MAX / PAGE {
        let rows: Vec<(u64, Option<String>)> = conn
            .exec(
                format!(
                    "SELECT id, tasks_uuid FROM group_metadata
                     WHERE id > ? AND (created_at IS NULL OR created_at < UTC_TIMESTAMP(6) - INTERVAL ? SECOND)
                     ORDER BY id LIMIT {PAGE}"
                ),
                (after, keep),
            )
            .await?;
        let Some(last) = rows.last() else { break };
        after = last.0;
        let mut over = Vec::new();
        for (id, uuids) in rows {
            let uuids = uuids.unwrap_or_default();
            let uuids: Vec<&str> = uuids.split(separator).filter(|uuid| !uuid.is_empty()).collect();
            let marks = vec!["?"; uuids.len()].join(", ");
            let open: Option<u64> = match uuids.is_empty() {
                true => None,
                false => {
                    conn.exec_first(
                        format!("SELECT id FROM task_state WHERE uuid IN ({marks}) LIMIT 1"),
                        uuids,
                    )
                    .await?
                }
            };
            if open.is_none() {
                over.push(id);
            }
        }
        removed += remove(conn, "group_metadata", &over).await?;
    }
    Ok(removed)
}

async fn remove(conn: &mut Conn, table: &str, ids: &[u64]) -> Result<u64, Error> {
    if ids.is_empty() {
        return Ok(0);
    }
    let marks = vec!["?"; ids.len()].join(", ");
    conn.exec_drop(format!("DELETE FROM {table} WHERE id IN ({marks})"), ids.to_vec()).await?;
    Ok(conn.affected_rows())
}
