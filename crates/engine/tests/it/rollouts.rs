//! Rollouts: each device gets one task, whatever happens to servers, and after an abort nothing is left of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::Arc,
};

use futures_executor::block_on;
use windlass_core::{
    AbortLimit, AbortOf, AbortThreshold, ActKey, Actor, Attempt, Command, Device, Ending, Failure, Json,
    Name, OnAbort, Outcome, Phase, PresenceRule, Report, Rollout, RolloutCommand, RolloutDefinition,
    RolloutRate, RolloutRejection, RolloutStage, Task, TaskId,
};
use windlass_engine::{
    EngineError, ROLLOUTS_OPEN_MAX, RolloutEvent,
    services::{Janitor, RolloutKeeper},
};
use windlass_store::{
    Change, Queries as _, RecordChange, RecordKind, Retention, Store as _, StoreError, TaskQuery,
    memory::{MemorySink, SharedStore},
    resident::Resident,
};

use crate::world::{World, flow, submission};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn definition() -> RolloutDefinition {
    RolloutDefinition {
        flow: name("f"),
        params: Json::parse(r#"{"v":2,"device":"overridden"}"#).unwrap(),
        priority: 0,
        selector: BTreeMap::from([("site".to_owned(), "nord".to_owned())]),
        rate: RolloutRate::Constant { per_minute: 60_000 },
        max_running: 10,
        abort: Vec::new(),
        on_abort: OnAbort::RollBack,
        group_by: Some("model".into()),
    }
}

impl World {
    /// Declares this number of devices at the site, and others elsewhere.
    fn declare(&self, prefix: &str, count: usize) {
        let device = |index: usize| {
            let (site, model) = (["nord", "nord", "sued"][index % 3], ["a", "b"][index % 2]);
            let labels = [("site", site), ("model", model)];
            Device {
                name: name(&format!("{prefix}{index:04}")),
                labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
                presence: PresenceRule::Always,
                echoes_attempt: false,
            }
        };
        let devices: Vec<_> = (0..count / 2 * 3).map(device).collect();
        self.drive(self.engine.apply_devices(&devices, self.now())).unwrap();
    }

    fn start_rollout(&self, definition: RolloutDefinition) -> Rollout {
        self.try_start("r", definition).unwrap()
    }

    fn try_start(&self, rollout: &str, definition: RolloutDefinition) -> Result<Rollout, EngineError> {
        let started = self.engine.start_rollout(name(rollout), definition, None, self.now());
        self.drive(started).map(|(report, _)| (*report.rollout).clone())
    }

    fn rollout(&self) -> Rollout {
        (*self.drive(self.engine.rollout(&name("r"))).unwrap().rollout).clone()
    }

    fn tell_rollout(&self, command: RolloutCommand) -> Result<(), EngineError> {
        self.drive(self.engine.tell_rollout(&name("r"), command, None, self.now())).map(drop)
    }

    /// The keeper works until it has nothing to do for a while. Time passes with it.
    fn keep(&self, keeper: &RolloutKeeper) {
        for _ in 0..20 {
            self.be_away_unserved(1_000);
            self.be_heard_if_shared();
            self.drive(keeper.run_once(self.now())).unwrap();
        }
    }

    fn be_heard_if_shared(&self) {
        if self.engine.shares_its_store() {
            self.be_heard();
        }
    }

    /// The tasks of the rollout, oldest first.
    fn tasks_of_rollout(&self) -> Vec<Arc<Task>> {
        let labels = BTreeMap::from([("rollout".to_owned(), "r".to_owned())]);
        let query = TaskQuery { labels, limit: 10_000, ..TaskQuery::default() };
        let page = block_on(self.engine.tasks(&query)).unwrap();
        page.items.into_iter().rev().map(|loaded| loaded.task).collect()
    }

    /// The first attempt of an act of the task ends like this.
    fn end_attempt(&self, task: TaskId, key: ActKey, outcome: Outcome) {
        let attempt = Attempt { key, number: 1, started_at: None };
        self.drive(self.engine.tell(task, Command::Report(Report { attempt, outcome }))).unwrap();
    }

    /// All open tasks of the rollout succeed, or their rollbacks do.
    fn work(&self) -> usize {
        let open: Vec<_> = self.tasks_of_rollout().into_iter().filter(|task| !task.is_ended()).collect();
        for task in &open {
            let key = match task.state.phase {
                Phase::Backward => ActKey::rollback(0),
                _ => ActKey::forward(0),
            };
            self.end_attempt(task.id, key, Outcome::Succeeded(None));
        }
        open.len()
    }

    fn devices_of_tasks(&self) -> BTreeSet<String> {
        let tasks = self.tasks_of_rollout();
        let devices: BTreeSet<_> = tasks.iter().map(|task| task.input.labels["device"].clone()).collect();
        assert_eq!(devices.len(), tasks.len(), "a device has two tasks");
        devices
    }

    fn events(&self) -> Vec<RolloutEvent> {
        let history = self.drive(self.engine.rollout_history(&name("r"), None, 100)).unwrap();
        history.into_iter().rev().map(|(_, _, entry)| entry.event).collect()
    }
}

fn failed(code: i32) -> Outcome {
    Outcome::Failed(Failure::new("broken", code, false))
}

#[test]
fn each_device_gets_one_task_with_its_name_and_labels() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    world.declare("d", 24);
    let begun = world.start_rollout(definition());
    assert_eq!((begun.total().matched, begun.groups.len()), (24, 3));
    let keeper = RolloutKeeper::new(world.engine.clone());
    world.keep(&keeper);
    let tasks = world.tasks_of_rollout();
    assert_eq!(tasks.len(), 10, "no more than ten run");
    assert_eq!(
        tasks[0].input.params.as_str().parse::<serde_json::Value>().unwrap(),
        serde_json::json!({
            "v": 2, "device": "d0000", "device_labels": { "model": "a", "site": "nord" }
        })
    );
    assert_eq!(tasks[0].input.labels["group"], "a");
    assert_eq!(tasks[0].input.by, Some(Actor { name: "rollout r".into(), claimed: false }));
    // One that is declared behind the cursor is started as well, and one before it is not.
    world.declare("e", 2);
    world.declare("a", 2);
    while world.work() > 0 {
        world.keep(&keeper);
    }
    let ended = world.rollout();
    assert_eq!((ended.stage, ended.total().succeeded, ended.total().started), (RolloutStage::Ended, 26, 26));
    assert_eq!(world.devices_of_tasks().len(), 26);
    let groups: Vec<_> =
        ended.groups[1..].iter().map(|group| (group.counts.matched, group.counts.succeeded)).collect();
    assert_eq!(groups, [(12, 13), (12, 13)]);
    assert_eq!(world.events(), [RolloutEvent::Started, RolloutEvent::Ended]);
    let again = world.try_start("r", definition());
    assert_eq!(again.unwrap(), ended, "the same call returns what there is");
    let other = RolloutDefinition { max_running: 3, ..definition() };
    assert!(matches!(world.try_start("r", other), Err(EngineError::RolloutExists(_))));
}

#[test]
fn servers_that_die_at_any_point_start_each_device_once_and_never_too_many() {
    let store = SharedStore::new([7; 32]);
    let servers: Vec<_> = (1..=3).map(|random| World::over(Arc::new(store.clone()), random)).collect();
    servers[0].be_heard();
    servers[0].apply(flow("f", &["a"], 0));
    servers[0].declare("d", 60);
    servers[0].start_rollout(definition());
    let mut random = 1_u64;
    let mut below = |most: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % most
    };
    let (mut died, mut rounds) = (0, 0);
    while !servers[0].rollout().is_ended() {
        rounds += 1;
        assert!(rounds < 2_000, "it does not end: {:?}", servers[0].rollout());
        // Longer than a service lease: the next one may lead.
        servers.iter().for_each(|server| server.be_away_unserved(120_000));
        let server = &servers[usize::try_from(below(3)).unwrap()];
        server.be_heard();
        let keeper = RolloutKeeper::new(server.engine.clone());
        let mut round = pin!(keeper.run_once(server.now()));
        // It dies in the middle of its round, or comes to its end.
        let ended = (0..below(5)).any(|_| server.turn(round.as_mut()).is_ready());
        died += u32::from(!ended);
        let open = server.tasks_of_rollout().iter().filter(|task| !task.is_ended()).count();
        assert!(open <= 10, "{open} run");
        if below(3) == 0 {
            server.work();
        }
    }
    assert!(died > 5, "some died: {died}");
    let total = servers[0].rollout().total();
    assert_eq!((total.started, total.succeeded), (60, 60));
    assert_eq!(servers[0].devices_of_tasks().len(), 60);
}

#[test]
fn a_rollout_goes_on_after_a_restart() {
    let sink = MemorySink::new([7; 32]);
    let world = World::open(&sink);
    world.apply(flow("f", &["a"], 0));
    world.declare("d", 24);
    world.start_rollout(definition());
    world.keep(&RolloutKeeper::new(world.engine.clone()));
    world.work();
    drop(world);
    let world = World::open(&sink);
    let keeper = RolloutKeeper::new(world.engine.clone());
    loop {
        world.keep(&keeper);
        if world.work() == 0 {
            break;
        }
    }
    assert_eq!((world.rollout().stage, world.devices_of_tasks().len()), (RolloutStage::Ended, 24));
}

#[test]
fn a_threshold_stops_cancels_and_rolls_back_what_is_done() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    world.declare("d", 40);
    let threshold = AbortThreshold { of: AbortOf::Failed, limit: AbortLimit::Percent(15), at_least: 12 };
    world.start_rollout(RolloutDefinition { abort: vec![threshold], ..definition() });
    let keeper = RolloutKeeper::new(world.engine.clone());
    world.keep(&keeper);
    world.work();
    world.keep(&keeper);
    let tasks = world.tasks_of_rollout();
    assert_eq!(tasks.len(), 20);
    for task in &tasks[10..12] {
        world.end_attempt(task.id, ActKey::forward(0), failed(1));
    }
    world.keep(&keeper);
    // Two of twelve have failed, and roll back themselves. The other eight are cancelled.
    assert_eq!(world.rollout().stage, RolloutStage::Cancelling);
    let alarms = world.drive(world.engine.alarms(false, 10)).unwrap();
    assert_eq!(&*alarms[0].message, "the rollout r was aborted: 15 % of the devices failed");
    for _ in 0..4 {
        world.work();
        world.keep(&keeper);
    }
    let ended = world.rollout();
    let total = ended.total();
    assert_eq!(ended.stage, RolloutStage::Ended, "{ended:?}");
    assert_eq!((total.started, total.succeeded, total.rolled_back), (20, 10, 10));
    assert_eq!((total.failed, total.cancelled), (2, 8));
    let tasks = world.tasks_of_rollout();
    assert_eq!(tasks.len(), 20, "nothing was started after the abort");
    assert!(tasks.iter().all(|task| task.state.phase != Phase::Ended(Ending::Succeeded)));
    use RolloutEvent::{Aborted, Ended, RollingBack, Started};
    assert_eq!(world.events(), [Started, Aborted, RollingBack, Ended]);
    world.drive(world.engine.remove_rollout(&name("r"), None, world.now())).unwrap();
    assert_eq!(world.drive(world.engine.alarms(false, 10)).unwrap().len(), 0);
}

#[test]
fn servers_that_die_while_rolling_back_roll_back_each_task_once() {
    let store = SharedStore::new([7; 32]);
    let servers: Vec<_> = (1..=2).map(|random| World::over(Arc::new(store.clone()), random)).collect();
    let world = &servers[0];
    world.be_heard();
    world.apply(flow("f", &["a"], 0));
    world.declare("d", 30);
    world.start_rollout(RolloutDefinition { max_running: 4, ..definition() });
    let keeper = RolloutKeeper::new(world.engine.clone());
    for _ in 0..4 {
        world.keep(&keeper);
        world.work();
    }
    world.keep(&keeper);
    world.tell_rollout(RolloutCommand::Abort { by: None, reason: Some("enough".into()) }).unwrap();
    let mut rounds = 0_usize;
    while !world.rollout().is_ended() {
        rounds += 1;
        assert!(rounds < 2_000, "it does not end: {:?}", world.rollout());
        servers.iter().for_each(|server| server.be_away_unserved(120_000));
        let server = &servers[rounds % 2];
        server.be_heard();
        let keeper = RolloutKeeper::new(server.engine.clone());
        let mut round = pin!(keeper.run_once(server.now()));
        let _ = (0..rounds % 11).any(|_| server.turn(round.as_mut()).is_ready());
        server.work();
    }
    let total = world.rollout().total();
    assert_eq!((total.succeeded, total.rolled_back, total.cancelled), (16, 16, 4));
}

#[test]
fn tasks_without_a_rollback_are_kept_and_stuck_ones_are_counted() {
    let world = World::new();
    let mut plain = flow("f", &["a"], 0);
    plain.steps[0].rollback = None;
    world.apply(plain.clone());
    world.declare("d", 4);
    world.start_rollout(definition());
    let keeper = RolloutKeeper::new(world.engine.clone());
    world.keep(&keeper);
    let tasks = world.tasks_of_rollout();
    world.end_attempt(tasks[0].id, ActKey::forward(0), Outcome::Succeeded(None));
    world.tell_rollout(RolloutCommand::Abort { by: None, reason: None }).unwrap();
    world.keep(&keeper);
    assert_eq!((world.rollout().stage, world.rollout().total().kept), (RolloutStage::Ended, 1));

    let other = World::new();
    other.apply(flow("f", &["a"], 0));
    other.declare("d", 4);
    other.start_rollout(definition());
    let keeper = RolloutKeeper::new(other.engine.clone());
    other.keep(&keeper);
    let tasks = other.tasks_of_rollout();
    other.end_attempt(tasks[0].id, ActKey::forward(0), Outcome::Succeeded(None));
    other.end_attempt(tasks[1].id, ActKey::forward(0), failed(1));
    other.end_attempt(tasks[1].id, ActKey::rollback(0), failed(1));
    other.keep(&keeper);
    let report = other.drive(other.engine.rollout(&name("r"))).unwrap();
    assert_eq!((report.waiting, report.rollout.open.len()), (1, 3), "an operator may still resolve it");
    other.tell_rollout(RolloutCommand::Abort { by: None, reason: None }).unwrap();
    other.keep(&keeper);
    other.end_attempt(tasks[0].id, ActKey::rollback(0), failed(1));
    other.keep(&keeper);
    let (total, stage) = (other.rollout().total(), other.rollout().stage);
    assert_eq!((stage, total.stuck, total.rollback_stuck, total.cancelled), (RolloutStage::Ended, 1, 1, 2));
}

#[test]
fn a_paused_rollout_starts_nothing_and_goes_on_when_resumed() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    world.declare("d", 24);
    world.start_rollout(definition());
    let keeper = RolloutKeeper::new(world.engine.clone());
    world.keep(&keeper);
    let reason = Some("lunch".into());
    world.tell_rollout(RolloutCommand::Pause { by: None, reason: reason.clone() }).unwrap();
    let again = world.tell_rollout(RolloutCommand::Pause { by: None, reason });
    assert_eq!(again, Err(EngineError::RolloutRejected(RolloutRejection::Paused)));
    let removed = world.drive(world.engine.remove_rollout(&name("r"), None, world.now()));
    assert_eq!(removed.map(drop), Err(EngineError::RolloutRejected(RolloutRejection::NotEnded)));
    world.work();
    world.keep(&keeper);
    assert_eq!((world.tasks_of_rollout().len(), world.rollout().total().succeeded), (10, 10));
    world.tell_rollout(RolloutCommand::Resume).unwrap();
    world.keep(&keeper);
    assert_eq!(world.tasks_of_rollout().len(), 20);
    use RolloutEvent::{Paused, Resumed, Started};
    assert_eq!(world.events(), [Started, Paused, Resumed]);
}

#[test]
fn a_device_that_was_recorded_before_a_pause_gets_its_task_after_it() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    world.declare("d", 4);
    world.start_rollout(definition());
    let keeper = RolloutKeeper::new(world.engine.clone());
    world.be_away_unserved(1_000);
    world.drive(keeper.run_once(world.now())).unwrap();
    assert_eq!((world.rollout().open.len(), world.tasks_of_rollout().len()), (4, 0));
    world.tell_rollout(RolloutCommand::Pause { by: None, reason: None }).unwrap();
    // Another server goes on with it.
    world.keep(&RolloutKeeper::new(world.engine.clone()));
    assert_eq!((world.rollout().open.len(), world.tasks_of_rollout().len()), (4, 0));
    world.tell_rollout(RolloutCommand::Resume).unwrap();
    world.keep(&keeper);
    assert_eq!(world.tasks_of_rollout().len(), 4);
}

#[test]
fn a_rollout_goes_on_and_changes_after_an_import() {
    let (sink, other) = (MemorySink::new([7; 32]), MemorySink::new([8; 32]));
    let world = World::open(&sink);
    world.apply(flow("f", &["a"], 0));
    world.declare("d", 24);
    world.start_rollout(definition());
    world.keep(&RolloutKeeper::new(world.engine.clone()));
    world.move_to(&sink, &block_on(Resident::open(Arc::new(other.clone()), world.now())).unwrap());

    let world = World::open(&other);
    let keeper = RolloutKeeper::new(world.engine.clone());
    world.be_away_unserved(60_000);
    assert_eq!(world.work(), 10);
    world.keep(&keeper);
    assert_eq!((world.rollout().total().succeeded, world.devices_of_tasks().len()), (10, 20));
    world.tell_rollout(RolloutCommand::Pause { by: None, reason: None }).unwrap();
    world.tell_rollout(RolloutCommand::Abort { by: None, reason: None }).unwrap();
    for _ in 0..3 {
        world.keep(&keeper);
        world.work();
    }
    assert!(world.rollout().is_ended());
    world.drive(world.engine.remove_rollout(&name("r"), None, world.now())).unwrap();
}

#[test]
fn a_server_that_dies_after_an_abort_by_a_threshold_leaves_the_alarm_to_the_next_one() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    world.declare("d", 4);
    let threshold = AbortThreshold { of: AbortOf::Failed, limit: AbortLimit::Count(1), at_least: 1 };
    world.start_rollout(RolloutDefinition { abort: vec![threshold], ..definition() });
    let keeper = RolloutKeeper::new(world.engine.clone());
    world.keep(&keeper);
    world.end_attempt(world.tasks_of_rollout()[0].id, ActKey::forward(0), failed(1));
    world.be_away_unserved(1_000);
    {
        let mut round = pin!(keeper.run_once(world.now()));
        while world.rollout().stage != RolloutStage::Cancelling {
            assert!(world.turn(round.as_mut()).is_pending());
        }
    }
    assert!(world.drive(world.engine.alarms(true, 10)).unwrap().is_empty());
    let keeper = RolloutKeeper::new(world.engine.clone());
    for _ in 0..4 {
        world.keep(&keeper);
        world.work();
    }
    assert!(world.rollout().is_ended());
    let alarms = world.drive(world.engine.alarms(false, 10)).unwrap();
    assert_eq!(alarms.iter().map(|alarm| alarm.raised).collect::<Vec<_>>(), [1]);
}

#[test]
fn two_operators_at_once_leave_an_aborted_rollout() {
    for abort_first in [false, true] {
        let world = World::new();
        world.apply(flow("f", &["a"], 0));
        world.declare("d", 4);
        world.start_rollout(definition());
        let (rollout, now) = (name("r"), world.now());
        let pause = RolloutCommand::Pause { by: None, reason: None };
        let abort = RolloutCommand::Abort { by: None, reason: None };
        let [first, second] = if abort_first { [abort, pause] } else { [pause, abort] };
        let (one, other) = world.drive(futures_util::future::join(
            world.engine.tell_rollout(&rollout, first, None, now),
            world.engine.tell_rollout(&rollout, second, None, now),
        ));
        assert_eq!(world.rollout().stage, RolloutStage::Cancelling);
        let rejected = EngineError::RolloutRejected(RolloutRejection::Aborting);
        let [pause, abort] = if abort_first { [other, one] } else { [one, other] };
        assert!(abort.is_ok());
        assert!(pause.as_ref().is_err_and(|error| *error == rejected) || pause.is_ok(), "{pause:?}");
    }
}

#[test]
fn what_cannot_be_started_is_refused_and_counted() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    world.declare("d", 4);
    let unknown = RolloutDefinition { flow: name("g"), ..definition() };
    assert!(matches!(world.try_start("r", unknown), Err(EngineError::UnknownFlow(_))));
    let nothing = RolloutDefinition {
        selector: BTreeMap::from([("site".to_owned(), "west".to_owned())]),
        ..definition()
    };
    assert_eq!(world.try_start("r", nothing), Err(EngineError::NoDevices));
    let rate = RolloutRate::Constant { per_minute: 0 };
    let still = RolloutDefinition { rate, ..definition() };
    assert!(matches!(world.try_start("r", still), Err(EngineError::RolloutFault(_))));
    assert!(world.drive(world.engine.rollouts(None, 10)).unwrap().is_empty());

    world.start_rollout(RolloutDefinition { max_running: 1, ..definition() });
    let keeper = RolloutKeeper::new(world.engine.clone());
    // It is recorded, and the device is removed before its task is started.
    world.be_away_unserved(1_000);
    world.drive(keeper.run_once(world.now())).unwrap();
    assert_eq!((world.rollout().open.len(), world.tasks_of_rollout().len()), (1, 0));
    world.drive(world.engine.remove_device(&name("d0000"), false)).unwrap();
    world.keep(&keeper);
    assert_eq!((world.rollout().total().refused, world.tasks_of_rollout().len()), (1, 1));
    let history = world.drive(world.engine.rollout_history(&name("r"), None, 10)).unwrap();
    assert_eq!(history[0].2.message.as_deref(), Some("the device was removed"));

    for number in 1..ROLLOUTS_OPEN_MAX {
        world.try_start(&format!("r{number}"), definition()).unwrap();
    }
    let error = world.try_start("more", definition()).unwrap_err().to_string();
    assert!(error.starts_with("there are 20 rollouts, and 20 of them have not ended"), "{error}");
}

#[test]
fn reruns_and_tasks_of_others_with_the_same_labels_are_not_rolled_back() {
    let world = World::new();
    world.apply(flow("f", &["a"], 0));
    world.declare("d", 2);
    world.start_rollout(definition());
    let keeper = RolloutKeeper::new(world.engine.clone());
    world.keep(&keeper);
    let mut input = (*world.tasks_of_rollout()[0].input).clone();
    input.by = Some(Actor { name: "rollout r".into(), claimed: true });
    world.drive(world.engine.submit(submission("f", input), world.now())).unwrap();
    let tasks = world.tasks_of_rollout();
    for task in &tasks[..2] {
        world.end_attempt(task.id, ActKey::forward(0), Outcome::Succeeded(None));
    }
    let other = tasks.iter().find(|task| task.input.by.as_ref().is_some_and(|by| by.claimed)).unwrap().id;
    if !world.task(other).is_ended() {
        world.end_attempt(other, ActKey::forward(0), Outcome::Succeeded(None));
    }
    world.tell_rollout(RolloutCommand::Abort { by: None, reason: None }).unwrap();
    world.keep(&keeper);
    world.work();
    world.keep(&keeper);
    assert!(world.rollout().is_ended());
    assert_eq!(world.task(other).state.phase, Phase::Ended(Ending::Succeeded));
}

#[test]
fn a_rollout_that_ended_is_deleted_with_its_tasks_and_a_damaged_one_harms_itself_alone() {
    let store = SharedStore::new([7; 32]);
    let world = World::over(Arc::new(store.clone()), 1);
    world.be_heard();
    world.apply(flow("f", &["a"], 0));
    world.declare("d", 2);
    world.start_rollout(definition());
    let later =
        RecordChange::create(RecordKind::Rollout, name("bad"), Arc::from([2, b'{']), world.now().wall);
    block_on(store.commit(vec![Change::Record(later)])).unwrap();
    let keeper = RolloutKeeper::new(world.engine.clone());
    world.keep(&keeper);
    assert_eq!(world.work(), 2);
    world.keep(&keeper);
    assert!(world.rollout().is_ended());
    let shown = world.drive(world.engine.rollout(&name("bad")));
    assert!(matches!(shown, Err(EngineError::Store(StoreError::Damaged(_)))), "{shown:?}");
    let removed = world.drive(world.engine.remove_rollout(&name("bad"), None, world.now()));
    assert!(matches!(removed, Err(EngineError::Store(StoreError::Damaged(_)))), "{removed:?}");
    let retention = Retention {
        tasks: windlass_core::Millis::from_secs(3_600),
        logs: windlass_core::Millis::from_secs(3_600),
        ..Retention::default()
    };
    let janitor = Janitor::new(world.engine.clone(), retention, || windlass_core::Millis(0));
    world.drive(janitor.run_once(world.now())).unwrap();
    assert!(world.rollout().is_ended(), "it is kept for an hour");
    world.be_away_unserved(3_700_000);
    world.be_heard();
    world.drive(janitor.run_once(world.now())).unwrap();
    assert_eq!(block_on(store.records(RecordKind::Rollout, None, 10)).unwrap(), []);
}
