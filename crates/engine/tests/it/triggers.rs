//! Triggers that fire by themselves: once for each instant, whatever happens to servers and clocks.

use std::{collections::BTreeMap, pin::pin, sync::Arc};

use futures_executor::block_on;
use windlass_core::{
    CatchUp, Command, Instants as _, Json, Millis, Name, Overlap, SPAN_MAX, Task, Timestamp, Timing,
    TriggerDefinition, TriggerSchedule, TriggerSource, TriggeredFlow,
};
use windlass_engine::{EngineError, TriggerOutcome, rfc3339, services::TriggerKeeper};
use windlass_schedule::Schedule;
use windlass_store::{
    Change, Now, Queries as _, RecordChange, RecordKind, Store as _, StoreError, TaskQuery,
    memory::{MemorySink, SharedStore},
    resident::Resident,
};

use crate::world::{World, flow};

const HOUR_MS: i64 = 3_600_000;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn definition(timing: Timing, catch_up: CatchUp, overlap: Overlap) -> TriggerDefinition {
    let schedule = TriggerSchedule { timing, jitter: Millis(0), catch_up, overlap };
    let flow = TriggeredFlow {
        flow: name("f"),
        params: Json::empty(),
        map: BTreeMap::new(),
        labels: BTreeMap::new(),
        priority: 0,
    };
    TriggerDefinition { source: TriggerSource::Schedule(schedule), flows: vec![flow], classic: false }
}

fn every(seconds: u64) -> Timing {
    Timing::Every { interval: Millis::from_secs(seconds) }
}

impl World {
    fn apply_trigger(&self, trigger: &str, definition: TriggerDefinition) {
        self.drive(self.engine.apply_trigger(name(trigger), definition, self.now())).unwrap();
    }

    /// Time passes, and then the keeper has a round.
    fn keep_after(&self, keeper: &TriggerKeeper, ms: i64) {
        self.be_away_unserved(ms);
        self.drive(keeper.run_once(self.now())).unwrap();
    }

    /// The tasks of a trigger, oldest first.
    fn triggered(&self, trigger: &str) -> Vec<Arc<Task>> {
        let labels = BTreeMap::from([("trigger".to_owned(), trigger.to_owned())]);
        let query = TaskQuery { labels, limit: 10_000, ..TaskQuery::default() };
        let page = block_on(self.engine.tasks(&query)).unwrap();
        page.items.into_iter().rev().map(|loaded| loaded.task).collect()
    }
}

/// The instants of tasks, as their labels name them.
fn instants(tasks: &[Arc<Task>]) -> Vec<&str> {
    let mut instants: Vec<_> = tasks.iter().map(|task| task.input.labels["instant"].as_str()).collect();
    instants.sort_unstable();
    instants
}

#[test]
fn three_servers_that_die_and_whose_clocks_jump_by_an_hour_fire_each_instant_once() {
    let store = SharedStore::new([7; 32]);
    let servers: Vec<_> = (1..=3).map(|random| World::over(Arc::new(store.clone()), random)).collect();
    servers[0].apply(flow("f", &["a"], 0));
    let timing = Timing::Cron { expression: "*/5 * * * *".into(), timezone: "Europe/Berlin".into() };
    let all = CatchUp::All { within: SPAN_MAX };
    servers[0].apply_trigger("ticks", definition(timing.clone(), all, Overlap::Allow));
    let since = servers[0].now().wall;

    let mut random = 1_u64;
    let mut below = |most: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % most
    };
    let mut died = 0;
    for _ in 0..400 {
        // Longer than a service lease: the next one may lead.
        servers.iter().for_each(|server| server.be_away_unserved(120_000));
        let server = &servers[usize::try_from(below(3)).unwrap()];
        server.be_heard();
        let jump = [0, 0, HOUR_MS, -HOUR_MS][usize::try_from(below(4)).unwrap()];
        let now = Now { wall: Timestamp(server.now().wall.0 + jump), ..server.now() };
        let keeper = TriggerKeeper::new(server.engine.clone());
        let mut round = pin!(keeper.run_once(now));
        // It dies in the middle of its round, or comes to its end.
        let ended = (0..below(20)).any(|_| server.turn(round.as_mut()).is_ready());
        died += u32::from(!ended);
    }
    assert!(died > 50, "some died: {died}");
    let last = &servers[0];
    last.be_away_unserved(2 * HOUR_MS);
    last.be_heard();
    let keeper = TriggerKeeper::new(last.engine.clone());
    last.keep_after(&keeper, 0);
    let report = last.drive(last.engine.trigger(&name("ticks"), last.now())).unwrap();
    assert!(last.now().wall - report.trigger.decided < Millis(300_000), "nothing is left to fire");

    let schedule = Schedule::of(&timing, since).unwrap();
    let next = |time: &Timestamp| schedule.next_after(*time).filter(|next| *next <= report.trigger.decided);
    let expected: Vec<_> = std::iter::successors(next(&since), next).map(rfc3339).collect();
    assert!(expected.len() > 150);
    assert_eq!(instants(&last.triggered("ticks")), expected);
}

#[test]
fn a_queued_instant_is_fired_when_the_earlier_task_has_ended() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    world.apply_trigger("queue", definition(every(10), CatchUp::None, Overlap::Queue));
    let keeper = TriggerKeeper::new(world.engine.clone());
    world.keep_after(&keeper, 10_000);
    world.keep_after(&keeper, 10_000);
    world.keep_after(&keeper, 10_000);
    let tasks = world.triggered("queue");
    assert_eq!(tasks.len(), 1);
    let report = world.drive(world.engine.trigger(&name("queue"), world.now())).unwrap();
    assert_eq!(report.trigger.waiting.len(), 2);
    let cancel = Command::Cancel { by: None };
    world.drive(world.engine.tell(tasks[0].id, cancel)).unwrap();
    // It looks again each second.
    world.keep_after(&keeper, 1_000);
    let tasks = world.triggered("queue");
    assert_eq!(instants(&tasks), ["2023-11-14T22:13:30Z", "2023-11-14T22:13:40Z"]);
    assert!(!tasks[1].is_ended());
    let history = world.drive(world.engine.trigger_history(&name("queue"), None, 10)).unwrap();
    let outcomes: Vec<_> = history.iter().map(|(_, _, entry)| entry.outcome).collect();
    use TriggerOutcome::{Fired, Queued};
    assert_eq!(outcomes, [Fired, Queued, Queued, Fired]);
}

#[test]
fn a_definition_that_changes_while_an_instant_is_fired_does_not_fire_it_twice() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    let before = definition(every(10), CatchUp::None, Overlap::Allow);
    world.apply_trigger("t", before.clone());
    world.be_away_unserved(10_000);
    let keeper = TriggerKeeper::new(world.engine.clone());
    let mut after = before;
    after.flows[0].params = Json::parse(r#"{"a":1}"#).unwrap();
    {
        let mut round = pin!(keeper.run_once(world.now()));
        while world.triggered("t").is_empty() {
            assert!(world.turn(round.as_mut()).is_pending());
        }
        world.apply_trigger("t", after);
        world.drive(round.as_mut()).unwrap();
    }
    world.keep_after(&keeper, 1);
    let tasks = world.triggered("t");
    assert_eq!((tasks.len(), tasks[0].input.params.as_str()), (1, "{}"));
    world.keep_after(&keeper, 10_000);
    let tasks = world.triggered("t");
    assert_eq!((tasks.len(), tasks[1].input.params.as_str()), (2, r#"{"a":1}"#));
}

#[test]
fn a_record_that_cannot_be_read_harms_its_own_trigger_alone() {
    let store = SharedStore::new([7; 32]);
    let world = World::over(Arc::new(store.clone()), 1);
    world.be_heard();
    world.apply(flow("f", &["a"], 0));
    let good = definition(every(10), CatchUp::None, Overlap::Allow);
    world.apply_trigger("good", good.clone());
    let later =
        RecordChange::create(RecordKind::Trigger, name("bad"), Arc::from([2, b'{']), world.now().wall);
    block_on(store.commit(vec![Change::Record(later)])).unwrap();

    let keeper = TriggerKeeper::new(world.engine.clone());
    world.be_away_unserved(10_000);
    world.be_heard();
    world.keep_after(&keeper, 0);
    assert_eq!(world.triggered("good").len(), 1);
    let listed = world.drive(world.engine.triggers(None, 10, world.now())).unwrap();
    assert_eq!(listed.len(), 1);
    let shown = world.drive(world.engine.trigger(&name("bad"), world.now()));
    let Err(EngineError::Store(StoreError::Damaged(message))) = shown else { panic!("{shown:?}") };
    assert!(message.contains("unknown format 2; apply the trigger again, or remove it"), "{message}");
    world.apply_trigger("bad", good);
    assert!(world.drive(world.engine.trigger(&name("bad"), world.now())).is_ok());
    assert_eq!(block_on(store.records(RecordKind::Trigger, None, 10)).unwrap().len(), 2);
}

#[test]
fn a_trigger_fires_and_changes_after_an_import() {
    let (sink, other) = (MemorySink::new([7; 32]), MemorySink::new([8; 32]));
    let world = World::open(&sink);
    world.apply(flow("f", &["a"], 0));
    world.apply_trigger("ticks", definition(every(10), CatchUp::None, Overlap::Allow));
    world.be_away_unserved(1_000);
    world.move_to(&sink, &block_on(Resident::open(Arc::new(other.clone()), world.now())).unwrap());

    let world = World::open(&other);
    let keeper = TriggerKeeper::new(world.engine.clone());
    world.keep_after(&keeper, 1_000);
    world.keep_after(&keeper, 10_000);
    assert_eq!(world.triggered("ticks").len(), 1);
    let every_hour = definition(every(3600), CatchUp::None, Overlap::Allow);
    world.apply_trigger("ticks", every_hour);
    world.drive(world.engine.pause_trigger(&name("ticks"), None, world.now())).unwrap();
    world.drive(world.engine.remove_trigger(&name("ticks"), world.now())).unwrap();
    let gone = world.drive(world.engine.trigger(&name("ticks"), world.now()));
    assert!(matches!(gone, Err(EngineError::UnknownTrigger(_))), "{gone:?}");
}
