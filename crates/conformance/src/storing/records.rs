//! Records and journals.

use std::sync::Arc;

use windlass_core::{Millis, Name, Timestamp};
use windlass_store::{
    Change, JournalEntry, JournalKind, JournalQuery, JournalSize, Outcome, Record, RecordChange, RecordKind,
    Retention, SizeQuery,
};

use crate::{World, topic};

topic![
    a_record_is_there_until_it_is_deleted,
    a_change_of_another_version_is_a_conflict,
    what_builds_on_a_failed_change_fails,
    records_are_listed_by_kind_and_name,
    a_journal_is_read_from_its_newest_entry,
    a_journal_forgets_what_was_kept_long_enough,
    messages_for_which_there_is_no_room_go_the_oldest_first,
    an_audit_entry_has_the_fate_of_the_change_before_it,
];

fn name(name: &str) -> Name {
    Name::new(name).expect("a name")
}

fn body(text: &str) -> Arc<[u8]> {
    text.as_bytes().into()
}

async fn create(world: &mut World, kind: RecordKind, of: &str, text: &str) -> Record {
    let change = RecordChange::create(kind, name(of), body(text), world.now.wall);
    commit(world, change.clone()).await;
    change.record().expect("it is there")
}

async fn commit(world: &mut World, change: RecordChange) {
    assert_eq!(try_commit(world, change).await, Outcome::Committed);
}

async fn try_commit(world: &mut World, change: RecordChange) -> Outcome {
    let generation = world.store().generation();
    world.commit_one(Change::Record(change.decided_in(generation))).await
}

async fn find(world: &mut World, kind: RecordKind, of: &str) -> Option<Record> {
    let found = world.store().records_by_name(kind, &[name("other"), name(of)]).await;
    let found = found.expect("reading records succeeds");
    assert_eq!((found.len(), &found[0]), (2, &None));
    found[1].clone()
}

async fn a_record_is_there_until_it_is_deleted(mut world: World) {
    assert_eq!(find(&mut world, RecordKind::Device, "pump").await, None);
    let first = create(&mut world, RecordKind::Device, "pump", "one").await;
    assert_eq!(find(&mut world, RecordKind::Device, "pump").await, Some(first.clone()));
    assert_eq!(find(&mut world, RecordKind::Trigger, "pump").await, None, "a name of another kind");
    commit(&mut world, RecordChange::update(&first, body(""))).await;
    world.reopen().await;
    let second = find(&mut world, RecordKind::Device, "pump").await.expect("it is there");
    assert_eq!((&*second.body, second.version), (&b""[..], first.version + 1));
    commit(&mut world, RecordChange::delete(&second)).await;
    assert_eq!(find(&mut world, RecordKind::Device, "pump").await, None);
    world.reopen().await;
    assert_eq!(find(&mut world, RecordKind::Device, "pump").await, None);
}

async fn a_change_of_another_version_is_a_conflict(mut world: World) {
    let first = create(&mut world, RecordKind::Trigger, "nightly", "one").await;
    let again = RecordChange::create(RecordKind::Trigger, name("nightly"), body("x"), world.now.wall);
    assert_eq!(try_commit(&mut world, again).await, Outcome::Conflict);
    commit(&mut world, RecordChange::update(&first, body("two"))).await;
    for change in [RecordChange::update(&first, body("x")), RecordChange::delete(&first)] {
        assert_eq!(try_commit(&mut world, change).await, Outcome::Conflict);
    }
    let second = find(&mut world, RecordKind::Trigger, "nightly").await.expect("it is there");
    assert_eq!(&*second.body, b"two");
    commit(&mut world, RecordChange::delete(&second)).await;
    assert_eq!(try_commit(&mut world, RecordChange::update(&second, body("x"))).await, Outcome::Conflict);
}

async fn what_builds_on_a_failed_change_fails(mut world: World) {
    let first = create(&mut world, RecordKind::Trigger, "nightly", "one").await;
    // Somebody else brings it to the version that the second change expects.
    let other = create(&mut world, RecordKind::Trigger, "hourly", "one").await;
    commit(&mut world, RecordChange::update(&first, body("theirs"))).await;
    let generation = world.store().generation();
    let mine = RecordChange::update(&first, body("mine")).decided_in(generation);
    let after = RecordChange::update(&mine.record().expect("it is there"), body("after"));
    let beside = RecordChange::update(&other, body("beside"));
    let changes = [mine, after.decided_in(generation), beside.decided_in(generation)];
    let outcomes = world.commit(changes.into_iter().map(Change::Record).collect()).await;
    assert_eq!(outcomes, [Outcome::Conflict, Outcome::Conflict, Outcome::Committed]);
    let found = find(&mut world, RecordKind::Trigger, "nightly").await.expect("it is there");
    assert_eq!(&*found.body, b"theirs");
}

async fn records_are_listed_by_kind_and_name(mut world: World) {
    let mut expected = Vec::new();
    for of in ["Pump", "a", "b.1", "b2", "pump"] {
        expected.push(create(&mut world, RecordKind::Device, of, of).await);
        create(&mut world, RecordKind::Trigger, of, "trigger").await;
    }
    world.reopen().await;
    for limit in [1, 2, 5, 100] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = world.store().records(RecordKind::Device, after.as_ref(), limit).await;
            let page = page.expect("listing records succeeds");
            assert!(page.len() <= limit);
            let Some(last) = page.last() else { break };
            after = Some(last.name.clone());
            found.extend(page);
        }
        assert_eq!(found, expected, "in pages of {limit}");
    }
}

fn entry(kind: JournalKind, of: &str, at: Timestamp, text: &str) -> JournalEntry {
    JournalEntry { kind, subject: name(of), at, body: body(text) }
}

async fn write(world: &mut World, entries: &[JournalEntry]) {
    assert_eq!(world.commit_one(Change::Journal(entries.to_vec())).await, Outcome::Committed);
}

async fn read(world: &mut World, of: Option<&str>, limit: usize) -> Vec<JournalEntry> {
    let (mut found, mut before) = (Vec::new(), None);
    loop {
        let query = JournalQuery { kind: JournalKind::DeviceJob, subject: of.map(name), before, limit };
        let page = world.store().journal(&query).await.expect("reading a journal succeeds");
        assert!(page.len() <= limit);
        let Some((last, _)) = page.last() else { return found };
        assert!(before.is_none_or(|before| *last < before), "numbers fall");
        before = Some(*last);
        found.extend(page.into_iter().map(|(_, entry)| entry));
    }
}

async fn a_journal_is_read_from_its_newest_entry(mut world: World) {
    let at = world.now.wall;
    let mut entries: Vec<JournalEntry> = (0..5)
        .map(|n| entry(JournalKind::DeviceJob, if n == 2 { "valve" } else { "pump" }, at, &n.to_string()))
        .collect();
    write(&mut world, &entries[..3]).await;
    write(&mut world, &[entry(JournalKind::TriggerFired, "pump", at, "another journal")]).await;
    write(&mut world, &entries[3..]).await;
    world.reopen().await;
    entries.reverse();
    let of_pump: Vec<JournalEntry> =
        entries.iter().filter(|entry| entry.subject == name("pump")).cloned().collect();
    for limit in [1, 2, 100] {
        assert_eq!(read(&mut world, None, limit).await, entries);
        assert_eq!(read(&mut world, Some("pump"), limit).await, of_pump);
    }
    assert_eq!(read(&mut world, Some("nobody"), 10).await, []);
}

async fn a_journal_forgets_what_was_kept_long_enough(mut world: World) {
    const HOUR: Millis = Millis::from_secs(3600);
    let at = world.now.wall;
    write(&mut world, &[entry(JournalKind::DeviceJob, "pump", at, "job")]).await;
    write(&mut world, &[entry(JournalKind::DeviceMessage, "pump", at, "message")]).await;
    world.pass(Millis(HOUR.0 * 25));
    let later = world.now.wall;
    write(&mut world, &[entry(JournalKind::DeviceMessage, "pump", later, "later")]).await;
    let retention = Retention {
        tasks: HOUR,
        logs: Millis(HOUR.0 * 48),
        audit: Millis(HOUR.0 * 48),
        keeps_unannounced: false,
        messages_until: None,
    };
    let sweep = async |world: &mut World| {
        let now = world.now;
        while world.store().sweep(&retention, None, now, 100).await.expect("sweeping succeeds") > 0 {}
    };
    sweep(&mut world).await;
    let messages = JournalQuery { kind: JournalKind::DeviceMessage, subject: None, before: None, limit: 10 };
    let found = world.store().journal(&messages).await.expect("reading a journal succeeds");
    assert_eq!(found.iter().map(|(_, entry)| &*entry.body).collect::<Vec<_>>(), [b"later"]);
    let newest = found[0].0;
    assert_eq!(
        read(&mut world, None, 10).await.len(),
        1,
        "messages are kept for a day, jobs for as long as logs"
    );
    world.pass(Millis(HOUR.0 * 24));
    sweep(&mut world).await;
    assert_eq!(read(&mut world, None, 10).await, []);
    world.reopen().await;
    write(&mut world, &[entry(JournalKind::DeviceMessage, "pump", later, "again")]).await;
    let found = world.store().journal(&messages).await.expect("reading a journal succeeds");
    assert!(found[0].0 > newest, "numbers never come again");
}

async fn messages_for_which_there_is_no_room_go_the_oldest_first(mut world: World) {
    let begin = world.now.wall;
    let at = |n: u64| begin + Millis(n);
    let kind = JournalKind::DeviceMessage;
    // Two have one time, and their order of numbers is not that of times.
    for (n, text) in [(2, "four"), (1, "one"), (2, "twenty"), (3, "last")] {
        write(&mut world, &[entry(kind, "pump", at(n), text)]).await;
    }
    write(&mut world, &[entry(JournalKind::DeviceJob, "pump", at(1), "job")]).await;
    world.reopen().await;
    let mut found = Vec::new();
    loop {
        let after = found.last().map(|size: &JournalSize| size.place());
        let page = world
            .store()
            .journal_sizes(SizeQuery { kind, after, limit: 3 })
            .await
            .expect("reading sizes succeeds");
        assert!(page.len() <= 3);
        if page.is_empty() {
            break;
        }
        found.extend(page);
    }
    let sizes: Vec<(Timestamp, u64)> = found.iter().map(|size| (size.at, size.bytes)).collect();
    assert_eq!(sizes, [(at(1), 3), (at(2), 4), (at(2), 6), (at(3), 4)]);
    assert!(found[1].number < found[2].number);
    let retention = Retention { messages_until: Some(at(2)), ..Retention::default() };
    let mut swept = Vec::new();
    for limit in [1, 100] {
        let now = world.now;
        swept.push(world.store().sweep(&retention, None, now, limit).await.expect("sweeping succeeds"));
        let query = JournalQuery { kind, subject: None, before: None, limit: 10 };
        let kept = world.store().journal(&query).await.expect("reading a journal succeeds");
        assert_eq!(&*kept[0].1.body, b"last");
        assert!(kept.iter().all(|(_, entry)| &*entry.body != b"one"), "the oldest goes first");
        if limit > 1 {
            assert_eq!(kept.len(), 1);
        }
    }
    assert_eq!(swept, [1, 2]);
    assert_eq!(read(&mut world, None, 10).await.len(), 1, "jobs stay");
}

async fn an_audit_entry_has_the_fate_of_the_change_before_it(mut world: World) {
    let at = world.now.wall;
    let record = create(&mut world, RecordKind::Trigger, "nightly", "1").await;
    let other = create(&mut world, RecordKind::Trigger, "hourly", "1").await;
    let stale = RecordChange { before: record.version + 7, ..RecordChange::update(&record, body("2")) };
    let audit = |text: &str| Change::Audit(entry(JournalKind::Audit, "nightly", at, text));
    let journal = Change::Journal(vec![entry(JournalKind::TriggerFired, "nightly", at, "fired")]);
    let changes = vec![
        audit("about nothing"),
        Change::Record(stale),
        audit("stale"),
        audit("stale as well"),
        Change::Record(RecordChange::update(&other, body("3"))),
        audit("one"),
        audit("another one"),
        journal,
        audit("of the journal"),
    ];
    let outcomes = world.commit(changes).await;
    let (no, yes) = (Outcome::Conflict, Outcome::Committed);
    assert_eq!(outcomes, [&no, &no, &no, &no, &yes, &yes, &yes, &yes, &yes].map(Clone::clone));
    world.reopen().await;
    let query =
        JournalQuery { kind: JournalKind::Audit, subject: Some(name("nightly")), before: None, limit: 10 };
    let found = world.store().journal(&query).await.expect("reading a journal succeeds");
    let found: Vec<_> = found.iter().map(|(_, entry)| &*entry.body).collect();
    assert_eq!(found, [&b"of the journal"[..], b"another one", b"one"]);
}
