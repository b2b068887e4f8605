//! Devices: declared in great numbers, shown with presence and lock, removed only when nobody needs them.

use std::{collections::BTreeMap, sync::Arc};

use windlass_core::{
    Device, LockRef, Millis, Name, Presence, PresenceRule, TaskId, Timestamp, TopicFilter, device_lock,
};
use windlass_engine::{
    DEVICES_APPLIED_MAX, DeviceApplication, DeviceFilter, DeviceReport, EngineError, MessageFilter,
    services::Janitor,
};
use windlass_store::{
    Change, JournalEntry, JournalKind, Now, Outcome, RecordChange, RecordKind, Retention, SizeQuery, Store,
    memory::MemorySink, resident::Resident, stored,
};

mod jobs;

use crate::world::{World, flow, ok};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn device(name: &str, labels: &[(&str, &str)]) -> Device {
    Device {
        name: Name::new(name).unwrap(),
        labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        presence: PresenceRule::Always,
        echoes_attempt: false,
    }
}

fn watched(name: &str) -> Device {
    Device { presence: PresenceRule::KeepAlive(Millis(60_000)), ..device(name, &[]) }
}

/// A world, and its store for what other services write.
fn world() -> (World, Arc<dyn Store>) {
    let now = Now { wall: Timestamp(1_700_000_000_000), mono: Millis(0) };
    let opened = Resident::open(Arc::new(MemorySink::new([7; 32])), now);
    let store: Arc<dyn Store> = Arc::new(futures_executor::block_on(opened).unwrap());
    (World::over(store.clone(), 1), store)
}

fn apply(world: &World, devices: &[Device]) -> Result<Vec<DeviceApplication>, EngineError> {
    world.drive(world.engine.apply_devices(devices, world.now()))
}

fn commit(world: &World, store: &Arc<dyn Store>, change: Change) {
    let outcomes = world.drive(store.commit(vec![change])).unwrap();
    assert!(matches!(outcomes[..], [Outcome::Committed]), "{outcomes:?}");
}

fn be_heard(world: &World, store: &Arc<dyn Store>, device: &str, online: bool) -> Presence {
    let presence = Presence { online, since: world.now().wall, changes: 2 };
    let body = stored::write_presence(&presence).into();
    let change = RecordChange::create(RecordKind::Presence, name(device), body, world.now().wall);
    commit(world, store, Change::Record(change.decided_in(store.generation())));
    presence
}

/// The names on all pages, and the number of pages.
fn listed(world: &World, filter: &DeviceFilter, limit: usize) -> (Vec<String>, usize) {
    let (mut names, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = world.drive(world.engine.devices(filter, after.as_ref(), limit)).unwrap();
        assert!(page.items.len() <= limit);
        names.extend(page.items.iter().map(|report: &DeviceReport| report.device.name.to_string()));
        pages += 1;
        after = page.next;
        if after.is_none() {
            return (names, pages);
        }
    }
}

#[test]
fn declaring_a_device_again_writes_only_what_changed() {
    let (world, store) = world();
    let devices = [device("a", &[("site", "nord")]), watched("b")];
    assert_eq!(apply(&world, &devices).unwrap(), [DeviceApplication::Created; 2]);
    let version = || {
        let records = world.drive(store.records_by_name(RecordKind::Device, &[name("a")])).unwrap();
        records[0].as_ref().unwrap().version
    };
    let before = version();
    let changed = [devices[0].clone(), device("b", &[]), device("c", &[])];
    use DeviceApplication::{Created, Unchanged, Updated};
    assert_eq!(apply(&world, &changed).unwrap(), [Unchanged, Updated, Created]);
    assert_eq!(version(), before, "an unchanged device is not written");
    let report = world.drive(world.engine.device(&name("b"))).unwrap();
    assert_eq!(report.device, changed[1]);
}

#[test]
fn one_wrong_device_keeps_all_out() {
    let (world, _) = world();
    let long = device(&"x".repeat(121), &[]);
    let error = apply(&world, &[device("a", &[]), long]).unwrap_err();
    assert!(
        matches!(&error, EngineError::UnusableDevice { index: 1, message } if message.contains("too long")),
        "{error}"
    );
    let error = apply(&world, &[device("a", &[]), device("b", &[]), device("a", &[])]).unwrap_err();
    assert!(
        matches!(&error, EngineError::UnusableDevice { index: 2, message } if message.contains("another")),
        "{error}"
    );
    let many: Vec<Device> = (0..=DEVICES_APPLIED_MAX).map(|n| device(&format!("d{n}"), &[])).collect();
    assert!(matches!(apply(&world, &many), Err(EngineError::TooManyDevices(10_001))));
    assert!(listed(&world, &DeviceFilter::default(), 10).0.is_empty());
    assert!(matches!(world.drive(world.engine.device(&name("a"))), Err(EngineError::UnknownDevice(_))));
}

#[test]
fn ten_thousand_devices_are_declared_at_once_and_found_by_labels_and_presence() {
    let (world, store) = world();
    let labels = |n: usize| [("site", ["nord", "sued"][n % 2]), ("model", ["x", "y", "z"][n % 3])];
    let mut devices: Vec<Device> =
        (0..DEVICES_APPLIED_MAX - 1).map(|n| device(&format!("dev-{n:05}"), &labels(n))).collect();
    devices.push(Device { name: name("zz"), ..watched("b") });
    assert!(apply(&world, &devices).unwrap().iter().all(|done| *done == DeviceApplication::Created));
    let filter = |labels: &[(&str, &str)], online| DeviceFilter {
        labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<BTreeMap<_, _>>(),
        online,
    };
    let (found, _) = listed(&world, &filter(&[("site", "nord"), ("model", "z")], None), 1000);
    let expected =
        (0..DEVICES_APPLIED_MAX - 1).filter(|n| labels(*n)[0].1 == "nord" && labels(*n)[1].1 == "z");
    assert_eq!(found, expected.map(|n| format!("dev-{n:05}")).collect::<Vec<_>>());
    assert!(listed(&world, &filter(&[("site", "ost")], None), 10).0.is_empty());
    assert_eq!(listed(&world, &filter(&[], Some(false)), 10).0, ["zz"], "it was never heard");
    be_heard(&world, &store, "zz", true);
    assert!(listed(&world, &filter(&[], Some(false)), 10).0.is_empty());
    assert_eq!(listed(&world, &filter(&[], Some(true)), 1000).0.len(), DEVICES_APPLIED_MAX);
    assert_eq!(listed(&world, &filter(&[], None), 999).0.len(), DEVICES_APPLIED_MAX);
    // A page looks at a bounded number, and says where the next one begins.
    apply(&world, &[device("zzz", &[("site", "ost")])]).unwrap();
    let (found, pages) = listed(&world, &filter(&[("site", "ost")], None), 10);
    assert_eq!((found, pages), (vec!["zzz".to_owned()], 2));
}

#[test]
fn a_device_shows_its_task_and_its_waiters_in_their_order_and_is_not_removed_under_them() {
    let (world, store) = world();
    apply(&world, &[watched("press-1")]).unwrap();
    let heard = be_heard(&world, &store, "press-1", true);
    let mut job = flow("job", &["press"], 0);
    job.steps[0].locks = vec![LockRef::Name(device_lock(&name("press-1")).unwrap())];
    world.apply(job);
    let tasks: Vec<TaskId> = (0..3).map(|_| world.submit("job")).collect();
    world.pass(100);
    let report = world.drive(world.engine.device(&name("press-1"))).unwrap();
    assert_eq!((report.is_online(), report.presence), (true, Some(heard)));
    let lock = report.lock.unwrap();
    assert_eq!(lock.holder.unwrap().owner.task, tasks[0]);
    let waiters: Vec<TaskId> = lock.waiters().map(|waiter| waiter.owner.task).collect();
    assert_eq!(waiters, tasks[1..]);

    let remove = |force| world.drive(world.engine.remove_device(&name("press-1"), force));
    let error = remove(false).unwrap_err();
    assert!(matches!(error, EngineError::DeviceInUse { waiting: 2, .. }), "{error}");
    let removed = remove(true).unwrap();
    assert_eq!(removed.presence, Some(heard));
    assert!(matches!(remove(true), Err(EngineError::UnknownDevice(_))));
    let mut worker = world.worker(1);
    for task in &tasks {
        let attempt = worker.take();
        assert_eq!(attempt.id.task, *task, "those that wait keep their places");
        worker.report(&attempt.token, ok());
        world.pass(100);
    }
    // One that is declared again was never heard, whatever the former one of its name said.
    apply(&world, &[watched("press-1")]).unwrap();
    let report = world.drive(world.engine.device(&name("press-1"))).unwrap();
    assert!(report.presence.is_none() && report.lock.is_none() && !report.is_online());
    remove(false).unwrap();
}

#[test]
fn messages_are_found_by_device_and_topic_and_the_oldest_go_when_there_is_no_room() {
    let (world, store) = world();
    apply(&world, &[device("press-1", &[])]).unwrap();
    let begin = world.now().wall;
    let message = |n: u64, device: &str, topic: &str| JournalEntry {
        kind: JournalKind::DeviceMessage,
        subject: name(device),
        at: begin + Millis(n),
        body: format!("{{\"topic\":\"{topic}\",\"n\":\"{n:09}\"}}").into_bytes().into(),
    };
    let entries = (0..2_000).map(|n| match n % 4 {
        0 => message(n, "press-1", "nord/press-1/done"),
        1 => message(n, "press-1", "nord/press-1/status"),
        _ => message(n, "unknown", "sued/x"),
    });
    commit(&world, &store, Change::Journal(entries.collect()));
    let found = |filter: &MessageFilter, limit| {
        let (mut times, mut before) = (Vec::new(), None);
        loop {
            let page = world.drive(world.engine.device_messages(filter, before, limit)).unwrap();
            times.extend(page.items.iter().map(|message| (message.entry.at - begin).0));
            before = page.next;
            if before.is_none() {
                return times;
            }
        }
    };
    let all = MessageFilter::default();
    assert_eq!(found(&all, 999), (0..2_000).rev().collect::<Vec<_>>());
    let topic = Some(TopicFilter::new("+/press-1/done").unwrap());
    let done = MessageFilter { topic: topic.clone(), ..all.clone() };
    assert_eq!(found(&done, 10), (0..2_000).rev().filter(|n| n % 4 == 0).collect::<Vec<_>>());
    let of_press = MessageFilter { device: Some(name("press-1")), ..all.clone() };
    assert_eq!(found(&of_press, 1_000).len(), 1_000);
    let recent = MessageFilter { device: Some(name("press-1")), topic, since: Some(begin + Millis(1_992)) };
    assert_eq!(found(&recent, 1_000), [1_996, 1_992]);
    let other = MessageFilter { device: Some(name("press-2")), ..all.clone() };
    assert!(found(&other, 10).is_empty());

    let bytes: u64 = {
        let kind = JournalKind::DeviceMessage;
        let sizes = world.drive(store.journal_sizes(SizeQuery { kind, after: None, limit: 10_000 })).unwrap();
        sizes.iter().map(|size| size.bytes).sum()
    };
    let janitor = Janitor::new(world.engine.clone(), Retention::default(), || windlass_core::Millis(0))
        .message_bytes(bytes / 2);
    while world.drive(janitor.run_once(world.now())).unwrap() > 0 {}
    let kept = found(&all, 1_000);
    // It counts in parts of a 256th of the limit.
    assert!((985..=1_000).contains(&kept.len()), "{}", kept.len());
    assert_eq!(kept, (2_000 - kept.len() as u64..2_000).rev().collect::<Vec<_>>());
}

#[test]
fn the_log_of_a_device_has_its_jobs_and_messages_newest_first() {
    let (world, store) = world();
    apply(&world, &[device("press-1", &[])]).unwrap();
    let log =
        |device: &str, before, limit| world.drive(world.engine.device_log(&name(device), before, limit));
    assert!(log("press-1", None, 10).unwrap().is_empty());
    assert!(matches!(log("press-2", None, 10), Err(EngineError::UnknownDevice(_))));
    let entry = |n: i64, kind, subject: &str| JournalEntry {
        kind,
        subject: name(subject),
        at: Timestamp(1_700_000_000_000 + n),
        body: format!("{{\"n\":{n}}}").into_bytes().into(),
    };
    for n in 0..6 {
        let kind = [JournalKind::DeviceJob, JournalKind::DeviceMessage][n as usize % 2];
        let entries = vec![
            entry(n, kind, "press-1"),
            entry(n, JournalKind::TriggerFired, "press-1"),
            entry(n, kind, "gone"),
        ];
        commit(&world, &store, Change::Journal(entries));
    }
    let times = |device: &str, before, limit| -> Vec<i64> {
        let entries = log(device, before, limit).unwrap();
        entries.iter().map(|entry| entry.at.0 - 1_700_000_000_000).collect()
    };
    assert_eq!(times("press-1", None, 10), [5, 4, 3, 2, 1, 0]);
    let page = log("press-1", None, 4).unwrap();
    assert_eq!(&*page[3].body, b"{\"n\":2}");
    assert_eq!(page[3].kind, JournalKind::DeviceJob);
    assert_eq!(times("press-1", Some(page[3].number), 4), [1, 0]);
    assert_eq!(times("gone", None, 1), [5], "the log outlives the device");
}
