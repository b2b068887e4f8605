//! Tasks whose parameters and results are on disk only are read in portions: by pages of lists, by commits, and where
//! attempts are handed out again.

use std::{
    collections::BTreeSet,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Waker},
};

use futures_executor::block_on;
use windlass_core::{Command, Name, TaskId};
use windlass_engine::{Committer, Exchange};
use windlass_store::{
    ClaimRequest, Page, ParamFilter, SessionId, Store, StoreError, SubmitKey, TaskQuery,
    memory::MemorySink,
    resident::{BodyPolicy, Front, Resident, RestPolicy, RowSink},
};

use crate::world::{WorkerInWorld, World, flow};

/// More than are read at once.
const MANY: usize = 40;

/// Tasks that are read at once.
const AT_ONCE: usize = 16;

/// A sink that counts reads.
struct Counted {
    sink: MemorySink,
    reads: Arc<AtomicUsize>,
}

impl Front for Counted {
    fn behind(&self) -> &dyn RowSink {
        &self.sink
    }

    fn read<T: Send>(
        &self,
        read: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> impl Future<Output = Result<T, StoreError>> + Send {
        self.reads.fetch_add(1, Ordering::Relaxed);
        read
    }
}

/// A store that keeps no parameters in memory.
struct Bare {
    store: Arc<dyn Store>,
    world: World,
    reads: Arc<AtomicUsize>,
}

impl Bare {
    fn new() -> Self {
        let reads = Arc::<AtomicUsize>::default();
        let sink = Counted { sink: MemorySink::new([7; 32]), reads: reads.clone() };
        // Tasks do not rest, however many are ready.
        let rest = RestPolicy { bodies: BodyPolicy::NONE, head: 100_000, ..RestPolicy::default() };
        let store = block_on(Resident::open_with(Arc::new(sink), World::new().now(), rest)).unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        let world = World::over(store.clone(), 1);
        world.apply(flow("f", &["a"], 0));
        Self { store, world, reads }
    }

    /// Tasks with the parameter `n` from 0 on, each with an idempotency key.
    fn submit(&self, count: usize) -> Vec<TaskId> {
        self.submit_large(count, 0)
    }

    /// As [`Self::submit`], with this many bytes in another parameter.
    fn submit_large(&self, count: usize, bytes: usize) -> Vec<TaskId> {
        let text = "x".repeat(bytes);
        let submit = |n| {
            let key = SubmitKey { scope: scope(n), fingerprint: [0; 32] };
            let params = format!(r#"{{"n": {n}, "text": "{text}"}}"#);
            self.world.try_submit("f", &params, Some(key)).unwrap().loaded.task.id
        };
        (0..count).map(submit).collect()
    }

    /// A page, and how often the disk was read for it.
    fn page(&self, query: &TaskQuery) -> (Vec<TaskId>, Option<TaskId>, usize) {
        self.reads.store(0, Ordering::Relaxed);
        let Page { items, next } = block_on(self.store.tasks(query)).unwrap();
        let is_right = |params: &str| if query.brief { params.is_empty() } else { params.contains("\"n\"") };
        assert!(items.iter().all(|loaded| {
            is_right(if loaded.task.input.params.is_empty() { "" } else { loaded.task.input.params.as_str() })
        }));
        let ids = items.iter().map(|loaded| loaded.task.id).collect();
        (ids, next, self.reads.load(Ordering::Relaxed))
    }
}

fn scope(n: usize) -> [u8; 32] {
    let mut scope = [0; 32];
    scope[..8].copy_from_slice(&n.to_le_bytes());
    scope
}

fn n_is(n: usize) -> TaskQuery {
    let params = vec![ParamFilter::new("n", &n.to_string()).unwrap()];
    TaskQuery { params, limit: 3, brief: true, ..TaskQuery::default() }
}

#[test]
fn a_page_by_a_parameter_goes_on_until_it_is_full() {
    let bare = Bare::new();
    let tasks = bare.submit(MANY);
    for brief in [true, false] {
        let found = bare.page(&TaskQuery { brief, ..n_is(0) });
        // Those that have ended, those that rest, and the others in portions.
        assert_eq!(found, (vec![tasks[0]], None, 2 + MANY.div_ceil(AT_ONCE)));
        // The page is full before all were looked at.
        let (ids, next, _) = bare.page(&TaskQuery { brief, limit: 1, ..n_is(20) });
        assert_eq!(ids, [tasks[20]]);
        let before = next.expect("there are older tasks");
        assert!(before <= tasks[20]);
        let rest = bare.page(&TaskQuery { brief, limit: 1, before: Some(before), ..n_is(20) });
        assert_eq!((rest.0, rest.1), (vec![], None));
    }
}

#[test]
fn a_page_by_a_parameter_ends_after_10000_tasks() {
    let bare = Bare::new();
    let tasks = bare.submit(10_001);
    let (ids, next, reads) = bare.page(&n_is(0));
    assert_eq!((ids, next), (vec![], Some(tasks[1])));
    assert_eq!(reads, 2 + 10_000_usize.div_ceil(AT_ONCE));
    let (ids, next, _) = bare.page(&TaskQuery { before: next, ..n_is(0) });
    assert_eq!((ids, next), (vec![tasks[0]], None));
}

#[test]
fn a_page_by_idempotency_keys_reads_tasks_in_portions_until_it_is_full() {
    let bare = Bare::new();
    let tasks = bare.submit(MANY);
    let scopes = Some((0..MANY).map(scope).collect());
    let newest_first: Vec<TaskId> = tasks.iter().rev().copied().collect();
    let query = TaskQuery { scopes, limit: 100, ..TaskQuery::default() };
    let lookup = 1;
    assert_eq!(bare.page(&query), (newest_first.clone(), None, lookup + MANY.div_ceil(AT_ONCE)));
    let (ids, next, reads) = bare.page(&TaskQuery { limit: 20, ..query.clone() });
    assert_eq!((ids, next), (newest_first[..20].to_vec(), Some(newest_first[19])));
    assert_eq!(reads, lookup + 21_usize.div_ceil(AT_ONCE));
    // Without parameters nothing needs to be read.
    assert_eq!(bare.page(&TaskQuery { brief: true, ..query }), (newest_first, None, lookup));
}

#[test]
fn a_commit_decides_the_oldest_commands_first() {
    let bare = Bare::new();
    // A commit loads what memory is to hold, and one portion more.
    let tasks = bare.submit_large(MANY, 1 << 20);
    let engine = &bare.world.engine;
    let tell = |id: &TaskId| {
        let id = *id;
        Box::pin(async move { engine.tell(id, Command::Pause { by: None }).await.is_ok() })
    };
    // The newest task first.
    let mut commands: Vec<Pin<Box<_>>> = tasks.iter().rev().map(tell).collect();
    // Which of the open commands were answered since the last call.
    let mut answered = || {
        let mut context = Context::from_waker(Waker::noop());
        let polled = commands.iter_mut().map(|command| command.as_mut().poll(&mut context).is_ready());
        let polled: Vec<bool> = polled.collect();
        let answered: Vec<usize> = (0..polled.len()).filter(|index| polled[*index]).collect();
        let mut polled = polled.into_iter();
        commands.retain(|_| polled.next() == Some(false));
        answered
    };
    assert_eq!(answered(), Vec::<usize>::new());
    let committer = Committer::new(engine.clone());
    for decided in [AT_ONCE, AT_ONCE, MANY - 2 * AT_ONCE] {
        block_on(committer.run_once(|| bare.world.now()));
        assert_eq!(answered(), (0..decided).collect::<Vec<_>>());
    }
}

/// A call of a worker that takes as many attempts as there are.
fn wide(worker: &mut WorkerInWorld<'_>) -> Exchange {
    let claim_requests = vec![ClaimRequest { module: Name::new("m").unwrap(), commands: None, free: 100 }];
    Exchange { claim_requests: Some(claim_requests), ..worker.call(0) }
}

#[test]
fn attempts_that_must_not_start_do_not_delay_those_that_are_handed_out_again() {
    let bare = Bare::new();
    let tasks = bare.submit(MANY);
    let world = &bare.world;
    let mut worker = world.worker(1);
    let mut take = || {
        let attempts = world.drive(world.engine.exchange(wide(&mut worker), world.now())).unwrap().attempts;
        attempts.into_iter().map(|attempt| attempt.id.task).collect::<BTreeSet<TaskId>>()
    };
    // The answers do not reach the worker.
    assert_eq!(take().len(), MANY);
    let (stale, current) = tasks.split_at(20);
    for id in stale {
        world.drive(world.engine.tell(*id, Command::Cancel { by: None })).unwrap();
    }
    let expected: BTreeSet<TaskId> = current[..AT_ONCE].iter().copied().collect();
    assert_eq!(take(), expected);
    // After the second poll that does not name them nobody has the others any more.
    assert_eq!(take(), expected);
    let held = block_on(bare.store.held(SessionId(1))).unwrap();
    assert_eq!(held.iter().map(|claimed| claimed.id.task).collect::<Vec<_>>(), current);
}
