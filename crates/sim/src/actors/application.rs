//! An application that enqueues tasks in transactions of its own, and the reader of what it enqueued.

use std::rc::Rc;

use async_trait::async_trait;
use windlass_core::{Input, Name, TaskId, Timestamp};
use windlass_engine::{
    EngineError, Submission,
    services::{ReadEnqueued, Unreadable},
};
use windlass_store::{Enqueued, Now, SubmitKey};

use super::submitter;
use crate::world::World;

/// The most tasks that are enqueued in a world.
const TASKS_MAX: u64 = 12;

/// In the keys of tasks that were enqueued, instead of the number of a submitter.
const SCOPE: u8 = 201;

/// Enqueues tasks of flows that are in the catalogue.
pub(crate) async fn enqueue_tasks(world: Rc<World>) {
    world.begin_to_submit();
    for _ in 0..world.within(1..=TASKS_MAX) {
        world.sleep(world.within(50..=2_000)).await;
        let known = world.judge.borrow().truth.any_task(&world);
        let Some(flow) = known.map(|task| task.flow.name.clone()) else { continue };
        // An id of the seventh version, as the functions of the database make them.
        let time = u128::from(1_700_000_000_000 + world.now());
        let random = u128::from(world.random()) & 0x3fff_ffff_ffff_ffff;
        let id = TaskId(time << 80 | 7 << 76 | 2 << 62 | random);
        let task = format!("{flow} {}", submitter::params(&world).as_str());
        world.count("task enqueued by an application");
        world.tell(|| format!("task {id} is enqueued: {task}"));
        world.servers.enqueue(id, task);
    }
    world.end_to_submit();
}

/// Reads a task as the application wrote it: its flow, and its parameters.
pub(super) struct Reader;

#[async_trait]
impl ReadEnqueued for Reader {
    async fn read(&self, enqueued: &Enqueued, now: Now) -> Result<Submission, Unreadable> {
        let unreadable = || Unreadable::Refused("it cannot be read".to_owned());
        let (flow, params) = enqueued.task.split_once(' ').ok_or_else(unreadable)?;
        let params = windlass_core::Json::parse(params).map_err(|_| unreadable())?;
        let mut scope = [SCOPE; 32];
        scope[..16].copy_from_slice(&enqueued.id.0.to_be_bytes());
        Ok(Submission {
            flow: Name::new(flow).map_err(|_| unreadable())?,
            version: None,
            input: Input::new(params, Timestamp(now.wall.0)),
            key: Some(SubmitKey { scope, fingerprint: scope }),
            fingerprint_before: None,
        })
    }

    async fn describe(&self, error: EngineError) -> String {
        error.to_string()
    }

    fn accepted(&self, _repeated: bool) {}
}
