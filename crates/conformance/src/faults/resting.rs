//! Tasks without a timer that is due soon are evicted to disk: every operation on them finds them, and loads them once.

use std::{
    future::Future,
    sync::Arc,
    task::{Context, Waker},
};

use futures_util::future::{Either, select};
use windlass_core::{Command, Millis, Name, Pause, Phase, TaskId, Wakeup};
use windlass_store::{
    ADOPTION_GRACE, Adoption, Due, Outcome, Retention, TaskQuery,
    resident::{Room, RowSink as _},
};

use crate::world::claim;
use crate::{
    World,
    faults::staging::{GatedCase, begin},
    gate::Gate,
    history::line,
    world::{FIRST, claim_request, tasks_of},
};

pub(crate) fn cases() -> Vec<GatedCase> {
    vec![
        |world, gate| Box::pin(a_start_does_not_read_what_rests(world, gate)),
        |world, gate| Box::pin(what_rests_is_woken_once_in_the_order_of_time(world, gate)),
        |world, gate| Box::pin(a_task_that_comes_back_while_it_is_loaded_is_as_it_is_by_now(world, gate)),
        |world, gate| Box::pin(a_task_that_comes_back_while_a_list_is_read_is_on_it_once(world, gate)),
        |world, gate| Box::pin(a_failed_write_wakes_nothing(world, gate)),
        |world, gate| Box::pin(a_long_line_is_handed_out_once_and_in_order(world, gate)),
        |world, gate| {
            Box::pin(nothing_of_a_long_line_is_handed_out_that_a_start_would_not_know_of(world, gate))
        },
        |world, gate| Box::pin(what_may_leave_while_its_line_moves_on_is_handed_out(world, gate)),
        |world, gate| Box::pin(what_goes_on_after_its_end_is_not_deleted_meanwhile(world, gate)),
    ]
}

/// A time so far in the future that a task stays evicted until then.
const FAR: Millis = Millis::from_secs(3_600);

/// A task that stays evicted until its start.
async fn resting(world: &mut World) -> TaskId {
    let flow = match world.store().flow("flow", None).await.expect("reading flows succeeds") {
        Some(stored) => stored.flow,
        None => world.add_flow(line("flow", 1)).await,
    };
    let at = world.now.wall + FAR;
    world.submit_with(&flow, |input| input.at = Some(at)).await
}

fn start(task: TaskId) -> Due {
    Due::Wake { task, wakeup: Wakeup::Start }
}

async fn a_start_does_not_read_what_rests(mut world: World, gate: Arc<Gate>) {
    let (id, paused) = (resting(&mut world).await, resting(&mut world).await);
    world.apply(paused, Command::Pause { by: None }).await;
    world.apply(paused, Command::Resume { by: None }).await;
    let flow = world.load(id).await.task.flow.clone();
    let ready = world.submit(&flow).await;
    let awake: Vec<_> = gate.recover(Room::ENDLESS).await.expect("the rows can be read").tasks;
    assert_eq!(awake.iter().map(|row| row.id).collect::<Vec<_>>(), [ready]);
}

async fn what_rests_is_woken_once_in_the_order_of_time(mut world: World, _gate: Arc<Gate>) {
    let mut tasks = Vec::new();
    for _ in 0..5 {
        tasks.push(resting(&mut world).await);
        // Pairs of tasks with the same time.
        world.pass(Millis(if tasks.len() % 2 == 0 { 10 } else { 0 }));
    }
    for _ in 0..2 {
        world.pass(Millis(FAR.0 / 2 - 20));
        assert_eq!(world.due().await, []);
    }
    world.pass(Millis(40));
    for limit in 0..=5 {
        let now = world.now;
        let due = world.store().due(now, limit).await.expect("asking what is due succeeds");
        assert_eq!(due, tasks.iter().take(limit).copied().map(start).collect::<Vec<_>>());
    }
    for id in &tasks {
        world.apply(*id, Command::Wake(Wakeup::Start)).await;
    }
    assert_eq!(world.due().await, []);
}

async fn a_task_that_comes_back_while_it_is_loaded_is_as_it_is_by_now(mut world: World, gate: Arc<Gate>) {
    let id = resting(&mut world).await;
    let cancel = world.decide(id, &Command::Cancel { by: None }).await;
    gate.hold_reads();
    let store = world.store();
    let mut loading = Box::pin(async move { store.load(&[id]).await });
    assert!(loading.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let cancelling = begin(&mut world, vec![cancel.into()]);
    gate.let_read_go(1);
    assert_eq!(cancelling.await.expect("it is written"), [Outcome::Committed]);
    gate.let_read_go(0);
    let loaded = loading.await.expect("loading succeeds").remove(0).expect("it is there");
    assert!(loaded.task.is_ended());
}

async fn a_task_that_comes_back_while_a_list_is_read_is_on_it_once(mut world: World, gate: Arc<Gate>) {
    let (other, id) = (resting(&mut world).await, resting(&mut world).await);
    world.pass(FAR);
    let wake = world.decide(id, &Command::Wake(Wakeup::Start)).await;
    gate.hold_reads();
    let store = world.store();
    let query = TaskQuery { limit: 9, ..TaskQuery::default() };
    let mut listing = Box::pin(async move { store.tasks(&query).await });
    assert!(listing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let waking = begin(&mut world, vec![wake.into()]);
    gate.let_read_go(1);
    assert_eq!(waking.await.expect("it is written"), [Outcome::Committed]);
    gate.let_read_go(0);
    let page = listing.await.expect("listing succeeds");
    assert_eq!(page.items.iter().map(|loaded| loaded.task.id).collect::<Vec<_>>(), [id, other]);
}

/// A rollout rolls back a task that had succeeded, while the janitor deletes what was kept for long enough.
async fn what_goes_on_after_its_end_is_not_deleted_meanwhile(mut world: World, gate: Arc<Gate>) {
    let flow = world.add_flow(line("flow", 1)).await;
    let id = world.submit(&flow).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    assert!(world.succeed(&claimed, None).await.is_ended());
    let retention = Retention { tasks: Millis(1), ..Retention::default() };
    world.pass(FAR);
    let roll_back = Command::RollBack { rollout: Name::new("next").expect("a name") };
    let roll_back = world.decide(id, &roll_back).await;
    gate.hold_reads();
    let rolling_back = begin(&mut world, vec![roll_back.into()]);
    gate.hold_no_more_reads();
    let (store, now) = (world.store(), world.now);
    let mut sweeping = Box::pin(async move { store.sweep(&retention, None, now, 10).await });
    assert!(sweeping.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    gate.let_read_go(0);
    assert_eq!(rolling_back.await.expect("it is written"), [Outcome::Committed]);
    sweeping.await.expect("sweeping succeeds");
    assert_eq!(world.load(id).await.task.state.phase, Phase::Backward);
}

async fn a_failed_write_wakes_nothing(mut world: World, gate: Arc<Gate>) {
    let id = resting(&mut world).await;
    let before = world.load(id).await.task;
    world.pass(FAR);
    assert_eq!(world.due().await, [start(id)]);
    let wake = world.decide(id, &Command::Wake(Wakeup::Start)).await;
    gate.close();
    let waking = begin(&mut world, vec![wake.into()]);
    gate.fail();
    assert!(waking.await.is_err());
    assert_eq!(world.load(id).await.task, before);
    assert_eq!(world.due().await, [start(id)]);
    world.apply(id, Command::Pause { by: None }).await;
    let task = world.apply(id, Command::Wake(Wakeup::Start)).await;
    assert_eq!((task.state.phase, task.state.pause), (Phase::Forward, Pause::Held));
    assert_eq!(world.due().await, []);
}

/// More tasks than a queue of the eager policy keeps in memory, oldest first.
async fn long_line(world: &mut World) -> Vec<TaskId> {
    let flow = world.add_flow(line("flow", 1)).await;
    let mut tasks = Vec::new();
    for _ in 0..9 {
        tasks.push(world.submit(&flow).await);
        world.pass(Millis(1));
    }
    tasks
}

async fn a_long_line_is_handed_out_once_and_in_order(mut world: World, _gate: Arc<Gate>) {
    let tasks = long_line(&mut world).await;
    let session = world.session(1).await;
    for (place, id) in tasks.iter().enumerate() {
        let found = world.store().place(*id, FIRST).await.expect("asking for a place succeeds");
        assert_eq!(found, Some(place as u64));
    }
    let claimed = world.claim(session, 5).await;
    assert_eq!(tasks_of(&claimed), tasks[..5]);
    let queues = world.store().queues().await.expect("reading queues succeeds");
    assert_eq!((queues[0].ready, queues[0].running), (4, 5));
    world.apply(tasks[7], Command::Cancel { by: None }).await;
    // Workers keep their claims, though the rows on disk are unchanged.
    world.reopen().await;
    world.renew(session).await;
    let now = world.now;
    let ids: Vec<_> = claimed.iter().map(|claimed| claimed.id).collect();
    let adopted = world.store().adopt(session, &ids, now).await.expect("an adoption succeeds");
    assert_eq!(adopted, [Adoption::Held; 5]);
    world.pass(ADOPTION_GRACE);
    let rest = world.claim(session, 9).await;
    assert_eq!(tasks_of(&rest), [tasks[5], tasks[6], tasks[8]]);
    for claimed in claimed.iter().chain(&rest) {
        world.succeed(claimed, None).await;
    }
    assert!(world.claim(session, 9).await.is_empty());
    let queues = world.store().queues().await.expect("reading queues succeeds");
    assert_eq!((queues[0].ready, queues[0].running), (0, 0));
}

async fn nothing_of_a_long_line_is_handed_out_that_a_start_would_not_know_of(
    mut world: World,
    gate: Arc<Gate>,
) {
    let tasks = long_line(&mut world).await;
    let session = world.session(1).await;
    let claimed = world.claim(session, 4).await;
    assert_eq!(tasks_of(&claimed), tasks[..4]);
    let known = gate.recover(Room::ENDLESS).await.expect("the rows can be read").tasks;
    assert!(tasks[..4].iter().all(|id| known.iter().any(|row| row.id == *id)));
}

async fn what_may_leave_while_its_line_moves_on_is_handed_out(mut world: World, gate: Arc<Gate>) {
    let flow = world.add_flow(line("flow", 1)).await;
    let session = world.session(1).await;
    let mut tasks = vec![world.submit(&flow).await, world.submit(&flow).await];
    gate.hold_reads();
    let store = world.store();
    let mut loading = Box::pin(async move { store.load(&[TaskId(1)]).await });
    assert!(loading.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    gate.hold_no_more_reads();
    // Behind the head of its queue, and in memory until that read is over.
    tasks.push(world.submit(&flow).await);
    gate.close();
    let (store, now) = (world.store(), world.now);
    let claiming = Box::pin(async move {
        let claim_requests = [claim_request("work", 9)];
        claim(&*store, session, &claim_requests, now).await
    });
    let claimed = match select(claiming, gate.next_write()).await {
        Either::Left((claimed, _)) => claimed,
        // The next page of the queue was read, and its new limit is being written.
        Either::Right(((), claiming)) => {
            gate.let_read_go(0);
            loading.await.expect("loading succeeds");
            gate.open();
            claiming.await
        }
    };
    assert_eq!(tasks_of(&claimed.expect("claiming succeeds")), tasks);
}
