//! The newest version of a flow is not read for each task, and yet no server uses an older one than a client has seen.

use std::{sync::Arc, time::Instant};

use windlass_conformance::block_on;
use windlass_core::{Flow, OnFailure};
use windlass_store::{Outcome, Store};

use crate::{disturbed::add_flow, story};

fn newest(store: &dyn Store, name: &str) -> Option<u32> {
    block_on(store.flow(name, None)).unwrap().map(|stored| stored.flow.version)
}

fn add_version(store: &dyn Store, version: u32) -> Outcome {
    let flow = story::flow("flow", version as usize, OnFailure::Rollback);
    let change = story::flow_change(&Arc::new(Flow { version, ..(*flow).clone() }));
    block_on(store.commit(vec![change])).unwrap().remove(0)
}

/// Asks many times, which is a trip or two.
pub(crate) fn is_asked_once_in_a_while(store: &dyn Store) {
    add_flow(store);
    let trips = || store.cluster().unwrap().round_trips().unwrap();
    let (before, began) = (trips(), Instant::now());
    for _ in 0..100 {
        assert_eq!(newest(store, "flow"), Some(1));
    }
    // The first one reads the flow as well.
    let most = 2 + began.elapsed().as_millis() / 50;
    assert!(u128::from(trips() - before) <= most, "{} trips, at most {most}", trips() - before);
    let before = trips();
    assert_eq!([newest(store, "other"), newest(store, "other")], [None, None]);
    assert_eq!(trips() - before, 2, "one that is not there may be there at any time");
}

/// Once a version was returned, it is the newest on the other server as well.
pub(crate) fn is_the_same_everywhere(one: &dyn Store, other: &dyn Store) {
    add_flow(one);
    for version in 2..8 {
        assert_eq!(newest(other, "flow"), Some(version - 1));
        assert_eq!(add_version(one, version), Outcome::Committed);
        assert_eq!([newest(other, "flow"), newest(one, "flow")], [Some(version); 2]);
        assert_eq!(add_version(other, version), Outcome::Conflict);
    }
}
