//! Concurrent callers: the work of one thread is neither lost nor repeated by another.

use std::{
    collections::BTreeSet,
    sync::{Arc, Barrier},
    thread,
};

use windlass_core::{Command, TaskId};
use windlass_store::{Change, Outcome, Store, SubmitKey};

use crate::world::claim;
use crate::{
    World, block_on,
    history::{decide, line},
    topic,
    world::claim_request,
};

topic![
    callers_at_once_never_get_the_same_attempt,
    changes_made_at_once_follow_one_another,
    of_submits_made_at_once_under_one_key_one_is_taken,
];

const CALLERS: usize = 4;

/// Runs `call` on several threads at once and returns the results.
fn at_once<T: Send + 'static>(
    world: &mut World,
    call: impl Fn(usize, Arc<dyn Store>) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let (call, barrier) = (Arc::new(call), Arc::new(Barrier::new(CALLERS)));
    let threads: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (call, barrier, store) = (call.clone(), barrier.clone(), world.store());
            thread::spawn(move || {
                barrier.wait();
                call(caller, store)
            })
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().expect("no caller fails")).collect()
}

async fn callers_at_once_never_get_the_same_attempt(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let changes: Vec<_> = (0..200).map(|_| world.new_task(&flow, |_| {})).collect();
    let submitted: BTreeSet<TaskId> = changes.iter().map(|change| change.task.id).collect();
    world.commit(changes.into_iter().map(Change::from).collect()).await;
    let mut sessions = Vec::new();
    for number in 0..CALLERS {
        sessions.push(world.session(number as u128 + 1).await);
    }
    let now = world.now;
    let claimed = at_once(&mut world, move |caller, store| {
        let mut claimed = Vec::new();
        loop {
            let claim_requests = [claim_request("work", 3)];
            let next = block_on(claim(&*store, sessions[caller], &claim_requests, now));
            let next = next.expect("a claim succeeds");
            if next.is_empty() {
                return claimed;
            }
            claimed.extend(next.into_iter().map(|claimed| (claimed.id.claim, claimed.id.task)));
        }
    });
    let claimed: Vec<_> = claimed.into_iter().flatten().collect();
    assert_eq!(claimed.len(), submitted.len());
    let numbers: BTreeSet<u64> = claimed.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers.len(), submitted.len(), "claim numbers are unlike one another");
    assert_eq!(claimed.into_iter().map(|(_, task)| task).collect::<BTreeSet<_>>(), submitted);
}

async fn changes_made_at_once_follow_one_another(mut world: World) {
    const TURNS: usize = 10;
    let flow = world.add_flow(line("flow", 1)).await;
    let id = world.submit(&flow).await;
    let before = world.load(id).await.task.state.events;
    let now = world.now.wall;
    let made = at_once(&mut world, move |_, store| {
        let mut events = 0;
        for _ in 0..TURNS {
            // Pausing a paused task does nothing, so each turn does the opposite of the current state.
            let committed = (0..10_000).find_map(|_| {
                let loaded =
                    block_on(store.load(&[id])).expect("loading succeeds").remove(0).expect("it is there");
                let command = match loaded.task.state.pause {
                    windlass_core::Pause::None => Command::Pause { by: None },
                    _ => Command::Resume { by: None },
                };
                let change = decide(&loaded, &command, now).expect("the rules allow it");
                let count = change.events.len() as u64;
                let outcomes = block_on(store.commit(vec![change.into()])).expect("a commit succeeds");
                (outcomes == [Outcome::Committed]).then_some(count)
            });
            events += committed.expect("a change is committed at last");
        }
        events
    });
    let after = world.load(id).await.task.state.events;
    assert_eq!(after, before + made.iter().sum::<u64>());
    let events = world.store().events(id, 0, 1000).await.expect("reading events succeeds");
    assert_eq!(events.len() as u64, after);
}

async fn of_submits_made_at_once_under_one_key_one_is_taken(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    for round in 0..10 {
        let changes: Vec<_> = (0..CALLERS).map(|_| world.new_task(&flow, |_| {})).collect();
        let outcomes = at_once(&mut world, move |caller, store| {
            let mut change = changes[caller].clone();
            change.submit_key = Some(SubmitKey { scope: [round; 32], fingerprint: [7; 32] });
            let id = change.task.id;
            (id, block_on(store.commit(vec![change.into()])).expect("a commit succeeds").remove(0))
        });
        let won: Vec<TaskId> = outcomes
            .iter()
            .filter(|(_, outcome)| *outcome == Outcome::Committed)
            .map(|(id, _)| *id)
            .collect();
        assert_eq!(won.len(), 1, "{outcomes:?}");
        let taken = Outcome::KeyTaken { task: won[0], fingerprint: [7; 32] };
        assert_eq!(outcomes.iter().filter(|(_, outcome)| *outcome == taken).count(), CALLERS - 1);
    }
}
