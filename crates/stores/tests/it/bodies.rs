//! Parameters and results beyond the limit in bytes: they are not in memory, and are there when they are needed.

use std::sync::Arc;

use windlass_core::{Millis, OnFailure, Timestamp};
use windlass_store::{
    Now, Queries as _, Store as _, StoreError, TaskQuery,
    resident::{BodyPolicy, Resident, RestPolicy, Room, RowSink as _},
};
use windlass_stores::sqlite::{SqliteOptions, SqliteSink};

use crate::story::{Place, Story, flow, flow_change, id, wait};

const NOW: Now = Now { wall: Timestamp(0), mono: Millis(0) };

/// Room for none.
const NONE: RestPolicy =
    RestPolicy { bodies: BodyPolicy::NONE, horizon: Millis(60_000), page: 1_000, head: 4_000 };

fn open(place: &Place, rest: RestPolicy) -> Resident {
    let sink = SqliteSink::open(&place.path(), SqliteOptions::default()).unwrap();
    wait(Resident::open_with(Arc::new(sink), NOW, rest)).unwrap()
}

/// A ready task with parameters, and one step with a result that is behind it.
fn fill(store: &Resident) -> Story {
    let flow = flow("f", 2, OnFailure::Rollback);
    let mut story = Story::new(&flow, id(0, 1), 0, &[]);
    let result = r#"{"made": "a result"}"#;
    let changes = vec![flow_change(&flow), story.accept(0), story.succeed(1, Some(result))];
    for change in changes {
        wait(store.commit(vec![change])).unwrap();
    }
    story
}

#[test]
fn a_task_whose_body_is_not_in_memory_is_loaded_whole() {
    let place = Place::new();
    let store = open(&place, NONE);
    let mut story = fill(&store);
    let id = story.task.id;
    assert_eq!(store.loads_at_once(), 16, "a body is on disk only");
    let load = |store: &Resident| wait(store.load(&[id])).unwrap().pop().flatten().unwrap().task;
    assert_eq!(load(&store), story.task);
    assert!(!story.task.input.params.is_empty());
    // Lists have parameters, but for those who do not want them.
    let query = TaskQuery { limit: 9, ..TaskQuery::default() };
    let listed =
        |query: &TaskQuery| wait(store.tasks(query)).unwrap().items.pop().unwrap().task.input.clone();
    assert_eq!(listed(&query).params, story.task.input.params);
    assert!(listed(&TaskQuery { brief: true, ..query.clone() }).params.is_empty());
    // What is decided on it is on all of it.
    wait(store.commit(vec![story.succeed(2, None)])).unwrap();
    assert_eq!(load(&store), story.task);
    drop(store);
    let store = open(&place, NONE);
    assert_eq!(load(&store), story.task);
}

#[test]
fn a_start_reads_bodies_only_as_far_as_there_is_room() {
    let place = Place::new();
    let story = fill(&open(&place, NONE));
    let sink = SqliteSink::open(&place.path(), SqliteOptions::default()).unwrap();
    let read = wait(sink.recover(Room::of(NONE.bodies))).unwrap().tasks.pop().unwrap();
    assert!(read.is_body_away && read.input.params.is_empty() && read.state.result_bytes() == 0);
    let whole = wait(sink.recover(Room::ENDLESS)).unwrap().tasks.pop().unwrap();
    assert_eq!(
        (whole.input.params, whole.state),
        (story.task.input.params.clone(), story.task.state.clone())
    );
}

#[test]
fn a_body_that_is_damaged_or_gone_while_the_store_is_open_is_its_task_s_matter() {
    let damages = [
        "UPDATE task SET params = '{\"other\": 1}'",
        "UPDATE active SET state = zeroblob(length(state))",
        "DELETE FROM active",
    ];
    for damage in damages {
        let place = Place::new();
        let store = open(&place, NONE);
        let story = fill(&store);
        let id = story.task.id;
        let shell = rusqlite::Connection::open(place.path()).unwrap();
        assert_eq!(shell.execute(damage, []).unwrap(), 1, "{damage}");
        assert!(wait(store.load(&[id])).unwrap()[0].is_none(), "{damage}");
        let error = store.quarantine().error(id).expect("the store names the damaged task");
        assert!(matches!(&error, StoreError::Damaged(why) if why.contains(&id.to_string())), "{error}");
        assert_eq!(store.resident_bytes(), Some(0));
        // Other tasks go on.
        let flow = story.task.flow.clone();
        let mut other = Story::new(&flow, self::id(0, 2), 0, &[]);
        wait(store.commit(vec![other.accept(0)])).unwrap();
        let loaded = wait(store.load(&[id, other.task.id])).unwrap();
        assert_eq!(loaded[1].as_ref().map(|loaded| &loaded.task), Some(&other.task), "{damage}");
    }
}
