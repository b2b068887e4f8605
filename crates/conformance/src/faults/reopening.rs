//! Committed changes are there when the store is reopened, and work continues.

use windlass_core::{Command, Millis, Wakeup};
use windlass_store::{
    ADOPTION_GRACE, Adoption, Change, Due, LogLine, Outcome, QueueChange, QueuePause, SubmitKey, TaskQuery,
};

use crate::{
    World,
    history::{json, line, name},
    storing::messages::{deliver, held},
    topic,
    world::{FIRST, tasks_of, work},
};

topic![
    tasks_are_there_after_a_reopening,
    what_belongs_to_tasks_is_there_after_a_reopening,
    the_catalogue_alarms_and_pauses_are_there_after_a_reopening,
    messages_and_due_times_are_there_after_a_reopening,
    ready_attempts_are_handed_out_after_the_grace,
    what_workers_have_is_theirs_after_a_reopening,
    what_nobody_names_is_handed_out_again,
    claim_numbers_grow_over_reopenings,
    an_empty_store_opens_again,
];

async fn tasks_are_there_after_a_reopening(mut world: World) {
    let flow = world.add_flow(line("flow", 3)).await;
    let session = world.session(1).await;
    let mut tasks = Vec::new();
    for number in 0..6 {
        let id =
            world.submit_with(&flow, |input| input.params = json(&format!(r#"{{"n": {number}}}"#))).await;
        let claimed = world.claim_one(session).await;
        match number {
            0 => world.fail(&claimed).await,
            1 => {
                world.succeed(&claimed, Some(json(r#"{"a": 1}"#))).await;
                let claimed = world.claim_one(session).await;
                world.succeed(&claimed, Some(json(r#"{"b": 2}"#))).await;
                let claimed = world.claim_one(session).await;
                world.succeed(&claimed, None).await
            }
            2 => {
                world.succeed(&claimed, Some(json(r#"{"a": 1}"#))).await;
                world.apply(id, Command::Pause { by: None }).await
            }
            _ => world.succeed(&claimed, Some(json(r#"{"a": 3}"#))).await,
        };
        // Ready attempts are claimed, so that the next task's step is the one that is handed out.
        world.claim(session, 9).await;
        tasks.push(world.load(id).await.task);
        world.pass(Millis(10));
    }
    let key = world.store().token_key();
    for _ in 0..2 {
        world.reopen().await;
        assert_eq!(world.store().token_key(), key);
        for task in &tasks {
            assert_eq!(world.load(task.id).await.task, *task);
        }
        let query = TaskQuery { limit: 4, ..TaskQuery::default() };
        let page = world.store().tasks(&query).await.expect("listing tasks succeeds");
        let newest: Vec<_> = tasks.iter().rev().map(|task| task.id).take(4).collect();
        assert_eq!(page.items.iter().map(|loaded| loaded.task.id).collect::<Vec<_>>(), newest);
    }
    // The tasks can also continue from there.
    let stale = world.decide(tasks[4].id, &Command::Cancel { by: None }).await;
    world.apply(tasks[4].id, Command::Pause { by: None }).await;
    assert_eq!(world.commit_one(stale).await, Outcome::Conflict);
}

async fn what_belongs_to_tasks_is_there_after_a_reopening(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let mut ids = Vec::new();
    for (scope, cancelled) in [(1, true), (2, false)] {
        let mut change = world.new_task(&flow, |_| {});
        change.submit_key = Some(SubmitKey { scope: [scope; 32], fingerprint: [scope + 10; 32] });
        let id = change.task.id;
        assert_eq!(world.commit_one(change).await, Outcome::Committed);
        let log = LogLine { task: id, key: FIRST, attempt: 1, at: world.now.wall, line: "said".into() };
        assert_eq!(world.commit_one(Change::Logs(vec![log])).await, Outcome::Committed);
        if cancelled {
            world.apply(id, Command::Cancel { by: None }).await;
        }
        ids.push(id);
    }
    world.reopen().await;
    for (id, scope) in ids.into_iter().zip([1, 2]) {
        let events = world.store().events(id, 0, 100).await.expect("reading events succeeds");
        assert_eq!(events.len() as u64, world.load(id).await.task.state.events);
        let logs = world.store().logs(id, 0, 100).await.expect("reading logs succeeds");
        assert_eq!(logs.iter().map(|(_, log)| &*log.line).collect::<Vec<_>>(), ["said"]);
        let mut again = world.new_task(&flow, |_| {});
        again.submit_key = Some(SubmitKey { scope: [scope; 32], fingerprint: [99; 32] });
        let taken = Outcome::KeyTaken { task: id, fingerprint: [scope + 10; 32] };
        assert_eq!(world.commit_one(again).await, taken);
    }
}

async fn the_catalogue_alarms_and_pauses_are_there_after_a_reopening(mut world: World) {
    world.add_flow(line("flow", 1)).await;
    let second = world.add_flow(windlass_core::Flow { version: 2, ..line("flow", 2) }).await;
    held(&mut world).await;
    deliver(&mut world).await;
    let alarms = world.store().alarms(true, 10).await.expect("listing alarms succeeds");
    let pause = QueuePause { at: world.now.wall, by: None };
    for queue in ["work", "other"] {
        let paused = Some(pause.clone());
        world.commit_one(Change::Queue(QueueChange { name: name(queue), paused })).await;
    }
    world.commit_one(Change::Queue(QueueChange { name: name("other"), paused: None })).await;
    world.submit(&second).await;
    world.reopen().await;
    let flows = world.store().flows().await.expect("listing flows succeeds");
    assert_eq!(flows.iter().map(|stored| stored.flow.version).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(flows[0].flow, second);
    assert!(world.store().flow("flow", Some(1)).await.expect("reading flows succeeds").is_some());
    assert_eq!(world.store().alarms(true, 10).await.expect("listing alarms succeeds"), alarms);
    let stored = world.store().alarm(&alarms[0].id).await.expect("reading an alarm succeeds");
    assert_eq!(stored.map(|stored| stored.version), Some(1));
    world.pass(ADOPTION_GRACE);
    let session = world.session(1).await;
    assert!(world.claim(session, 9).await.is_empty(), "the queue is still paused");
    let queues = world.store().queues().await.expect("listing queues succeeds");
    let paused: Vec<_> =
        queues.iter().filter(|queue| queue.paused.is_some()).map(|queue| &queue.name).collect();
    assert_eq!(paused, [&work()]);
    world.commit_one(Change::Queue(QueueChange { name: work(), paused: None })).await;
    assert_eq!(world.claim(session, 9).await.len(), 1);
}

async fn messages_and_due_times_are_there_after_a_reopening(mut world: World) {
    held(&mut world).await;
    held(&mut world).await;
    let messages = world.messages().await;
    assert_eq!(messages.len(), 2);
    let change = crate::storing::messages::delivery(&mut world, &messages[0]).await;
    assert_eq!(world.commit_one(Change::Alarm(change)).await, Outcome::Committed);
    let mut flow = line("flow", 1);
    flow.steps[0].run.retry.max = 1;
    let flow = world.add_flow(flow).await;
    let at = world.now.wall + Millis(2_000);
    let scheduled = world.submit_with(&flow, |input| input.at = Some(at)).await;
    let delayed = world.submit(&flow).await;
    let session = world.session(1).await;
    let claimed = world.claim_one(session).await;
    world.fail(&claimed).await;
    world.reopen().await;
    assert_eq!(world.messages().await, messages[1..]);
    assert_eq!(world.due().await, []);
    world.pass(Millis(2_000));
    let start = Due::Wake { task: scheduled, wakeup: Wakeup::Start };
    let retry = Due::Wake { task: delayed, wakeup: Wakeup::Act(FIRST) };
    assert_eq!(world.due().await, [retry, start]);
    world.apply(delayed, Command::Wake(Wakeup::Act(FIRST))).await;
    world.apply(scheduled, Command::Wake(Wakeup::Start)).await;
    assert_eq!(world.due().await, []);
    let session = world.session(1).await;
    assert_eq!(tasks_of(&world.claim(session, 9).await), [scheduled, delayed]);
    deliver(&mut world).await;
    assert_eq!(world.messages().await, []);
}

async fn ready_attempts_are_handed_out_after_the_grace(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let old = world.submit(&flow).await;
    world.pass(Millis(10));
    world.reopen().await;
    let session = world.session(1).await;
    let new = world.submit(&flow).await;
    if !world.keeps_claims() {
        assert_eq!(
            tasks_of(&world.claim(session, 9).await),
            [new],
            "what was ready before waits for its worker"
        );
        world.pass(Millis(ADOPTION_GRACE.0 - 1));
        assert!(world.claim(session, 9).await.is_empty());
        world.pass(Millis(1));
        assert_eq!(tasks_of(&world.claim(session, 9).await), [old]);
    } else {
        assert_eq!(tasks_of(&world.claim(session, 9).await), [old, new]);
    }
    assert!(world.claim(session, 9).await.is_empty());
}

async fn what_workers_have_is_theirs_after_a_reopening(mut world: World) {
    let flow = world.add_flow(line("flow", 2)).await;
    let id = world.submit(&flow).await;
    let (one, other) = (world.session(1).await, world.session(2).await);
    let claimed = world.claim_one(one).await;
    world.reopen().await;
    let loaded = world.load(id).await;
    assert!(loaded.handed_out.contains(&FIRST), "a worker may have it");
    assert_eq!(loaded.claims.len(), usize::from(world.keeps_claims()));
    world.renew(one).await;
    world.renew(other).await;
    let now = world.now;
    let adopted = world.store().adopt(one, &[claimed.id], now).await.expect("an adoption succeeds");
    assert_eq!(adopted, [Adoption::Held]);
    let adopted = world.store().adopt(other, &[claimed.id], now).await.expect("an adoption succeeds");
    assert_eq!(adopted, [Adoption::Gone]);
    world.pass(ADOPTION_GRACE);
    assert!(world.claim(other, 9).await.is_empty());
    let claims = world.load(id).await.claims;
    assert_eq!(
        claims.iter().map(|claim| (claim.session, claim.number)).collect::<Vec<_>>(),
        [(one, claimed.id.claim)]
    );
    world.succeed(&claimed, None).await;
    assert_eq!(world.claim_one(other).await.id.key, windlass_core::ActKey::forward(1));
}

async fn what_nobody_names_is_handed_out_again(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let id = world.submit(&flow).await;
    let one = world.session(1).await;
    let early = world.claim_one(one).await;
    world.reopen().await;
    world.pass(Millis(60_000));
    if world.keeps_claims() {
        assert_eq!(world.lost().await, [early]);
        return;
    }
    let other = world.session(2).await;
    let late = world.claim_one(other).await;
    assert_eq!((late.id.task, late.id.attempt), (id, 1));
    assert!(late.id.claim > early.id.claim, "the token of the first one is outdone");
    world.renew(one).await;
    let now = world.now;
    let adopted = world.store().adopt(one, &[early.id], now).await.expect("an adoption succeeds");
    assert_eq!(adopted, [Adoption::Gone]);
    assert_eq!(world.load(id).await.claims.len(), 1);
}

async fn claim_numbers_grow_over_reopenings(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let mut last = 0;
    for _ in 0..4 {
        world.submit(&flow).await;
        let session = world.session(1).await;
        for claimed in world.claim(session, 9).await {
            assert!(claimed.id.claim > last, "{} after {last}", claimed.id.claim);
            last = claimed.id.claim;
        }
        world.reopen().await;
    }
    assert!(last > 0);
}

async fn an_empty_store_opens_again(mut world: World) {
    world.reopen().await;
    world.reopen().await;
    let flow = world.add_flow(line("flow", 1)).await;
    let id = world.submit(&flow).await;
    let session = world.session(1).await;
    assert_eq!(world.claim_one(session).await.id.task, id, "nothing that is new waits for the grace");
}
