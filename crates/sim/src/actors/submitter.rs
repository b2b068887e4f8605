//! Somebody who submits tasks and repeats a call until it is answered.

use std::{pin::Pin, rc::Rc};

use windlass_core::{Actor, Input, Json, TaskId, Timestamp};
use windlass_engine::{EngineError, Submission, ports::SubmitKey};

use super::Live;
use crate::{
    flows,
    judge::Seen,
    world::{Host, World},
};

/// How often a call is repeated before the submitter gives up.
const TRIES_MAX: u32 = 40;

/// How long an answer is waited for.
const PATIENCE_MS: u64 = 4_000;

/// Puts flows in the catalogue, then submits tasks.
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
    for number in 0..count {
        // Some submit all of theirs at once.
        if !at_once {
            world.sleep(world.within(0..=1500)).await;
        }
        let submission = Submission {
            flow: flow.name.clone(),
            version: None,
            input: input(world),
            key: world.chance(700).then(|| key(person, number)),
            fingerprint_before: None,
        };
        let is_unique = flow.unique.is_some();
        // Now and then one that is the same comes at the same time.
        if is_unique && world.chance(250) {
            let (here, twin) = (world.clone(), Submission { key: None, ..submission.clone() });
            world.begin_to_submit();
            world.spawn(host, async move {
                submit(&here, host, twin, true).await;
                here.end_to_submit();
            });
        }
        submit(world, host, submission, is_unique).await;
    }
}

async fn submit(world: &Rc<World>, host: Host, submission: Submission, is_unique: bool) {
    let times = if submission.key.is_some() && world.chance(200) { 2 } else { 1 };
    let same = is_unique.then(|| flows::unique_key(&submission.input.params)).flatten();
    for _ in 0..times {
        let key = submission.key.clone();
        let tries = if key.is_some() { TRIES_MAX } else { 1 };
        let submission = submission.clone();
        let answer = repeat(world, host, tries, move |live: Rc<Live>| {
            let submission = submission.clone();
            Box::pin(async move {
                let accepted = live.engine.submit(submission, live.now()).await;
                accepted.map(|accepted| accepted.loaded.task.id)
            }) as Pin<Box<dyn Future<Output = Result<TaskId, EngineError>>>>
        })
        .await;
        match answer {
            Some(Ok(task)) => {
                world.count("task accepted");
                world.tell(|| format!("task {task} is accepted"));
                world.see(Seen::Accepted { task, key: key.map(|key| key.scope), same: same.clone() });
            }
            Some(Err(_)) => world.count("submit refused"),
            None => world.count("submit without answer"),
        }
    }
}

/// Calls any server until one has done it.
pub(super) async fn until_answered<T: 'static>(
    world: &Rc<World>,
    host: Host,
    ask: impl Fn(Rc<Live>) -> Pin<Box<dyn Future<Output = Result<T, EngineError>>>> + 'static,
) -> Option<T> {
    repeat(world, host, TRIES_MAX, ask).await?.ok()
}

/// Calls any server until one has answered, but for errors that pass.
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
            Some(Ok(Err(
                EngineError::Store(_)
                | EngineError::Overloaded
                | EngineError::Conflict
                | EngineError::KeyWithoutTask { .. },
            )))
            | Some(Err(_))
            | None => world.sleep(world.within(50..=1000)).await,
            Some(Ok(answer)) => return Some(answer),
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

/// A size and a list; now and then there is no list, or something else in its place.
fn params(world: &World) -> Json {
    let size = world.below(5);
    let list: Vec<String> = (0..world.within(0..=flows::LIST_MAX)).map(|item| item.to_string()).collect();
    let text = match world.below(40) {
        0 => format!("{{\"size\":{size}}}"),
        1 => format!("{{\"size\":{size},\"list\":\"none\"}}"),
        _ => format!("{{\"size\":{size},\"list\":[{}]}}", list.join(",")),
    };
    Json::parse(&text).unwrap_or_else(|error| panic!("{text}: {error:?}"))
}
