//! A client that submits tasks and repeats calls until they are answered.

use std::{pin::Pin, rc::Rc};

use windlass_core::{Actor, Flow, Input, Json, TaskId, Timestamp};
use windlass_engine::{EngineError, Submission};
use windlass_store::SubmitKey;

use super::Live;
use crate::{
    flows,
    judge::Seen,
    kinds::Kind,
    world::{Host, World},
};

/// The most tasks in one call.
const BATCH_MAX: u64 = 8;

/// A task to submit, with its own flow, if it brings one.
#[derive(Clone)]
struct Order {
    submission: Submission,
    brought: Option<Flow>,
    /// Its unique key, which duplicate tasks share.
    same: Option<Box<str>>,
}

type Answers = Vec<Result<TaskId, EngineError>>;

/// How often a call is repeated before the submitter gives up.
const TRIES_MAX: u32 = 40;

/// How long to wait for an answer.
const PATIENCE_MS: u64 = 4_000;

/// Applies flows, then submits tasks.
pub(crate) async fn submit_tasks(world: Rc<World>, person: usize, count: u64) {
    world.begin_to_submit();
    submit_to_the_last(&world, person, count).await;
    world.end_to_submit();
}

async fn submit_to_the_last(world: &Rc<World>, person: usize, count: u64) {
    let host = Host::Person(person);
    let flow = flows::draw(world, person);
    let applied = {
        let flow = flow.clone();
        until_answered(world, host, move |live| {
            let flow = flow.clone();
            Box::pin(async move { live.engine.apply_flow(flow, live.now()).await })
        })
        .await
    };
    if applied.is_none() {
        return;
    }
    let at_once = world.chance(200);
    let (mut batch, mut adhoc) = (Vec::new(), None);
    for number in 0..count {
        // Some submit all their tasks at once.
        if !at_once {
            world.sleep(world.within(0..=1500)).await;
        }
        let brings = world.config.is(Kind::AdHoc) && world.chance(300);
        if brings && (adhoc.is_none() || world.chance(600)) {
            adhoc = Some(flows::draw_adhoc(world, person));
        }
        let brought = adhoc.clone().filter(|_| brings);
        let flow = brought.as_ref().unwrap_or(&flow);
        let submission = Submission {
            flow: flow.name.clone(),
            version: None,
            input: input(world),
            key: world.chance(700).then(|| key(person, number)),
            fingerprint_before: None,
        };
        let same = flow.unique.as_ref().and_then(|_| flows::unique_key(&submission.input.params));
        let is_unique = flow.unique.is_some();
        let order = Order { submission, brought, same };
        // Sometimes a duplicate is submitted concurrently.
        if is_unique && world.chance(250) {
            let (here, mut twin) = (world.clone(), order.clone());
            twin.submission.key = None;
            world.begin_to_submit();
            world.spawn(host, async move {
                submit(&here, host, vec![twin]).await;
                here.end_to_submit();
            });
        }
        batch.push(order);
        let is_full = batch.len() as u64 >= BATCH_MAX || number + 1 == count;
        if is_full || !world.config.is(Kind::Batches) || world.chance(400) {
            submit(world, host, std::mem::take(&mut batch)).await;
        }
    }
}

/// Submits in one call. Tasks with a key are submitted again until they are answered, and sometimes once
/// more.
async fn submit(world: &Rc<World>, host: Host, orders: Vec<Order>) {
    let with_keys = |orders: Vec<Order>| -> Vec<Order> {
        orders.into_iter().filter(|order| order.submission.key.is_some()).collect()
    };
    let mut left = submit_once(world, host, orders.clone()).await;
    for _ in 0..TRIES_MAX {
        left = with_keys(left);
        if left.is_empty() {
            break;
        }
        world.sleep(world.within(50..=1000)).await;
        left = submit_once(world, host, left).await;
    }
    let again = with_keys(orders);
    if !again.is_empty() && world.chance(200) {
        submit_once(world, host, again).await;
    }
}

/// Submits tasks in one call. Repeats it until it is answered if all have keys. Returns the tasks to submit
/// again.
async fn submit_once(world: &Rc<World>, host: Host, orders: Vec<Order>) -> Vec<Order> {
    let tries = if orders.iter().all(|order| order.submission.key.is_some()) { TRIES_MAX } else { 1 };
    let asked = orders.clone();
    let answer = repeat(world, host, tries, move |live: Rc<Live>| {
        Box::pin(serve(live, asked.clone())) as Pin<Box<dyn Future<Output = Result<Answers, EngineError>>>>
    })
    .await;
    let Some(Ok(answers)) = answer else {
        world.count(if answer.is_some() { "submit refused" } else { "submit without answer" });
        return Vec::new();
    };
    if orders.len() > 1 {
        world.count("batch of submits answered");
    }
    let mut again = Vec::new();
    for (order, answer) in orders.into_iter().zip(answers) {
        match answer {
            Ok(task) => {
                world.count(if order.brought.is_some() {
                    "task accepted, with a flow"
                } else {
                    "task accepted"
                });
                world.tell(|| format!("task {task} is accepted"));
                let key = order.submission.key.map(|key| key.scope);
                world.see(Seen::Accepted { task, key, same: order.same });
            }
            Err(error) if may_pass(&error) => again.push(order),
            Err(EngineError::UnknownFlow(_)) => world.count("submit refused: no such flow"),
            Err(_) => world.count("submit refused"),
        }
    }
    again
}

/// Like the API: a task is created when its call arrives, and flows that tasks bring are stored before the tasks are
/// accepted.
async fn serve(live: Rc<Live>, mut orders: Vec<Order>) -> Result<Answers, EngineError> {
    for order in &mut orders {
        order.submission.input.created_at = live.now().wall;
        if let Some(flow) = order.brought.clone() {
            let applied = live.engine.apply_flow(flow, live.now()).await?;
            order.submission.version = Some(applied.stored.flow.version);
        }
    }
    let submissions = orders.into_iter().map(|order| order.submission).collect();
    let accepted = live.engine.submit_all(submissions, live.now()).await?;
    Ok(accepted.into_iter().map(|accepted| Ok(accepted?.loaded.task.id)).collect())
}

/// Whether the same call may succeed a little later.
fn may_pass(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Store(_)
            | EngineError::Overloaded
            | EngineError::Conflict
            | EngineError::KeyWithoutTask { .. }
    )
}

/// Calls random servers until one has done it.
pub(super) async fn until_answered<T: 'static>(
    world: &Rc<World>,
    host: Host,
    ask: impl Fn(Rc<Live>) -> Pin<Box<dyn Future<Output = Result<T, EngineError>>>> + 'static,
) -> Option<T> {
    repeat(world, host, TRIES_MAX, ask).await?.ok()
}

/// Calls random servers until one has answered; repeats the call after temporary errors.
pub(super) async fn repeat<T: 'static>(
    world: &Rc<World>,
    host: Host,
    tries: u32,
    ask: impl Fn(Rc<Live>) -> Pin<Box<dyn Future<Output = Result<T, EngineError>>>> + 'static,
) -> Option<Result<T, EngineError>> {
    let ask = Rc::new(ask);
    for _ in 0..tries {
        let server = usize::try_from(world.below(world.servers.count() as u64)).unwrap_or(0);
        match world.at_most(PATIENCE_MS, world.call(host, server, false, ask.clone())).await {
            Some(Ok(Err(error))) if !may_pass(&error) => return Some(Err(error)),
            Some(Ok(Ok(answer))) => return Some(Ok(answer)),
            Some(_) | None => world.sleep(world.within(50..=1000)).await,
        }
    }
    None
}

fn key(person: usize, number: u64) -> SubmitKey {
    let mut scope = [0; 32];
    scope[0] = u8::try_from(person).unwrap_or(u8::MAX);
    scope[1..9].copy_from_slice(&number.to_be_bytes());
    SubmitKey { scope, fingerprint: scope }
}

fn input(world: &World) -> Input {
    let begin = 1_700_000_000_000 + i64::try_from(world.now()).unwrap_or(0);
    let later = i64::try_from(world.below(5000)).unwrap_or(0);
    Input {
        priority: if world.chance(200) { 5 } else { 0 },
        at: world.chance(150).then_some(Timestamp(begin + later)),
        by: Some(Actor { name: "submitter".into(), claimed: true }),
        ..Input::new(params(world), Timestamp(begin))
    }
}

/// A size and a list; sometimes the list is missing, or has another type.
pub(super) fn params(world: &World) -> Json {
    let size = world.below(5);
    let list: Vec<String> = (0..world.within(0..=flows::LIST_MAX)).map(|item| item.to_string()).collect();
    let text = match world.below(40) {
        0 => format!("{{\"size\":{size}}}"),
        1 => format!("{{\"size\":{size},\"list\":\"none\"}}"),
        _ => format!("{{\"size\":{size},\"list\":[{}]}}", list.join(",")),
    };
    Json::parse(&text).unwrap_or_else(|error| panic!("{text}: {error:?}"))
}
