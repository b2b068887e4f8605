//! Due timers: starts, retries, deadlines, and attempts that run too long.

use windlass_core::{ActKey, Backoff, Command, Expression, Millis, Retry, Wakeup};
use windlass_store::{Adoption, Due, TIMEOUT_GRACE, WorkerState};

use crate::{
    World,
    claiming::adoption::adopt,
    history::{json, line},
    topic,
    world::{FIRST, LEASE, attempt, failed, tasks_of},
};

topic![
    a_start_is_due_at_its_time_and_until_it_is_settled,
    what_is_due_comes_in_the_order_of_time,
    no_more_is_told_due_than_asked_for,
    a_retry_is_due_at_its_time,
    what_is_replaced_leaves_no_timer,
    a_deadline_ends_the_first_attempt_from_its_claim_and_those_after_it_also_in_the_queue,
    an_attempt_times_out_when_it_runs_too_long,
    a_worker_that_keeps_a_poll_open_is_given_time_to_end_it,
    a_timeout_counts_from_when_the_attempt_became_ready_if_the_claiming_clock_is_behind,
    what_has_ended_does_not_time_out,
    the_store_knows_when_to_be_asked_again,
];

fn start(task: windlass_core::TaskId) -> Due {
    Due::Wake { task, wakeup: Wakeup::Start }
}

const UNDO: ActKey = ActKey::rollback(0);

fn act(task: windlass_core::TaskId) -> Due {
    Due::Wake { task, wakeup: Wakeup::Act(FIRST) }
}

async fn a_start_is_due_at_its_time_and_until_it_is_settled(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let at = world.now.wall + Millis(1_000);
    let id = world.submit_with(&flow, |input| input.at = Some(at)).await;
    let session = world.session(1).await;
    world.pass(Millis(999));
    assert_eq!(world.due().await, []);
    assert!(world.claim(session, 9).await.is_empty());
    world.pass(Millis(1));
    assert_eq!(world.due().await, [start(id)]);
    world.pass(Millis(500));
    assert_eq!(world.due().await, [start(id)]);
    world.apply(id, Command::Wake(Wakeup::Start)).await;
    assert_eq!(world.due().await, []);
    assert_eq!(tasks_of(&world.claim(session, 9).await), [id]);
}

async fn what_is_due_comes_in_the_order_of_time(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let mut tasks = Vec::new();
    for delay in [30, 10, 20, 40] {
        let at = world.now.wall + Millis(delay);
        tasks.push(world.submit_with(&flow, |input| input.at = Some(at)).await);
    }
    world.pass(Millis(35));
    assert_eq!(world.due().await, [start(tasks[1]), start(tasks[2]), start(tasks[0])]);
}

async fn no_more_is_told_due_than_asked_for(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let mut tasks = Vec::new();
    for delay in 1..=5 {
        let at = world.now.wall + Millis(delay);
        tasks.push(world.submit_with(&flow, |input| input.at = Some(at)).await);
    }
    world.pass(Millis(100));
    let now = world.now;
    let due = world.store().due(now, 2).await.expect("asking what is due succeeds");
    assert_eq!(due, [start(tasks[0]), start(tasks[1])]);
    assert_eq!(world.store().due(now, 0).await.expect("asking what is due succeeds"), []);
}

async fn a_retry_is_due_at_its_time(mut world: World) {
    let mut flow = line("flow", 1);
    flow.steps[0].run.retry =
        Retry { max: 2, backoff: Backoff::Fixed, base: Millis(4_000), cap: Millis(4_000) };
    let flow = world.add_flow(flow).await;
    let id = world.submit(&flow).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    world.fail(&claimed).await;
    // The delay is between half and all of its length.
    world.pass(Millis(1_999));
    assert_eq!(world.due().await, []);
    assert!(world.claim(session, 9).await.is_empty());
    world.pass(Millis(2_001));
    assert_eq!(world.due().await, [act(id)]);
    world.apply(id, Command::Wake(Wakeup::Act(FIRST))).await;
    assert_eq!(world.due().await, []);
    assert_eq!(world.claim_one(session).await.id.attempt, 2);
}

async fn what_is_replaced_leaves_no_timer(mut world: World) {
    let mut flow = line("flow", 1);
    flow.steps[0].run.retry = Retry { max: 2, ..Retry::default() };
    flow.steps[0].run.deadline = Some(Millis::from_secs(20));
    let flow = world.add_flow(flow).await;
    let at = world.now.wall + Millis(1_000);
    let scheduled = world.submit_with(&flow, |input| input.at = Some(at)).await;
    let delayed = world.submit(&flow).await;
    let waiting = world.submit(&flow).await;
    let done = world.submit(&flow).await;
    let session = world.session(1).await;
    let claimed = world.claim(session, 9).await;
    assert_eq!(tasks_of(&claimed), [delayed, waiting, done]);
    world.fail(&claimed[0]).await;
    world.release(session, claimed[1].id).await;
    world.succeed(&claimed[2], None).await;
    for id in [scheduled, delayed, waiting] {
        world.apply(id, Command::Cancel { by: None }).await;
    }
    world.pass(Millis::from_secs(3600));
    assert_eq!(world.due().await, []);
}

async fn a_deadline_ends_the_first_attempt_from_its_claim_and_those_after_it_also_in_the_queue(
    mut world: World,
) {
    let mut flow = line("flow", 1);
    flow.steps[0].run.deadline = Some(Millis::from_secs(4));
    flow.steps[0].run.retry = Retry { max: 3, backoff: Backoff::None, ..Retry::default() };
    let flow = world.add_flow(flow).await;
    let (running, waiting) = (world.submit(&flow).await, world.submit(&flow).await);
    // No deadline runs in the queue.
    world.pass(Millis::from_secs(600));
    assert_eq!(world.due().await, []);
    let session = world.session(1).await;
    let first = world.claim_one(session).await;
    assert_eq!(first.id.task, running);
    world.pass(Millis(3_999));
    assert_eq!(world.due().await, []);
    world.pass(Millis(1));
    assert_eq!(world.due().await, [Due::TimeOut(first.clone())]);
    world.apply(running, Command::TimeOut(attempt(&first))).await;
    assert_eq!(world.due().await, []);
    let undo = world.claim_one(session).await;
    assert_eq!((undo.id.task, undo.id.key), (waiting, FIRST));
    world.pass(Millis(1_000));
    world.report(&undo, failed()).await;
    world.pass(Millis(2_999));
    assert_eq!(world.due().await, []);
    world.pass(Millis(1));
    assert_eq!(world.due().await, [act(waiting)]);
    world.apply(waiting, Command::Wake(Wakeup::Act(FIRST))).await;
    assert_eq!(world.due().await, []);
    // Both are rolled back.
    let undo = world.claim(session, 9).await;
    let undone: Vec<_> = undo.iter().map(|undo| (undo.id.task, undo.id.key)).collect();
    assert_eq!(undone, [(running, UNDO), (waiting, UNDO)]);
}

async fn an_attempt_times_out_when_it_runs_too_long(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let id = world.submit(&flow).await;
    // It waits longer than it may run.
    world.pass(Millis::from_secs(600));
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    world.pass(Millis(59_999));
    assert_eq!(world.due().await, []);
    world.pass(Millis(1));
    assert_eq!(world.due().await, [Due::TimeOut(claimed.clone())]);
    assert_eq!(world.due().await, [Due::TimeOut(claimed.clone())], "it stays due until it is settled");
    world.apply(id, Command::TimeOut(attempt(&claimed))).await;
    assert_eq!(world.due().await, []);
    assert_eq!(world.load(id).await.claims, []);
}

/// Two servers on one store: the clock of the one that makes the attempt ready is ahead of the other's by 1 s.
async fn a_timeout_counts_from_when_the_attempt_became_ready_if_the_claiming_clock_is_behind(
    mut world: World,
) {
    let mut keyed = line("keyed", 1);
    keyed.steps[0].key = Some(Expression::compile("tenant").expect("an expression"));
    let session = world.session(1).await;
    for (flow, is_adopted) in [(line("flow", 1), false), (keyed, false), (line("adopted", 1), true)] {
        let flow = world.add_flow(flow).await;
        world.renew(session).await;
        let behind = world.now;
        world.pass(Millis(1_000));
        world.submit_with(&flow, |input| input.params = json(r#"{"tenant":"a"}"#)).await;
        world.now = behind;
        let claimed = world.claim_one(session).await;
        if is_adopted {
            world.release(session, claimed.id).await;
            assert_eq!(adopt(&mut world, session, &[claimed.id]).await, [Adoption::Held]);
        }
        world.pass(Millis(60_999));
        assert_eq!(world.due().await, [], "60 s after it became ready are not over");
        world.pass(Millis(1));
        assert_eq!(world.due().await, [Due::TimeOut(claimed.clone())]);
        world.succeed(&claimed, None).await;
    }
}

async fn a_worker_that_keeps_a_poll_open_is_given_time_to_end_it(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    world.submit(&flow).await;
    let session = windlass_store::SessionId(1);
    let worker = WorkerState { attached: true, ..WorkerState::default() };
    world.renew_with(session, LEASE, Some(worker)).await;
    let claimed = world.claim_one(session).await;
    world.pass(Millis(60_000 + TIMEOUT_GRACE.0 - 1));
    assert_eq!(world.due().await, []);
    world.pass(Millis(1));
    assert_eq!(world.due().await, [Due::TimeOut(claimed)]);
}

async fn what_has_ended_does_not_time_out(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    for _ in 0..3 {
        world.submit(&flow).await;
    }
    let session = world.session(1).await;
    let claimed = world.claim(session, 9).await;
    world.succeed(&claimed[0], None).await;
    world.report(&claimed[1], failed()).await;
    world.release(session, claimed[2].id).await;
    world.pass(Millis::from_secs(3600));
    assert_eq!(world.due().await, []);
}

async fn the_store_knows_when_to_be_asked_again(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let at = world.now.wall + Millis(7_000);
    world.submit_with(&flow, |input| input.at = Some(at)).await;
    let now = world.now;
    // A store that cannot know returns `None`; a returned time must not be too late.
    let Some(first) = world.store().next_wake(now) else { return };
    assert!(first <= Millis(7_000), "{first:?}");
    world.submit(&flow).await;
    let session = world.session(1).await;
    world.renew_with(session, Millis(3_000), None).await;
    world.claim_one(session).await;
    let lease = world.store().next_wake(now).expect("it said a time before");
    assert!(lease <= Millis(3_000), "{lease:?}");
    world.renew_with(session, Millis::from_secs(3600), None).await;
    world.pass(Millis(7_000));
    let now = world.now;
    let due = world.store().next_wake(now).expect("it said a time before");
    assert_eq!(due, Millis(0), "a start is due");
}
