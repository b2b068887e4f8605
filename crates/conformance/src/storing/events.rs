//! The history of a task: every event once, numbered from 1 without a gap.

use std::sync::Arc;

use windlass_core::{Command, Event, EventKind, TaskId};
use windlass_store::Outcome;

use crate::{
    World,
    history::{json, line},
    topic,
};

topic![
    events_are_numbered_without_a_gap,
    events_after_a_number_are_read_in_pieces,
    an_unknown_task_has_no_events,
    replaying_the_events_gives_the_task,
];

/// Results are stored with the step, not with the event that reported them.
pub(crate) fn without_results(events: impl IntoIterator<Item = Event>) -> Vec<Event> {
    let strip = |mut event: Event| {
        if let EventKind::ActSucceeded { result, .. } | EventKind::ActResolved { result, .. } =
            &mut event.kind
        {
            *result = None;
        }
        event
    };
    events.into_iter().map(strip).collect()
}

/// A task that was run to its end, with all its events.
async fn story(world: &mut World) -> (TaskId, Vec<Event>) {
    let flow = world.add_flow(line("flow", 2)).await;
    let accepted = world.new_task(&flow, |_| {});
    let (id, mut expected) = (accepted.task.id, accepted.events.clone());
    assert_eq!(world.commit_one(accepted).await, Outcome::Committed);
    let session = world.session(1).await;
    for result in [Some(json(r#"{"a": 1}"#)), None] {
        let claimed = world.claim_one(session).await;
        let command = crate::world::report(&claimed, windlass_core::Outcome::Succeeded(result));
        for command in [Command::Pause { by: None }, command, Command::Resume { by: None }] {
            if world.load(id).await.task.is_ended() {
                break;
            }
            let change = world.decide(id, &command).await;
            expected.extend(change.events.clone());
            assert_eq!(world.commit_one(change).await, Outcome::Committed);
        }
    }
    assert!(world.load(id).await.task.is_ended());
    (id, without_results(expected))
}

async fn read(world: &mut World, id: TaskId, after: u64, limit: usize) -> Vec<(u64, Event)> {
    world.store().events(id, after, limit).await.expect("reading events succeeds")
}

async fn events_are_numbered_without_a_gap(mut world: World) {
    let (id, expected) = story(&mut world).await;
    let (numbers, events): (Vec<u64>, Vec<Event>) = read(&mut world, id, 0, 1000).await.into_iter().unzip();
    assert_eq!(numbers, (1..=expected.len() as u64).collect::<Vec<_>>());
    assert_eq!(without_results(events), expected);
    assert_eq!(world.load(id).await.task.state.events, expected.len() as u64);
}

async fn events_after_a_number_are_read_in_pieces(mut world: World) {
    let (id, expected) = story(&mut world).await;
    for limit in [1, 2, 3, 100] {
        let (mut after, mut found) = (0, Vec::new());
        loop {
            let piece = read(&mut world, id, after, limit).await;
            let Some((last, _)) = piece.last() else { break };
            assert!(piece.len() <= limit);
            assert_eq!(*last, after + piece.len() as u64);
            after = *last;
            found.extend(piece.into_iter().map(|(_, event)| event));
        }
        assert_eq!(without_results(found), expected, "in pieces of {limit}");
    }
    assert_eq!(read(&mut world, id, 10_000, 10).await, []);
    assert_eq!(read(&mut world, id, u64::MAX, 10).await, []);
}

async fn an_unknown_task_has_no_events(mut world: World) {
    story(&mut world).await;
    assert_eq!(read(&mut world, TaskId(7), 0, 10).await, []);
}

async fn replaying_the_events_gives_the_task(mut world: World) {
    let (id, _) = story(&mut world).await;
    let task = world.load(id).await.task;
    let mut replayed = windlass_core::Task::new(id, task.flow.clone(), task.input.clone());
    for (_, event) in read(&mut world, id, 0, 1000).await {
        windlass_core::evolve(&mut replayed, &event);
    }
    for (replayed, step) in replayed.state.steps.iter_mut().zip(&task.state.steps) {
        Arc::make_mut(replayed).forward.result.clone_from(&step.forward.result);
    }
    assert_eq!(replayed, *task);
}
