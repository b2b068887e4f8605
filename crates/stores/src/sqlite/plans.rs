//! How SQLite goes about our queries: each must find its rows by a key.

use rusqlite::Connection;

use super::{
    checksum::Table, list, member_rows, migrate, outbox, query, read, record_rows, recover, resting,
    snapshot, sweep, unique_rows,
};

fn database() -> Connection {
    let mut connection = Connection::open_in_memory().unwrap();
    migrate::migrate(&mut connection, 0, &[0; 32]).unwrap();
    connection
}

fn plan(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let count = statement.parameter_count();
    let parameters = rusqlite::params_from_iter(std::iter::repeat_n(rusqlite::types::Null, count));
    let lines = statement.query_map(parameters, |row| row.get(3)).unwrap();
    lines.collect::<Result<_, _>>().unwrap()
}

/// Asserts that the plan of `sql` scans no table but `scanned`, and sorts nothing.
fn check(sql: &str, scanned: &[&str]) {
    for line in plan(&database(), sql) {
        assert!(!line.contains("TEMP B-TREE"), "sorts: {line}\n{sql}");
        let Some(scan) = line.strip_prefix("SCAN ") else { continue };
        let table = scan.split(' ').next().unwrap();
        assert!(scanned.contains(&table), "reads all of {table}: {line}\n{sql}");
    }
}

#[test]
fn recovery_reads_what_is_active_and_no_history() {
    check(&recover::select_active(), &["active"]);
    check(recover::COUNT_LOST, &["active"]);
    for table in [Table::Meta, Table::Flow, Table::Queue, Table::Message, Table::Line] {
        check(&recover::select_all(table), &[table.name()]);
    }
    check(&read::SELECT_HISTORY, &[]);
}

#[test]
fn queries_find_their_rows_by_keys() {
    for sql in [
        query::SELECT_ENDED.as_str(),
        &query::select_final_row(),
        &query::select_resting_row(),
        query::SELECT_RESTING_PLACE,
        &resting::SELECT_ONE,
        &query::SELECT_SUBMIT_KEY,
        &unique_rows::select_unique_task(),
        &query::select_logs(),
        &record_rows::select_journal_of(),
        &record_rows::select_journal(),
        record_rows::SELECT_OLD_ENTRIES,
        record_rows::SELECT_SIZES,
        &query::select_alarm(),
        &list::select_task(),
        &member_rows::SELECT_MEMBERS,
        sweep::DELETE_MEMBERS,
        snapshot::UNANNOUNCED,
        outbox::IS_UNANNOUNCED,
        outbox::DELETE_UNANNOUNCED,
        &sweep::select_expired(),
        query::HAS_TASKS,
        list::SELECT_TASK_FROM,
    ] {
        check(sql, &[]);
    }
    check(sweep::DELETE_ALARMS, &["active"]);
    check(sweep::SELECT_SHORTEST, &[]);
    // A walk along an index that ends at the limit.
    check(&outbox::select_unannounced(), &["outbox"]);
    check(&query::select_alarms(), &["alarm"]);
    check(&query::select_open_alarms(), &["alarm"]);
}

#[test]
fn tasks_at_rest_are_found_in_both_orders_from_where_the_last_look_ended() {
    for (sql, key) in [
        (resting::select_page(), "PRIMARY KEY (id<?)"),
        (resting::select_page_without_params(), "PRIMARY KEY (id<?)"),
        (resting::select_line(), "INDEX resting_by_line (module=? AND command=? AND (rank,id)>(?,?))"),
        (resting::select_up_to_limit(), "INDEX resting_by_line (module=? AND command=? AND (rank,id)<(?,?))"),
        (
            resting::COUNT_LINE.to_owned(),
            "COVERING INDEX resting_by_line (module=? AND command=? AND (rank,id)>(?,?)",
        ),
        (resting::select_waking(), "INDEX resting_by_wake ((wake_at,id)>(?,?) AND wake_at<?)"),
    ] {
        check(&sql, &[]);
        let plan = plan(&database(), &sql);
        assert!(plan.iter().any(|line| line.contains(key)), "{plan:?}");
    }
}

#[test]
fn lists_are_merged_from_keys_in_order_without_sorting() {
    for statuses in [&[1][..], &[2, 4], &[1, 2, 3, 4]] {
        check(&list::select_page(statuses), &[]);
    }
}
