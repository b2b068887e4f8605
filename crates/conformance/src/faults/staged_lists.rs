//! The contents of lists while changes are being written.

use std::{
    sync::Arc,
    task::{Context, Waker},
};

use windlass_core::TaskStatus;
use windlass_store::{Change, Outcome, SCAN_MAX, TaskQuery};

use crate::{
    World,
    faults::staging::{GatedCase, begin},
    gate::Gate,
    history::line,
};

/// The cases about lists.
pub(crate) fn cases() -> Vec<GatedCase> {
    vec![
        |world, gate| Box::pin(a_task_that_ends_while_a_list_is_read_is_on_it(world, gate)),
        |world, gate| Box::pin(a_list_looks_at_no_more_than_so_many_active_tasks(world, gate)),
        |world, gate| Box::pin(a_list_waits_for_what_it_shows(world, gate)),
    ]
}

async fn a_task_that_ends_while_a_list_is_read_is_on_it(mut world: World, gate: Arc<Gate>) {
    let flow = world.add_flow(line("flow", 1)).await;
    let id = world.submit(&flow).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    gate.hold_reads();
    let store = world.store();
    let query = TaskQuery { limit: 9, ..TaskQuery::default() };
    let mut listing = Box::pin(async move { store.tasks(&query).await });
    assert!(listing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    gate.hold_no_more_reads();
    world.succeed(&claimed, None).await;
    gate.let_read_go(0);
    let page = listing.await.expect("listing succeeds");
    assert_eq!(page.items.iter().map(|loaded| loaded.task.id).collect::<Vec<_>>(), [id]);
}

async fn a_list_looks_at_no_more_than_so_many_active_tasks(mut world: World, _gate: Arc<Gate>) {
    let flow = world.add_flow(line("flow", 1)).await;
    let tasks: Vec<Change> = (0..SCAN_MAX + 10).map(|_| world.new_task(&flow, |_| {}).into()).collect();
    world.commit(tasks).await;
    let labels = [("none".to_owned(), "has".to_owned())].into();
    let query = TaskQuery { limit: 9, labels, statuses: vec![TaskStatus::Pending], ..TaskQuery::default() };
    let page = world.store().tasks(&query).await.expect("listing succeeds");
    assert!(page.items.is_empty());
    let rest = TaskQuery { before: page.next, ..query };
    assert!(rest.before.is_some(), "there is more to look at");
    let page = world.store().tasks(&rest).await.expect("listing succeeds");
    assert!(page.items.is_empty() && page.next.is_none());
}

async fn a_list_waits_for_what_it_shows(mut world: World, gate: Arc<Gate>) {
    let flow = world.add_flow(line("flow", 1)).await;
    gate.close();
    let new = world.new_task(&flow, |_| {});
    let id = new.task.id;
    let submitting = begin(&mut world, vec![new.into()]);
    let store = world.store();
    let newest = TaskQuery { limit: 1, ..TaskQuery::default() };
    let mut listing = Box::pin(async move { store.tasks(&newest).await });
    assert!(listing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    gate.open();
    let page = listing.await.expect("listing succeeds");
    assert_eq!(page.items.first().map(|loaded| loaded.task.id), Some(id));
    assert_eq!(submitting.await.expect("it is written"), [Outcome::Committed]);
}
