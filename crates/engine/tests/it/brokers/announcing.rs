//! What happened to tasks is announced: all of it, in order per task, whatever the broker refuses and whichever server dies.

use std::{
    cell::Cell,
    collections::BTreeMap,
    sync::{Arc, Mutex, atomic::Ordering},
};

use async_trait::async_trait;
use windlass_brokers::{Announcement, BrokerError, Message, Topic};
use windlass_core::{AlarmCommand, Event, Task, TaskId};
use windlass_engine::services::{Janitor, OutboxRelay, Subscriber, TaskEvent, TopicSubscriber, WriteEvent};
use windlass_store::{
    Retention,
    memory::{MemorySink, SharedStore},
};

use crate::{
    brokers::TestBroker,
    faulty_store::{Verb, faulty},
    world::{World, failed, flow, ok, ok_with},
};

/// Says which event it is.
struct Numbers;

impl WriteEvent for Numbers {
    fn announcement(&self, task: &Task, n: u64, _event: &Event) -> Announcement {
        let message = Message::new(format!("{}/{n}", task.id), task.id.to_string(), "");
        Announcement { subject: "event".to_owned(), message }
    }
}

fn outbox_relay(world: &World, broker: &Arc<TestBroker>) -> OutboxRelay {
    let topic = Topic { name: "events".to_owned(), kind: None, keep: 1 };
    let topic = TopicSubscriber::new(broker.clone(), Arc::new(Numbers), topic);
    OutboxRelay::new(world.engine.clone(), vec![Arc::new(topic)])
}

fn announce(world: &World, outbox_relay: &OutboxRelay) {
    world.drive(outbox_relay.run_once(|| world.now())).unwrap();
    world.pass(50);
}

/// Tasks of which some succeed and some are rolled back, a step at a time.
fn work(world: &World, steps: usize) {
    let mut worker = world.worker(1);
    for n in 0..steps {
        let Some(attempt) = worker.poll().attempts.pop() else { return };
        let said = if n % 5 == 4 { failed("no") } else { ok() };
        worker.report(&attempt.token, said);
        world.serve();
    }
}

fn history(world: &World, id: TaskId) -> Vec<u64> {
    let events = world.drive(world.engine.events(id, 0, 1000)).unwrap();
    events.into_iter().map(|(n, _)| n).collect()
}

#[test]
fn every_event_is_announced_and_none_before_the_one_before_it() {
    for seed in 0..50 {
        let sink = MemorySink::new([7; 32]);
        let broker = TestBroker::new(seed, seed % 3);
        let mut world = World::open(&sink);
        let mut ids = Vec::new();
        for life in 0..4 {
            let outbox_relay = outbox_relay(&world, &broker);
            world.apply(flow("f", &["a", "b", "c"], 0));
            ids.extend((0..5).map(|_| world.submit("f")));
            for _ in 0..4 {
                work(&world, 7);
                announce(&world, &outbox_relay);
            }
            if life < 3 {
                // Killed, with announcements under way.
                let elapsed = i64::try_from(world.now().mono.0).unwrap();
                world = World::open(&sink);
                world.be_away_unserved(elapsed + 1000);
            }
        }
        let outbox_relay = outbox_relay(&world, &broker);
        work(&world, 1000);
        for _ in 0..200 {
            announce(&world, &outbox_relay);
            world.be_away_unserved(5000);
        }
        let heard = broker.first_heard();
        for id in ids {
            assert_eq!(heard[&id.to_string()], history(&world, id), "task {id} of seed {seed}");
        }
        let times = broker.heard.lock().unwrap().len();
        announce(&world, &outbox_relay);
        assert_eq!(broker.heard.lock().unwrap().len(), times, "what was announced is out of the outbox");
    }
}

#[test]
fn an_event_waits_until_all_subscribers_have_confirmed_it() {
    let world = World::new();
    let brokers = [TestBroker::new(1, 0), TestBroker::new(2, 8)];
    let subscriber = |broker: &Arc<TestBroker>| -> Arc<dyn Subscriber> {
        let topic = Topic { name: "events".to_owned(), kind: None, keep: 1 };
        Arc::new(TopicSubscriber::new(broker.clone(), Arc::new(Numbers), topic))
    };
    let relay = OutboxRelay::new(world.engine.clone(), brokers.iter().map(subscriber).collect());
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    (0..10).for_each(|_| announce(&world, &relay));
    brokers[1].losses.store(0, Ordering::Relaxed);
    for _ in 0..10 {
        announce(&world, &relay);
        world.be_away_unserved(5000);
    }
    for broker in &brokers {
        let heard = broker.heard.lock().unwrap().len();
        assert_eq!(broker.first_heard()[&id.to_string()], history(&world, id));
        assert_eq!(heard, history(&world, id).len(), "who has confirmed an event does not get it again");
    }
    let times = brokers[0].heard.lock().unwrap().len();
    announce(&world, &relay);
    assert_eq!(brokers[0].heard.lock().unwrap().len(), times, "what all have confirmed is out of the outbox");
}

#[test]
fn a_long_backlog_is_announced_once() {
    let world = World::new();
    let broker = TestBroker::new(1, 0);
    let relay = outbox_relay(&world, &broker).with_pages_of(1);
    world.apply(flow("f", &["a"], 0));
    let ids: Vec<TaskId> = (0..50).map(|_| world.submit("f")).collect();
    (0..100).for_each(|_| announce(&world, &relay));
    let events: usize = ids.iter().map(|id| history(&world, *id).len()).sum();
    assert_eq!(broker.heard.lock().unwrap().len(), events);
}

/// Records whether tasks had ended when their events were announced, and the sizes of their parameters and results.
#[derive(Default)]
struct Recorder(Mutex<BTreeMap<(TaskId, u64), (bool, usize)>>);

#[async_trait]
impl Subscriber for Recorder {
    fn place(&self) -> String {
        "to a recorder".to_owned()
    }

    fn reads_payload(&self, _event: &Event) -> bool {
        true
    }

    async fn announce(&self, events: &[TaskEvent<'_>]) -> Vec<Result<(), BrokerError>> {
        let seen = |event: &TaskEvent<'_>| (event.task.is_ended(), event.task.payload_bytes());
        self.0.lock().unwrap().extend(events.iter().map(|event| ((event.task.id, event.n), seen(event))));
        vec![Ok(()); events.len()]
    }
}

#[test]
fn events_are_announced_with_the_task_as_it_is_by_then() {
    let (world, recorder) = (World::new(), Arc::new(Recorder::default()));
    let relay = OutboxRelay::new(world.engine.clone(), vec![recorder.clone()]).with_pages_of(1);
    world.apply(flow("f", &["a"], 0));
    let ids = [world.submit("f"), world.submit("f")];
    announce(&world, &relay);
    // The relay has read the page of the second task ahead.
    work(&world, 2);
    (0..10).for_each(|_| announce(&world, &relay));
    let ended = recorder.0.lock().unwrap();
    assert_eq!((ended[&(ids[0], 1)].0, ended[&(ids[1], 1)].0), (false, true));
    assert_eq!(ended.len(), ids.map(|id| history(&world, id).len()).iter().sum::<usize>());
}

#[test]
fn tasks_that_have_just_ended_are_not_read_again() {
    let ((world, store), recorder) = (faulty(), Arc::new(Recorder::default()));
    let relay = OutboxRelay::new(world.engine.clone(), vec![recorder.clone()]);
    world.apply(flow("f", &["a"], 0));
    let ids = [world.submit("f"), world.submit("f")];
    let mut worker = world.worker(1);
    for attempt in worker.poll().attempts {
        worker.report(&attempt.token, ok_with(r#"{"size":12}"#));
    }
    store.fail(Some(Verb::Load));
    announce(&world, &relay);
    let announced = recorder.0.lock().unwrap().clone();
    for id in ids {
        let last = u64::try_from(history(&world, id).len()).unwrap();
        assert_eq!(announced[&(id, last)], (true, r#"{}{"size":12}"#.len()));
    }
}

#[test]
fn a_relay_that_ends_leaves_nothing_that_it_has_announced() {
    let world = World::new();
    let broker = TestBroker::new(1, 0);
    let first = outbox_relay(&world, &broker).with_pages_of(1);
    world.apply(flow("f", &["a"], 0));
    let ids: Vec<TaskId> = (0..9).map(|_| world.submit("f")).collect();
    (0..5).for_each(|_| announce(&world, &first));
    world.drive(first.end(world.now())).unwrap();
    let heard = broker.heard.lock().unwrap().len();
    announce(&world, &first);
    assert_eq!(broker.heard.lock().unwrap().len(), heard, "it has ended");
    let next = outbox_relay(&world, &broker);
    (0..9).for_each(|_| announce(&world, &next));
    let events: usize = ids.iter().map(|id| history(&world, *id).len()).sum();
    assert_eq!(broker.heard.lock().unwrap().len(), events, "none is announced twice");
}

#[test]
fn a_broker_that_is_away_raises_an_alarm_and_costs_no_event() {
    let world = World::new();
    let away = TestBroker::new(1, 8);
    let first = outbox_relay(&world, &away);
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    for _ in 0..200 {
        announce(&world, &first);
    }
    let standing = || world.drive(world.engine.alarms(false, 10)).unwrap();
    let alarms = standing();
    assert_eq!(alarms.len(), 1);
    assert_eq!(alarms[0].id.to_string(), "broker_away");
    assert!(alarms[0].message.contains("topic events of lossy"), "{}", alarms[0].message);
    assert_eq!(away.first_heard(), BTreeMap::new());
    // Somebody takes it for over, and it is not.
    let resolve = AlarmCommand::Resolve { by: None };
    world.drive(world.engine.tell_alarm(alarms[0].id.clone(), resolve)).unwrap();
    for _ in 0..1000 {
        announce(&world, &first);
    }
    assert_eq!(standing().len(), 1, "it is said again");
    away.losses.store(0, Ordering::Relaxed);
    for _ in 0..200 {
        announce(&world, &first);
    }
    assert_eq!(standing(), []);
    assert_eq!(away.first_heard()[&id.to_string()], history(&world, id));
}

#[test]
fn events_that_are_refused_do_not_hold_up_those_of_other_tasks() {
    let world = World::new();
    let broker = TestBroker::new(1, 0);
    let relay = outbox_relay(&world, &broker);
    world.apply(flow("f", &["a"], 0));
    // More than are read at once.
    let refused: Vec<TaskId> = (0..1100).map(|_| world.submit("f")).collect();
    broker.refuses.lock().unwrap().extend(refused.iter().map(|id| (id.to_string(), 0)));
    let others: Vec<TaskId> = (0..3).map(|_| world.submit("f")).collect();
    let standing = || world.drive(world.engine.alarms(false, 10)).unwrap();
    let rounds = |count: usize| (0..count).for_each(|_| announce(&world, &relay));
    // Two pages are refused as a whole, with a pause after each.
    rounds(60);
    let heard = broker.first_heard();
    for id in &others {
        assert_eq!(heard[&id.to_string()], history(&world, *id), "they were not refused");
    }
    // A minute later.
    rounds(1200);
    let alarms = standing();
    assert_eq!(alarms.len(), 1);
    assert!(alarms[0].message.contains("the broker refuses: not for you"), "{}", alarms[0].message);
    let times = *broker.refuses.lock().unwrap().values().max().unwrap();
    assert!((5..15).contains(&times), "tried {times} times in a minute");
    let late = world.submit("f");
    rounds(60);
    assert_eq!(broker.first_heard()[&late.to_string()], history(&world, late));
    assert_eq!(standing().len(), 1, "the others are still refused");
    broker.refuses.lock().unwrap().clear();
    // Once one is confirmed, the others do not rest any longer.
    rounds(700);
    let heard = broker.first_heard();
    for id in &refused {
        assert_eq!(heard[&id.to_string()], history(&world, *id));
    }
    assert_eq!(standing(), []);
}

#[test]
fn whoever_is_not_the_one_to_announce_any_more_does_not_say_that_all_is_well() {
    let world = World::over(Arc::new(SharedStore::new([7; 32])), 1);
    let away = TestBroker::new(1, 8);
    let first = outbox_relay(&world, &away);
    world.be_heard();
    world.apply(flow("f", &["a"], 0));
    world.submit("f");
    for _ in 0..200 {
        world.be_heard();
        announce(&world, &first);
    }
    let standing = || world.drive(world.engine.alarms(false, 10)).unwrap().len();
    assert_eq!(standing(), 1);
    // The store takes so long to answer that the lease is over by then.
    away.losses.store(0, Ordering::Relaxed);
    world.pass(10_000);
    world.be_heard();
    let asked = Cell::new(0);
    let clock = || {
        let mut now = world.now();
        now.mono.0 += asked.replace(asked.get() + 1) * 3_600_000;
        now
    };
    world.drive(first.run_once(clock)).unwrap();
    assert!(asked.get() > 1, "it did not begin");
    assert_eq!((standing(), away.first_heard()), (1, BTreeMap::new()));
}

#[test]
fn a_task_stays_until_all_of_it_was_announced() {
    let world = World::new();
    let (away, there) = (TestBroker::new(1, 8), TestBroker::new(1, 0));
    let first = outbox_relay(&world, &away);
    world.apply(flow("f", &["a"], 0));
    let id = world.submit("f");
    work(&world, 1);
    announce(&world, &first);
    let retention = Retention { keeps_unannounced: true, ..Retention::default() };
    let janitor = Janitor::new(world.engine.clone(), retention, || windlass_core::Millis(0));
    let sweep = || while world.drive(janitor.run_once(world.now())).unwrap() > 0 {};
    world.be_away(i64::try_from(retention.tasks.0).unwrap() + 1000);
    sweep();
    assert!(world.drive(world.engine.task(id)).is_ok(), "it has not been announced");
    announce(&world, &outbox_relay(&world, &there));
    let heard = there.first_heard();
    sweep();
    assert!(world.drive(world.engine.task(id)).is_err(), "it was kept long enough");
    assert_eq!(heard[&id.to_string()].last(), Some(&(heard[&id.to_string()].len() as u64)));
}

#[test]
fn a_server_that_announces_nothing_leaves_that_to_one_that_does() {
    let store = SharedStore::new([7; 32]);
    let (silent, telling) = (Arc::new(store.clone()), Arc::new(store));
    let (silent, telling) = (World::over(silent, 1), World::over(telling, 2));
    silent.be_heard();
    let broker = TestBroker::new(1, 0);
    let first = outbox_relay(&telling, &broker);
    telling.be_heard();
    telling.apply(flow("f", &["a"], 0));
    let id = telling.submit("f");
    announce(&telling, &first);
    assert_eq!(broker.first_heard()[&id.to_string()], history(&telling, id));
}

#[test]
fn a_long_change_gets_through_a_broker_that_refuses_most_of_it() {
    let world = World::new();
    // Of eight announcements three are lost and of three the confirmation is.
    let broker = TestBroker::new(1, 3);
    let outbox_relay = outbox_relay(&world, &broker);
    let names: Vec<String> = (0..30).map(|n| format!("s{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut wide = flow("wide", &names, 0);
    wide.steps.iter_mut().for_each(|step| step.after.clear());
    world.apply(wide);
    let id = world.submit("wide");
    let events = history(&world, id);
    assert!(events.len() > 30, "one change of many events: {events:?}");
    for _ in 0..400 {
        announce(&world, &outbox_relay);
        world.be_away_unserved(5000);
    }
    assert_eq!(broker.first_heard()[&id.to_string()], events);
    let times = broker.heard.lock().unwrap().len();
    assert!(times < 5 * events.len(), "{times} announcements of {} events", events.len());
}
