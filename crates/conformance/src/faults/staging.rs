//! The behaviour of a resident store between a change and the disk: it hands out no attempt before the change is
//! written, later changes build on earlier ones that are still being written, and when a write fails all of them are
//! void.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Waker},
};

use async_trait::async_trait;
use futures_util::future::LocalBoxFuture;
use windlass_core::{ActState, Command, Flow, Millis, Pause};
use windlass_store::{
    ADOPTION_GRACE, Change, Due, Now, Outcome, QueueChange, QueuePause, Store, StoreError, StoredFlow,
    SubmitKey,
    resident::{Resident, RestPolicy, RowSink},
};

use crate::world::claim;
use crate::{
    Bench, World, block_on,
    faults::{resting, staged_lists, staged_messages, staged_races},
    gate::Gate,
    history::line,
    storing::messages::held,
    world::{LEASE, attempt, claim_request, tasks_of},
};

struct Gated(Arc<Gate>, RestPolicy);

#[async_trait]
impl Bench for Gated {
    async fn open(&mut self, now: Now) -> Vec<Arc<dyn Store>> {
        let store = Resident::open_with(self.0.clone(), now, self.1).await;
        vec![Arc::new(store.expect("the rows can be read"))]
    }

    fn keeps_claims(&self) -> bool {
        false
    }
}

/// A case with the gate that it opens and closes.
pub(crate) type GatedCase = fn(World, Arc<Gate>) -> LocalBoxFuture<'static, ()>;

/// Runs the cases about writes in progress to `make`'s sink, each on a new sink.
///
/// # Panics
/// When a resident store over the sink fails a case.
pub fn run_staging(mut make: impl FnMut() -> Arc<dyn RowSink>) {
    let mut cases: Vec<GatedCase> = vec![
        |world, gate| Box::pin(nothing_is_handed_out_before_it_is_written(world, gate)),
        |world, gate| Box::pin(later_changes_build_on_what_is_on_its_way(world, gate)),
        |world, gate| Box::pin(a_failed_write_changes_nothing(world, gate)),
        |world, gate| Box::pin(what_workers_have_outlives_a_failed_write(world, gate)),
        |world, gate| Box::pin(what_was_just_reported_stays_with_its_worker(world, gate)),
        |world, gate| Box::pin(a_loss_that_was_not_written_is_told_again(world, gate)),
        |world, gate| Box::pin(what_is_handed_out_late_has_all_of_its_time(world, gate)),
        |world, gate| Box::pin(a_decision_on_what_was_lost_conflicts(world, gate)),
        |world, gate| Box::pin(a_task_of_a_flow_that_was_lost_conflicts(world, gate)),
        |world, gate| Box::pin(the_key_of_a_failed_submit_is_free(world, gate)),
        |world, gate| Box::pin(keys_are_found_by_lookups_around_a_failed_write(world, gate)),
        |world, gate| Box::pin(the_catalogue_forgets_what_was_not_written(world, gate)),
        |world, gate| Box::pin(a_message_is_sent_and_consumed_when_it_is_written(world, gate)),
    ];
    cases.extend(staged_lists::cases());
    cases.extend(staged_messages::cases());
    cases.extend(staged_races::cases());
    cases.extend(resting::cases());
    for rest in [RestPolicy::default(), RestPolicy::EAGER, RestPolicy::BARE] {
        for case in &cases {
            let gate = Arc::new(Gate::new(make()));
            block_on(async { case(World::open(Box::new(Gated(gate.clone(), rest))).await, gate).await });
        }
    }
}

/// A commit in progress.
pub(crate) type Committing = Pin<Box<dyn Future<Output = Result<Vec<Outcome>, StoreError>>>>;

/// Starts a commit, which then waits at the gate.
pub(crate) fn begin(world: &mut World, changes: Vec<Change>) -> Committing {
    let store = world.store();
    let mut committing: Committing = Box::pin(async move { store.commit(changes).await });
    let polled = committing.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "the gate is closed");
    committing
}

async fn nothing_is_handed_out_before_it_is_written(mut world: World, gate: Arc<Gate>) {
    let flow = world.add_flow(line("flow", 2)).await;
    let session = world.session(1).await;
    let first = world.submit(&flow).await;
    let claimed = world.claim_one(session).await;
    gate.close();
    let new = world.new_task(&flow, |_| {});
    let scheduled = world.new_task(&flow, |input| input.at = Some(input.created_at));
    let (id, scheduled_id) = (new.task.id, scheduled.task.id);
    let submitting = begin(&mut world, vec![new.into(), scheduled.into()]);
    let report = crate::world::report(&claimed, windlass_core::Outcome::Succeeded(None));
    let reported = world.decide(first, &report).await;
    let reporting = begin(&mut world, vec![reported.into()]);
    assert!(world.claim(session, 9).await.is_empty());
    assert_eq!(world.due().await, []);
    assert_eq!(world.store().events(id, 0, 9).await.expect("reading events succeeds"), []);
    gate.open();
    assert_eq!(submitting.await.expect("it is written"), vec![Outcome::Committed; 2]);
    assert_eq!(reporting.await.expect("it is written"), [Outcome::Committed]);
    assert_eq!(tasks_of(&world.claim(session, 9).await), [first, id]);
    assert_eq!(world.due().await.len(), 1);
    world.apply(scheduled_id, Command::Wake(windlass_core::Wakeup::Start)).await;
    assert_eq!(tasks_of(&world.claim(session, 9).await), [scheduled_id]);
}

async fn later_changes_build_on_what_is_on_its_way(mut world: World, gate: Arc<Gate>) {
    let flow = world.add_flow(line("flow", 2)).await;
    gate.close();
    let new = world.new_task(&flow, |_| {});
    let id = new.task.id;
    let submitting = begin(&mut world, vec![new.into()]);
    let pause = world.decide(id, &Command::Pause { by: None }).await;
    let pausing = begin(&mut world, vec![pause.clone().into()]);
    assert_eq!(world.load(id).await.task, pause.task);
    // A conflict with a write in progress is returned once that is written: before, that write may still become void.
    let late = begin(&mut world, vec![pause.into()]);
    gate.open();
    assert_eq!(submitting.await.expect("it is written"), [Outcome::Committed]);
    assert_eq!(pausing.await.expect("it is written"), [Outcome::Committed]);
    assert_eq!(late.await.expect("it is written"), [Outcome::Conflict]);
    assert_eq!(world.load(id).await.task.state.pause, Pause::Held);
    let session = world.session(1).await;
    assert!(world.claim(session, 9).await.is_empty());
    world.apply(id, Command::Resume { by: None }).await;
    assert_eq!(world.claim(session, 9).await.len(), 1);
}

async fn a_failed_write_changes_nothing(mut world: World, gate: Arc<Gate>) {
    let flow = world.add_flow(line("flow", 2)).await;
    let (paused, cancelled) = (world.submit(&flow).await, world.submit(&flow).await);
    let before = [world.load(paused).await.task, world.load(cancelled).await.task];
    gate.close();
    let pause = world.decide(paused, &Command::Pause { by: None }).await;
    let pausing = begin(&mut world, vec![pause.into()]);
    let resume = world.decide(paused, &Command::Resume { by: None }).await;
    let cancel = world.decide(cancelled, &Command::Cancel { by: None }).await;
    let both = begin(&mut world, vec![resume.into(), cancel.into()]);
    let new = world.new_task(&flow, |_| {});
    let new_id = new.task.id;
    let submitting = begin(&mut world, vec![new.into()]);
    gate.fail();
    for committing in [pausing, both, submitting] {
        assert!(committing.await.is_err());
    }
    assert_eq!([world.load(paused).await.task, world.load(cancelled).await.task], before);
    assert!(world.find(new_id).await.is_none());
    let session = world.session(1).await;
    // A worker still has the report whose write failed, and names the attempt within the grace.
    assert!(world.claim(session, 9).await.is_empty());
    world.pass(ADOPTION_GRACE);
    let claimed = world.claim(session, 9).await;
    assert_eq!(tasks_of(&claimed), [paused, cancelled]);
    world.succeed(&claimed[0], None).await;
    assert_eq!(world.load(paused).await.task.state.steps[1].forward.state, ActState::Ready);
}

async fn what_workers_have_outlives_a_failed_write(mut world: World, gate: Arc<Gate>) {
    let flow = world.add_flow(line("flow", 1)).await;
    let id = world.submit(&flow).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    let claims = world.load(id).await.claims;
    gate.close();
    let new = world.new_task(&flow, |_| {});
    let submitting = begin(&mut world, vec![new.into()]);
    gate.fail();
    assert!(submitting.await.is_err());
    assert_eq!(world.load(id).await.claims, claims);
    assert!(world.claim(session, 9).await.is_empty());
    world.pass(Millis(crate::world::LEASE.0));
    assert_eq!(world.lost().await, std::slice::from_ref(&claimed));
    world.renew(session).await;
    assert!(world.succeed(&claimed, None).await.is_ended());
}

async fn what_was_just_reported_stays_with_its_worker(mut world: World, gate: Arc<Gate>) {
    let flow = world.add_flow(line("flow", 1)).await;
    let id = world.submit(&flow).await;
    let (session, other) = (world.session(1).await, world.session(2).await);
    let claimed = world.claim_one(session).await;
    let claims = world.load(id).await.claims;
    gate.close();
    let report = crate::world::report(&claimed, windlass_core::Outcome::Succeeded(None));
    let reported = world.decide(id, &report).await;
    let reporting = begin(&mut world, vec![reported.into()]);
    gate.fail();
    assert!(reporting.await.is_err());
    world.load_nothing().await;
    assert!(world.claim(other, 9).await.is_empty());
    world.pass(ADOPTION_GRACE);
    assert!(world.claim(other, 9).await.is_empty(), "the worker has it, and sends its report again");
    assert_eq!(world.load(id).await.claims, claims);
    let queues = world.store().queues().await.expect("reading queues succeeds");
    assert_eq!((queues[0].ready, queues[0].running), (0, 1));
    world.pass(crate::world::LEASE);
    assert_eq!(world.lost().await, std::slice::from_ref(&claimed), "it is the session's again");
    assert!(world.succeed(&claimed, None).await.is_ended());
}

async fn a_loss_that_was_not_written_is_told_again(mut world: World, gate: Arc<Gate>) {
    let flow = world.add_flow(line("flow", 1)).await;
    let id = world.submit(&flow).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    world.pass(LEASE);
    assert_eq!(tasks_of(&world.lost().await), [id]);
    let lost = world.decide(id, &Command::Lose(attempt(&claimed))).await;
    gate.close();
    let losing = begin(&mut world, vec![lost.into()]);
    assert!(world.lost().await.is_empty(), "it is on its way");
    gate.fail();
    assert!(losing.await.is_err());
    world.load_nothing().await;
    assert_eq!(tasks_of(&world.lost().await), [id]);
    assert_eq!(world.load(id).await.claims.len(), 1);
}

async fn what_is_handed_out_late_has_all_of_its_time(mut world: World, _gate: Arc<Gate>) {
    let flow = world.add_flow(line("flow", 1)).await;
    world.submit(&flow).await;
    let session = world.session(1).await;
    let begun = world.now;
    let timeout = flow.steps[0].run.timeout;
    world.pass(timeout);
    assert_eq!(world.due().await, []);
    // The call has waited this long.
    let claimed =
        claim(&*world.store(), session, &[claim_request("work", 1)], begun).await.expect("a claim succeeds");
    assert_eq!((claimed.len(), claimed[0].at), (1, world.now.wall));
    world.pass(Millis(timeout.0 - 1));
    assert_eq!(world.due().await, []);
    world.pass(Millis(1));
    assert_eq!(world.due().await, [Due::TimeOut(claimed[0].clone())]);
}

async fn a_decision_on_what_was_lost_conflicts(mut world: World, gate: Arc<Gate>) {
    let flow = world.add_flow(line("flow", 2)).await;
    let id = world.submit(&flow).await;
    gate.close();
    let pause = Command::Pause { by: None };
    let lost = world.decide(id, &pause).await;
    let pausing = begin(&mut world, vec![lost.into()]);
    let stale = world.decide(id, &Command::Resume { by: None }).await;
    gate.fail();
    assert!(pausing.await.is_err());
    // The task reaches the same version in another way.
    world.load_nothing().await;
    // A worker may have its attempt until the grace is over, and a pause waits for that one.
    assert_eq!(world.due().await, []);
    world.pass(ADOPTION_GRACE);
    assert_eq!(world.due().await, []);
    let task = world.apply(id, pause).await;
    assert_eq!(task.state.events, stale.before);
    assert_eq!(world.commit_one(stale).await, Outcome::Conflict);
    assert_eq!(world.load(id).await.task, task);
}

async fn a_task_of_a_flow_that_was_lost_conflicts(mut world: World, gate: Arc<Gate>) {
    gate.close();
    let created_at = world.now.wall;
    let flow = Arc::new(line("flow", 1));
    let applying = begin(&mut world, vec![Change::Flow(StoredFlow { flow: flow.clone(), created_at })]);
    gate.fail();
    assert!(applying.await.is_err());
    world.load_nothing().await;
    let new = world.new_task(&flow, |_| {});
    assert_eq!(world.commit_one(new.clone()).await, Outcome::Conflict, "nobody could read it again");
    world.add_flow(line("flow", 1)).await;
    assert_eq!(world.commit_one(new).await, Outcome::Committed);
}

async fn the_key_of_a_failed_submit_is_free(mut world: World, gate: Arc<Gate>) {
    let flow = world.add_flow(line("flow", 1)).await;
    let mut keyed = || {
        let key = SubmitKey { scope: [1; 32], fingerprint: [1; 32] };
        windlass_store::TaskChange { submit_key: Some(key), ..world.new_task(&flow, |_| {}) }
    };
    let (first, second) = (keyed(), keyed());
    let id = second.task.id;
    gate.close();
    let submitting = begin(&mut world, vec![first.into()]);
    gate.fail();
    assert!(submitting.await.is_err());
    world.load_nothing().await;
    assert_eq!(world.commit_one(second.clone()).await, Outcome::Committed);
    let taken = Outcome::KeyTaken { task: id, fingerprint: [1; 32] };
    assert_eq!(world.commit_one(second).await, taken);
}

async fn keys_are_found_by_lookups_around_a_failed_write(mut world: World, gate: Arc<Gate>) {
    let flow = world.add_flow(line("flow", 1)).await;
    let keyed = |world: &mut World, scope| {
        let key = SubmitKey { scope: [scope; 32], fingerprint: [1; 32] };
        windlass_store::TaskChange { submit_key: Some(key), ..world.new_task(&flow, |_| {}) }
    };
    gate.hold_reads();
    let before = keyed(&mut world, 1);
    let before = begin(&mut world, vec![before.into()]);
    gate.close();
    let failing = world.new_task(&flow, |_| {});
    let failing = begin(&mut world, vec![failing.into()]);
    gate.fail();
    assert!(failing.await.is_err());
    world.load_nothing().await;
    // Two lookups of a free unique key; the second one is answered and written while the first one is still in
    // progress.
    let (late, early) = (keyed(&mut world, 2), keyed(&mut world, 2));
    let id = early.task.id;
    let late = begin(&mut world, vec![late.into()]);
    let early = begin(&mut world, vec![early.into()]);
    gate.let_read_go(2);
    assert_eq!(early.await.expect("it is written"), [Outcome::Committed]);
    gate.let_read_go(0);
    let before = before.await.expect("nothing fails any more");
    assert_eq!(before, [Outcome::Conflict], "a lookup from before the failure is void");
    gate.let_read_go(0);
    let taken = Outcome::KeyTaken { task: id, fingerprint: [1; 32] };
    assert_eq!(late.await.expect("nothing fails any more"), [taken]);
}

async fn the_catalogue_forgets_what_was_not_written(mut world: World, gate: Arc<Gate>) {
    world.add_flow(line("flow", 1)).await;
    gate.close();
    let created_at = world.now.wall;
    let second = StoredFlow { flow: Arc::new(Flow { version: 2, ..line("flow", 2) }), created_at };
    let pause =
        QueueChange { name: crate::world::work(), paused: Some(QueuePause { at: created_at, by: None }) };
    let committing = begin(&mut world, vec![Change::Flow(second.clone()), Change::Queue(pause)]);
    gate.fail();
    assert!(committing.await.is_err());
    world.load_nothing().await;
    let newest = world.store().flow("flow", None).await.expect("reading flows succeeds");
    assert_eq!(newest.map(|stored| stored.flow.version), Some(1));
    assert!(world.store().queues().await.expect("reading queues succeeds").is_empty());
    assert_eq!(world.commit_one(Change::Flow(second)).await, Outcome::Committed);
}

async fn a_message_is_sent_and_consumed_when_it_is_written(mut world: World, gate: Arc<Gate>) {
    held(&mut world).await;
    let envelope = world.messages().await.remove(0);
    let raise = crate::storing::messages::delivery(&mut world, &envelope).await;
    gate.close();
    let raising = begin(&mut world, vec![Change::Alarm(raise.clone())]);
    gate.fail();
    assert!(raising.await.is_err());
    world.load_nothing().await;
    assert_eq!(world.messages().await, [envelope]);
    assert_eq!(world.commit_one(Change::Alarm(raise)).await, Outcome::Committed);
    assert_eq!(world.messages().await, []);
}
