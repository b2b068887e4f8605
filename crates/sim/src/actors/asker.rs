//! An operator who asks at random times why tasks are in their states.

use std::{pin::Pin, rc::Rc};

use windlass_core::TaskId;
use windlass_engine::EngineError;

use super::Live;
use crate::{
    answer::Answer,
    judge::Seen,
    kinds::Kind,
    world::{Host, World},
};

/// How long to wait for an answer.
const PATIENCE_MS: u64 = 4_000;

/// Asks as long as the world exists.
pub(crate) async fn ask_why(world: Rc<World>, person: usize) {
    loop {
        world.sleep(world.within(20..=400)).await;
        let task = world.judge.borrow().truth.any_task(&world);
        if let Some(task) = task {
            ask(&world, Host::Person(person), task.id).await;
        }
    }
}

/// Asks a random server why a task is in its state, and checks the answer against the truth. None without an
/// answer.
pub(super) async fn ask(world: &Rc<World>, host: Host, task: TaskId) -> Option<Rc<Answer>> {
    let server = usize::try_from(world.below(world.servers.count() as u64)).unwrap_or(0);
    let serve = move |live: Rc<Live>| -> Pin<Box<dyn Future<Output = Option<Rc<Answer>>>>> {
        Box::pin(async move {
            let (asked_at, now) = (live.world.now(), live.now());
            match live.engine.why(task, now).await {
                Ok((loaded, explanation)) => {
                    let answer = Rc::new(Answer { loaded, explanation, asked_at, now });
                    live.world.see(Seen::Explained(answer.clone()));
                    Some(answer)
                }
                Err(EngineError::Store(_)) => None,
                // The task was deleted after its end.
                Err(EngineError::UnknownTask(_))
                    if live.world.config.is(Kind::Sweeps)
                        && live
                            .world
                            .judge
                            .borrow()
                            .truth
                            .tasks
                            .get(&task)
                            .is_some_and(|known| known.task.is_ended()) =>
                {
                    None
                }
                Err(error) => {
                    let message = format!("asked why task {task} is where it is, a server says: {error}");
                    live.world.see(Seen::Unexplained { task, message });
                    None
                }
            }
        })
    };
    world.at_most(PATIENCE_MS, world.call(host, server, false, Rc::new(serve))).await?.ok()?
}
