//! Databases whose tables an older program made: they are brought to today's version, and what is in them is read.
//!
//! Their rows are kept as the SQL that makes them, for ever: every later version must read them.

use std::collections::BTreeMap;

use windlass_conformance::{block_on, claim};
use windlass_core::{ActState, AlarmState, Direction, Json, Millis, Phase, StuckKind, Timestamp};
use windlass_store::{ClaimRequest, Due, Now, Store, TaskQuery};

use crate::{
    disturbed::{SESSION, renew},
    story,
};

/// Long after all times in it.
const LATER: Now = Now { wall: Timestamp(5_000_000_000_000), mono: Millis(5_000_000_000_000) };

/// What is in a database of version 1 is what its servers left there, and its tasks go on.
pub(crate) fn goes_on(store: &dyn Store) {
    let query = TaskQuery { limit: 100, ..TaskQuery::default() };
    let ids: Vec<_> =
        block_on(store.tasks(&query)).unwrap().items.iter().map(|loaded| loaded.task.id).collect();
    let mut tasks: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for loaded in block_on(store.load(&ids)).unwrap() {
        let task = loaded.unwrap().task;
        assert_eq!(block_on(store.events(task.id, 0, 100)).unwrap().len() as u64, task.state.events);
        tasks.entry(task.flow.name.to_string()).or_default().push(task);
    }
    let count = |flow: &str| tasks[flow].len();
    assert_eq!((count("good"), count("stuck"), count("fan"), count("locked")), (2, 1, 1, 3));

    // Those that were submitted last come first.
    let [scheduled, good] = &tasks["good"][..] else { unreachable!("there are two") };
    assert_eq!(scheduled.state.phase, Phase::Scheduled);
    assert!(good.is_ended() && good.input.labels["a"] == "b");
    assert_eq!(good.outcome(), Json::parse(r#"{"ran":"two"}"#).unwrap());
    assert_eq!(&*block_on(store.logs(good.id, 0, 10)).unwrap()[0].1.line, "said");
    let members = tasks["fan"][0].state.steps[0].members.as_ref().unwrap();
    let is_done = |number| members.get(number).unwrap().act(Direction::Forward).state == ActState::Succeeded;
    assert!((1..=3).all(is_done));
    assert_eq!(tasks["stuck"][0].state.stuck.as_ref().unwrap().kind, StuckKind::RollbackFailed);

    let alarms = block_on(store.alarms(false, 10)).unwrap();
    assert_eq!((alarms.len(), alarms[0].state), (1, AlarmState::Raised));
    let locks = block_on(store.locks(None, 10)).unwrap();
    let holder = locks[0].holder.as_ref().unwrap().owner.task;
    assert_eq!((locks.len(), locks[0].waiters().count()), (1, 2));
    assert!(tasks["locked"].iter().any(|task| task.id == holder));
    let limits = block_on(store.limits(LATER)).unwrap();
    assert_eq!((limits.len(), limits[0].limit.running), (1, Some(3)));
    let queues = block_on(store.queues()).unwrap();
    let paused: Vec<&str> =
        queues.iter().filter(|queue| queue.paused.is_some()).map(|queue| queue.name.as_str()).collect();
    assert_eq!(paused, ["m"]);
    let due = block_on(store.due(LATER, 10)).unwrap();
    assert!(due.iter().any(|due| matches!(due, Due::Wake { task, .. } if *task == scheduled.id)), "{due:?}");

    // What was ready is handed out.
    renew(store);
    let claim_request = ClaimRequest { module: story::name("nobody"), commands: None, free: 10 };
    let claimed = block_on(claim(store, SESSION, &[claim_request], LATER)).unwrap();
    assert_eq!(claimed.iter().map(|claimed| claimed.id.task).collect::<Vec<_>>(), [holder]);
}
