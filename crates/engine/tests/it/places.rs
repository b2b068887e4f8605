//! How many attempts are before one in a queue, of which some are on disk only.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Waker},
};

use futures_executor::block_on;
use windlass_core::{ActKey, Command, Doer, Name, Retry, TaskId};
use windlass_engine::Committer;
use windlass_store::{
    Queries as _,
    memory::MemorySink,
    resident::{Batch, Front, Resident, RestPolicy, RowSink, Written},
};

use crate::world::{World, flow};

type Writes = Vec<(Arc<Batch>, Written)>;

/// A sink that holds writes while a test says so.
#[derive(Clone)]
struct Held {
    sink: MemorySink,
    /// The writes that are held; nothing while writes go through.
    held: Arc<Mutex<Option<Writes>>>,
}

impl Front for Held {
    fn behind(&self) -> &dyn RowSink {
        &self.sink
    }

    fn write(&self, batch: Arc<Batch>, written: Written) {
        match &mut *self.held.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(held) => held.push((batch, written)),
            None => self.sink.write(batch, written),
        }
    }
}

impl Held {
    fn hold(&self) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
    }

    fn let_go(&self) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        held.into_iter().flatten().for_each(|(batch, written)| self.sink.write(batch, written));
    }
}

#[test]
fn an_attempt_that_rests_is_counted_once_while_its_task_changes() {
    let sink = Held { sink: MemorySink::new([7; 32]), held: Arc::default() };
    let now = World::new().now();
    // The queue has two attempts in memory.
    let resident = block_on(Resident::open_with(Arc::new(sink.clone()), now, RestPolicy::EAGER)).unwrap();
    let store = Arc::new(resident);
    let world = World::over(store.clone(), 1);
    let mut flow = flow("f", &["a", "b"], 0);
    flow.steps[1].run.doer = Doer::Signal { name: Name::new("go").unwrap() };
    flow.steps[1].run.retry = Retry::default();
    flow.steps[1].rollback = None;
    world.apply(flow);
    let tasks: Vec<TaskId> = (0..8).map(|_| world.submit("f")).collect();
    let places = || -> Vec<Option<u64>> {
        tasks.iter().map(|id| block_on(store.place(*id, ActKey::forward(0))).unwrap()).collect()
    };
    let expected: Vec<Option<u64>> = (0..8).map(Some).collect();
    assert_eq!(places(), expected);

    // A signal arrives before the step that waits for it: the task changes, and its attempt stays where it is.
    let committer = Committer::new(world.engine.clone());
    let signal = Command::Signal { name: Name::new("go").unwrap(), params: None, keep: true, by: None };
    let mut told = pin!(world.engine.tell(tasks[5], signal));
    let mut context = Context::from_waker(Waker::noop());
    assert!(told.as_mut().poll(&mut context).is_pending());
    sink.hold();
    {
        let mut commit = pin!(committer.run_once(|| world.now()));
        assert!(commit.as_mut().poll(&mut context).is_pending(), "the write is held");
        assert_eq!(places(), expected, "the disk has the task as it was");
        sink.let_go();
        block_on(commit);
    }
    assert!(told.as_mut().poll(&mut context).is_ready());
    assert_eq!(places(), expected, "the disk has the task as it is");
}
