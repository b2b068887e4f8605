//! Tasks for tests of the command line.

use jiff::{SignedDuration, Timestamp};
use windlass_api::Task;

/// The time at which the tests render the tasks.
pub(crate) fn now() -> Timestamp {
    "2030-03-17T17:46:40Z".parse().unwrap()
}

fn at(seconds_ago: i64) -> String {
    (now() - SignedDuration::from_secs(seconds_ago)).to_string()
}

/// A task whose second step runs.
pub(crate) fn running() -> Task {
    serde_json::from_value(serde_json::json!({
        "id": "01990a6e-0000-7000-8000-000000000001", "flow": "create_instance", "version": 2,
        "status": "running", "message": null, "cursor": 1, "params": {"name": "db1", "size": 3},
        "labels": {"team": "storage"}, "priority": 0,
        "created_at": at(200), "started_at": at(199), "ended_at": null,
        "steps": [
            {"name": "check", "status": "succeeded", "run": "resource.check_resource", "message": null, "attempts": 1,
             "started_at": at(199), "ended_at": at(187), "result": {"free": 12},
             "rollback": {"status": "pending", "run": "monitor.report_event", "message": null, "attempts": 0,
                          "started_at": null, "ended_at": null}},
            {"name": "init", "status": "running", "run": "mysql.init_instance", "message": "disk busy", "attempts": 2,
             "started_at": at(187), "ended_at": null, "worker": "worker-1",
             "progress": {"value": 0.4, "message": "copying"},
             "rollback": {"status": "pending", "run": "mysql.clean_instance", "message": null, "attempts": 0,
                          "started_at": null, "ended_at": null}},
            {"name": "deduct", "status": "pending", "run": "resource.deduct_resource", "message": null, "attempts": 0,
             "started_at": null, "ended_at": null}
        ]
    }))
    .unwrap()
}

/// A task whose second step failed to roll back.
pub(crate) fn stuck() -> Task {
    serde_json::from_value(serde_json::json!({
        "id": "01990a6e-0000-7000-8000-000000000002", "flow": "create_instance", "version": 2,
        "status": "stuck", "message": "the rollback of step init failed: directory not empty", "cursor": 2,
        "stuck": {"kind": "rollback_failed", "step": "init", "choices": ["retry", "skip", "done"]},
        "params": {"name": "db2"}, "labels": {}, "priority": 3,
        "created_at": at(7300), "started_at": at(7300), "ended_at": null,
        "steps": [
            {"name": "check", "status": "succeeded", "run": "resource.check_resource", "message": null, "attempts": 1,
             "started_at": at(7300), "ended_at": at(7299)},
            {"name": "init", "status": "rollback_failed", "run": "mysql.init_instance", "message": null, "attempts": 1,
             "started_at": at(7299), "ended_at": at(7200),
             "rollback": {"status": "failed", "run": "mysql.clean_instance", "message": "directory not empty", "attempts": 4,
                          "started_at": at(7000), "ended_at": at(6900)}},
            {"name": "deduct", "status": "rolled_back", "run": "resource.deduct_resource", "message": "no quota left", "code": 3,
             "attempts": 1, "started_at": at(7200), "ended_at": at(7100),
             "rollback": {"status": "succeeded", "run": "resource.restore_resource", "message": null, "attempts": 1,
                          "started_at": at(7100), "ended_at": at(7000)}}
        ]
    }))
    .unwrap()
}
