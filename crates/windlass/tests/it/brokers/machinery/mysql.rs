//! Results in tables of MariaDB.

use serde_json::{Value, json};
use windlass_testkit::{MariaDb, Redis};

use super::{chord, configured, section, start_example_worker};
use crate::{brokers::PATIENCE, site::until_within};

#[test]
fn a_chord_has_its_results_in_the_order_of_its_group() {
    let (Some(redis), Some(server)) = (Redis::start().unwrap(), MariaDb::shared().unwrap()) else { return };
    let database = server.database().unwrap();
    let mut site = configured(&section(&redis.url(), &format!("backend = \"{}\"\n", database.url())));
    let send = |signature: &Value| {
        redis.ask(&["RPUSH", "machinery_tasks", &signature.to_string()]).unwrap();
    };
    let [first, second] = chord();
    send(&first);
    until_within(PATIENCE, "the tables are there", || {
        database
            .ask("select state from task_state where state = 'RECEIVED'")
            .ok()
            .filter(|rows| !rows.is_empty())
    });
    let group = "insert into group_metadata (group_uuid, tasks_uuid, created_at) \
                 values ('group_g', 'task_2,task_1', utc_timestamp(6))";
    database.ask(group).unwrap();
    start_example_worker(&mut site);
    send(&second);
    let state = |uuid: &str| {
        let row =
            database.ask(&format!("select state, results from task_state where uuid = '{uuid}'")).unwrap();
        row.trim().to_owned()
    };
    until_within(PATIENCE, "the callback runs", || state("chord_c").starts_with("SUCCESS").then_some(()));
    assert_eq!(state("chord_c"), r#"SUCCESS	[{"Type":"int64","Value":80}]"#);
    assert_eq!(state("task_2"), r#"SUCCESS	[{"Type":"int64","Value":4}]"#);
    let callback = site.json(&["task", "list", "--label", "machinery=chord_c"])["items"][0]["id"].clone();
    let callback = site.json(&["task", "show", callback.as_str().unwrap()]);
    assert_eq!(callback["params"]["args"], json!([10, 4, 2]), "in the order of the group");
    until_within(PATIENCE, "the group is triggered", || {
        let row = database.ask("select chord_enabled from group_metadata").unwrap();
        (row.trim() == "1").then_some(())
    });
}
