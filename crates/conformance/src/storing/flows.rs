//! The catalogue of flows and their versions.

use std::sync::Arc;

use windlass_core::Flow;
use windlass_store::{Change, Outcome, StoredFlow};

use crate::{World, history::line, topic};

topic![
    versions_follow_one_another,
    old_versions_stay,
    the_newest_of_each_is_listed_by_name,
    tasks_keep_the_version_they_were_started_with,
];

fn versioned(flow: &str, version: u32) -> Flow {
    Flow { version, ..line(flow, version as usize) }
}

async fn add(world: &mut World, flow: Flow) -> Outcome {
    let created_at = world.now.wall;
    world.commit_one(Change::Flow(StoredFlow { flow: Arc::new(flow), created_at })).await
}

async fn find(world: &mut World, name: &str, version: Option<u32>) -> Option<Flow> {
    let stored = world.store().flow(name, version).await.expect("reading flows succeeds");
    stored.map(|stored| (*stored.flow).clone())
}

async fn versions_follow_one_another(mut world: World) {
    let attempts = [(2, false), (1, true), (1, false), (3, false), (2, true), (0, false)];
    for (version, fits) in attempts {
        let expected = if fits { Outcome::Committed } else { Outcome::Conflict };
        assert_eq!(add(&mut world, versioned("flow", version)).await, expected, "version {version}");
    }
    assert_eq!(find(&mut world, "flow", None).await, Some(versioned("flow", 2)));
    let batch = [3, 3, 4].map(|version| {
        Change::Flow(StoredFlow { flow: Arc::new(versioned("flow", version)), created_at: world.now.wall })
    });
    let outcomes = world.commit(batch.into()).await;
    assert_eq!(outcomes, [Outcome::Committed, Outcome::Conflict, Outcome::Committed]);
}

async fn old_versions_stay(mut world: World) {
    for version in 1..=3 {
        assert_eq!(add(&mut world, versioned("flow", version)).await, Outcome::Committed);
    }
    for version in 1..=3 {
        assert_eq!(find(&mut world, "flow", Some(version)).await, Some(versioned("flow", version)));
    }
    assert_eq!(find(&mut world, "flow", None).await, Some(versioned("flow", 3)));
    for (name, version) in [("flow", Some(0)), ("flow", Some(4)), ("other", None), ("other", Some(1))] {
        assert_eq!(find(&mut world, name, version).await, None, "{name} {version:?}");
    }
}

async fn the_newest_of_each_is_listed_by_name(mut world: World) {
    for flow in [versioned("zebra", 1), versioned("ant", 1), versioned("zebra", 2), versioned("mole", 1)] {
        assert_eq!(add(&mut world, flow).await, Outcome::Committed);
    }
    let flows = world.store().flows().await.expect("listing flows succeeds");
    let names: Vec<_> =
        flows.iter().map(|stored| (stored.flow.name.to_string(), stored.flow.version)).collect();
    assert_eq!(names, [("ant".to_owned(), 1), ("mole".to_owned(), 1), ("zebra".to_owned(), 2)]);
    assert_eq!(flows[0].created_at, world.now.wall);
}

async fn tasks_keep_the_version_they_were_started_with(mut world: World) {
    let first = world.add_flow(versioned("flow", 1)).await;
    let old = world.submit(&first).await;
    let second = world.add_flow(versioned("flow", 2)).await;
    let new = world.submit(&second).await;
    assert_eq!(world.load(old).await.task.flow, first);
    assert_eq!(world.load(new).await.task.flow, second);
}
