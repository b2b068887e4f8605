//! An operator who sends one command to many tasks in one call.

use std::{pin::Pin, rc::Rc};

use windlass_core::{Actor, Command, TaskId};
use windlass_engine::EngineError;

use super::{Live, submitter::repeat};
use crate::world::{Host, World};

/// The most tasks of one call.
const TASKS_MAX: u64 = 10;

type Telling = Pin<Box<dyn Future<Output = Result<usize, EngineError>>>>;

/// Sends commands to many tasks until the world is calm.
pub(crate) async fn command_many(world: Rc<World>, person: usize) {
    while !world.is_calm() {
        world.sleep(world.within(500..=3_000)).await;
        let count = world.within(1..=TASKS_MAX);
        let tasks: Vec<TaskId> = {
            let judge = world.judge.borrow();
            (0..count).filter_map(|_| judge.truth.any_task(&world)).map(|task| task.id).collect()
        };
        if world.is_calm() || tasks.is_empty() {
            continue;
        }
        let by = Some(Actor { name: "bulk".into(), claimed: true });
        let command = match world.below(10) {
            0 => Command::Cancel { by },
            1..=4 => Command::Pause { by },
            _ => Command::Resume { by },
        };
        world.tell(|| format!("somebody asks for {command:?} of {tasks:?}"));
        let told = repeat(&world, Host::Person(person), 3, move |live: Rc<Live>| {
            let (tasks, command) = (tasks.clone(), command.clone());
            Box::pin(async move {
                let answers = live.engine.tell_all(&tasks, &command).await?;
                Ok(answers.iter().filter(|answer| answer.is_ok()).count())
            }) as Telling
        })
        .await;
        if let Some(Ok(1..)) = told {
            world.count("command: given to many tasks");
        }
    }
}
