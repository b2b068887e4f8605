//! Items of fanned-out steps: every change of one item is there when the task is read again, with all other items
//! unchanged.

use std::sync::Arc;

use windlass_core::{
    ActKey, ActState, Command, Direction, Each, Ending, Flow, Json, Millis, OnFailure, OnPartial, Phase,
    Resolution, Task, TaskId, Wakeup,
};
use windlass_store::{
    ADOPTION_GRACE, Adoption, Claimed, Due, Loaded, Outcome, Retention, SessionId, TaskQuery,
};

use crate::{
    World,
    history::{decide, json, line},
    topic,
    world::{FIRST, report},
};

topic![
    members_are_there_at_every_point_and_their_results_in_the_order_of_the_list,
    members_are_undone_and_are_there_at_every_point,
    members_that_a_person_has_tried_again_are_there,
    members_that_all_wait_for_a_time_come_back_with_their_task,
    members_that_are_parked_come_back_with_their_task,
    reports_of_members_in_one_batch_are_all_there,
    members_go_with_their_task,
];

/// A step with items, two of which run concurrently, and one that gets their results.
fn fan(flow: &str) -> Flow {
    let mut flow = line(flow, 2);
    flow.steps[0].each = Some(Each { list: "items".into(), parallel: 2 });
    flow
}

async fn submit(world: &mut World, flow: &Arc<Flow>) -> TaskId {
    let params = json(r#"{"items": ["a", "b", "c", "d", "e"], "size": 3}"#);
    world.submit_with(flow, |input| input.params = params).await
}

/// After this time a failed attempt is retried.
const RETRY: Millis = Millis::from_secs(10);

/// The result of an item.
fn made(claimed: &Claimed) -> Option<Json> {
    Some(json(&format!(r#"{{"made": {}}}"#, claimed.id.key.member)))
}

fn member(number: u32) -> ActKey {
    FIRST.of_member(number)
}

/// The items of the first step whose executions are in this state.
fn standing(task: &Task, direction: Direction, state: ActState) -> Vec<u32> {
    let members = task.state.steps[0].members.as_ref().expect("the step was fanned out");
    members.iter().filter(|(_, member)| member.act(direction).state == state).map(|(n, _)| n).collect()
}

/// A worker that keeps its attempts when the store is reopened.
struct Worker {
    session: SessionId,
    has: Vec<Claimed>,
}

impl Worker {
    async fn new(world: &mut World) -> Self {
        Self { session: world.session(1).await, has: Vec::new() }
    }

    /// Claims ready attempts; returns the items of all its attempts.
    async fn take(&mut self, world: &mut World) -> Vec<u32> {
        self.has.extend(world.claim(self.session, 9).await);
        self.has.iter().map(|claimed| claimed.id.key.member).collect()
    }

    /// Removes and returns its attempt of this item.
    fn give(&mut self, member: u32) -> Claimed {
        let place = self.has.iter().position(|claimed| claimed.id.key.member == member);
        self.has.remove(place.expect("it has the member"))
    }

    async fn succeed(&mut self, world: &mut World, member: u32) -> Arc<Task> {
        let claimed = self.give(member);
        let task = world.succeed(&claimed, made(&claimed)).await;
        self.reopen(world, &task).await;
        task
    }

    async fn fail(&mut self, world: &mut World, member: u32) -> Arc<Task> {
        let claimed = self.give(member);
        let task = world.fail(&claimed).await;
        self.reopen(world, &task).await;
        task
    }

    /// Reopens the store: the task is unchanged, and the worker still has its attempts.
    async fn reopen(&mut self, world: &mut World, task: &Arc<Task>) {
        assert_eq!(world.load(task.id).await.task, *task);
        world.reopen().await;
        assert_eq!(world.load(task.id).await.task, *task);
        world.renew(self.session).await;
        let ids: Vec<_> = self.has.iter().map(|claimed| claimed.id).collect();
        let now = world.now;
        let adopted = world.store().adopt(self.session, &ids, now).await.expect("an adoption succeeds");
        assert_eq!(adopted, vec![Adoption::Held; ids.len()]);
        // The store detects the end of the grace when it is called.
        world.pass(ADOPTION_GRACE);
        world.due().await;
    }
}

async fn members_are_there_at_every_point_and_their_results_in_the_order_of_the_list(mut world: World) {
    let mut flow = fan("flow");
    flow.steps[0].run.retry.max = 1;
    let flow = world.add_flow(flow).await;
    let mut worker = Worker::new(&mut world).await;
    let id = submit(&mut world, &flow).await;
    assert_eq!(worker.take(&mut world).await, [1, 2]);
    worker.succeed(&mut world, 2).await;
    assert_eq!(worker.take(&mut world).await, [1, 3]);
    // An item that waits for a retry counts as open.
    worker.fail(&mut world, 1).await;
    worker.succeed(&mut world, 3).await;
    assert_eq!(worker.take(&mut world).await, [4]);
    world.pass(RETRY);
    assert_eq!(world.due().await, [Due::Wake { task: id, wakeup: Wakeup::Act(member(1)) }]);
    world.renew(worker.session).await;
    let task = world.apply(id, Command::Wake(Wakeup::Act(member(1)))).await;
    worker.reopen(&mut world, &task).await;
    worker.succeed(&mut world, 4).await;
    worker.take(&mut world).await;
    worker.succeed(&mut world, 5).await;
    let task = worker.succeed(&mut world, 1).await;
    let joined = json(r#"{"step0":[{"made": 1},{"made": 2},{"made": 3},{"made": 4},{"made": 5}]}"#);
    assert_eq!(task.act(FIRST).and_then(|act| act.result.as_ref()), Some(&joined));
    assert_eq!(worker.take(&mut world).await, [0], "the step after it is ready once");
    let task = worker.succeed(&mut world, 0).await;
    assert_eq!(task.state.phase, Phase::Ended(Ending::Succeeded));
    let events = world.store().events(id, 0, 1_000).await.expect("reading events succeeds");
    assert_eq!(events.len() as u64, task.state.events);
    let query = TaskQuery { limit: 9, ..TaskQuery::default() };
    let page = world.store().tasks(&query).await.expect("listing tasks succeeds");
    let listed = &page.items[0].task.state.steps[0];
    assert_eq!(listed.members.as_ref().map(|members| members.total()), Some(5));
}

async fn members_are_undone_and_are_there_at_every_point(mut world: World) {
    let flow = world.add_flow(fan("flow")).await;
    let mut worker = Worker::new(&mut world).await;
    submit(&mut world, &flow).await;
    worker.take(&mut world).await;
    worker.succeed(&mut world, 1).await;
    worker.take(&mut world).await;
    worker.succeed(&mut world, 2).await;
    assert_eq!(worker.take(&mut world).await, [3, 4]);
    let task = worker.fail(&mut world, 3).await;
    assert_eq!(task.state.phase, Phase::Backward, "the fourth is waited for");
    let mut task = worker.succeed(&mut world, 4).await;
    assert_eq!(standing(&task, Direction::Rollback, ActState::Ready), [3, 4]);
    for under_way in [vec![3, 4], vec![3, 2], vec![3, 1], vec![3]] {
        assert_eq!(worker.take(&mut world).await, under_way);
        task = worker.succeed(&mut world, under_way[under_way.len() - 1]).await;
    }
    assert_eq!(task.state.phase, Phase::Ended(Ending::RolledBack));
    assert_eq!(task.state.steps[0].members.as_ref().map(|members| members.begun()), Some(4));
}

async fn members_that_a_person_has_tried_again_are_there(mut world: World) {
    let mut flow = Flow { on_failure: OnFailure::Hold, ..fan("flow") };
    flow.steps[0].on_partial = OnPartial::AtLeast(1);
    let flow = world.add_flow(flow).await;
    let mut worker = Worker::new(&mut world).await;
    let id = submit(&mut world, &flow).await;
    for number in 1..=5 {
        worker.take(&mut world).await;
        worker.fail(&mut world, number).await;
    }
    assert!(world.load(id).await.task.state.stuck.is_some());
    let resolve = Command::Resolve { step: 0, resolution: Resolution::Retry(None), by: None };
    let task = world.apply(id, resolve).await;
    // Items that have not started again have changed as well.
    assert_eq!(standing(&task, Direction::Forward, ActState::Idle), [3, 4, 5]);
    worker.reopen(&mut world, &task).await;
    let mut task = task;
    for number in 1..=5 {
        worker.take(&mut world).await;
        task = worker.succeed(&mut world, number).await;
    }
    assert_eq!(task.act(FIRST).map(|act| act.state), Some(ActState::Succeeded));
}

async fn members_that_all_wait_for_a_time_come_back_with_their_task(mut world: World) {
    let mut flow = fan("flow");
    flow.steps[0].run.retry.max = 1;
    let flow = world.add_flow(flow).await;
    let mut worker = Worker::new(&mut world).await;
    let id = submit(&mut world, &flow).await;
    for number in [1, 2] {
        worker.take(&mut world).await;
        worker.succeed(&mut world, number).await;
    }
    worker.take(&mut world).await;
    worker.fail(&mut world, 4).await;
    let waiting = worker.fail(&mut world, 3).await;
    assert_eq!(world.due().await, []);
    world.pass(RETRY);
    assert_eq!(world.due().await.len(), 2);
    assert_eq!(world.load(id).await.task, waiting);
    world.renew(worker.session).await;
    for number in [4, 3] {
        let task = world.apply(id, Command::Wake(Wakeup::Act(member(number)))).await;
        worker.reopen(&mut world, &task).await;
    }
    assert_eq!(worker.take(&mut world).await, [4, 3]);
}

async fn members_that_are_parked_come_back_with_their_task(mut world: World) {
    let flow = world.add_flow(fan("flow")).await;
    let mut worker = Worker::new(&mut world).await;
    let id = submit(&mut world, &flow).await;
    worker.take(&mut world).await;
    worker.succeed(&mut world, 1).await;
    let paused = world.apply(id, Command::Pause { by: None }).await;
    worker.reopen(&mut world, &paused).await;
    let paused = worker.succeed(&mut world, 2).await;
    assert_eq!(standing(&paused, Direction::Forward, ActState::Parked), [3, 4]);
    assert!(worker.take(&mut world).await.is_empty());
    let resumed = world.apply(id, Command::Resume { by: None }).await;
    worker.reopen(&mut world, &resumed).await;
    assert_eq!(worker.take(&mut world).await, [3, 4]);
}

async fn reports_of_members_in_one_batch_are_all_there(mut world: World) {
    let flow = world.add_flow(fan("flow")).await;
    let mut worker = Worker::new(&mut world).await;
    let id = submit(&mut world, &flow).await;
    worker.take(&mut world).await;
    let mut loaded = world.load(id).await;
    let mut changes = Vec::new();
    for number in [2, 1] {
        let claimed = worker.give(number);
        let command = report(&claimed, windlass_core::Outcome::Succeeded(made(&claimed)));
        let change = decide(&loaded, &command, world.now.wall).expect("the rules allow it");
        loaded = Loaded { task: change.task.clone(), ..loaded };
        changes.push(change.into());
    }
    assert_eq!(world.commit(changes).await, vec![Outcome::Committed; 2]);
    worker.reopen(&mut world, &loaded.task).await;
    assert_eq!(worker.take(&mut world).await, [3, 4]);
}

async fn members_go_with_their_task(mut world: World) {
    let flow = world.add_flow(fan("flow")).await;
    let mut worker = Worker::new(&mut world).await;
    let (old, id) = (submit(&mut world, &flow).await, submit(&mut world, &flow).await);
    world.apply(old, Command::Cancel { by: None }).await;
    let kept = world.load(id).await.task;
    let retention = Retention {
        tasks: Millis::from_secs(60),
        logs: Millis::from_secs(60),
        audit: Millis::from_secs(60),
        keeps_unannounced: false,
        messages_until: None,
    };
    world.pass(Millis::from_secs(60));
    for _ in 0..100 {
        let now = world.now;
        if world.store().sweep(&retention, None, now, 2).await.expect("a sweep succeeds") == 0 {
            break;
        }
    }
    assert!(world.find(old).await.is_none());
    worker.reopen(&mut world, &kept).await;
    // A later task has nothing of the deleted one.
    let new = submit(&mut world, &flow).await;
    let task = world.load(new).await.task;
    worker.reopen(&mut world, &task).await;
}
