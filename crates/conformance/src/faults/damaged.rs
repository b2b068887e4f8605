//! Damaged rows: each affects its own task only.

use windlass_core::{Command, Millis, TaskId, TaskStatus, Wakeup};
use windlass_store::{ADOPTION_GRACE, Due, StoreError, TaskQuery};

use crate::{
    World,
    history::line,
    topic,
    world::{FIRST, tasks_of},
};

topic![
    a_damaged_task_stops_no_timer,
    a_damaged_task_stops_no_queue,
    a_damaged_task_is_left_out_of_lists,
    a_page_of_damaged_tasks_is_passed,
];

/// The number of tasks in these cases: more than eager resident stores read at once.
const TASKS: usize = 7;

/// The index of the damaged task: in the middle of those read together.
const DAMAGED: usize = 3;

/// Submits tasks, damages one of them, and reopens the store. `None` = the store cannot be damaged.
async fn damaged(world: &mut World, delay: Millis) -> Option<(Vec<TaskId>, TaskId)> {
    let flow = world.add_flow(line("flow", 1)).await;
    let at = (delay > Millis(0)).then(|| world.now.wall + delay);
    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        tasks.push(world.submit_with(&flow, |input| input.at = at).await);
        world.pass(Millis(1));
    }
    let damaged = tasks.remove(DAMAGED);
    if !world.reopen_damaged(damaged).await {
        return None;
    }
    world.pass(ADOPTION_GRACE);
    let _ = world.due().await;
    world.pass(ADOPTION_GRACE);
    Some((tasks, damaged))
}

/// A load skips the damaged task, also among others, and the store returns its error.
async fn is_quarantined(world: &mut World, sound: TaskId, damaged: TaskId) {
    let store = world.store();
    let loaded = store.load(&[sound, damaged]).await.expect("one damaged task fails no load");
    assert!(loaded[0].is_some() && loaded[1].is_none());
    let error = store.quarantine().error(damaged).expect("the store names the damaged task");
    assert!(matches!(&error, StoreError::Damaged(why) if why.contains(&damaged.to_string())), "{error}");
    assert_eq!(store.quarantine().error(sound), None);
    let unreported: Vec<TaskId> = store.quarantine().unreported().iter().map(|found| found.id).collect();
    assert_eq!(unreported, [damaged]);
}

async fn a_damaged_task_stops_no_timer(mut world: World) {
    let delay = Millis::from_secs(3_600);
    let Some((tasks, damaged)) = damaged(&mut world, delay).await else { return };
    world.pass(delay);
    for id in tasks.iter().copied() {
        let start = Due::Wake { task: id, wakeup: Wakeup::Start };
        assert!(world.due().await.contains(&start), "the start of a sound task is due");
        world.apply(id, Command::Wake(Wakeup::Start)).await;
    }
    // A store with timers in their own rows may report the damaged task: the engine skips it.
    let due = world.due().await;
    assert!(due.iter().all(|due| *due == Due::Wake { task: damaged, wakeup: Wakeup::Start }), "{due:?}");
    is_quarantined(&mut world, tasks[0], damaged).await;
}

async fn a_damaged_task_stops_no_queue(mut world: World) {
    let Some((tasks, damaged)) = damaged(&mut world, Millis(0)).await else { return };
    let session = world.session(1).await;
    let mut done = Vec::new();
    for _ in 0..=TASKS {
        let claimed = world.claim(session, 2).await;
        for claimed in claimed.iter().filter(|claimed| claimed.id.task != damaged) {
            world.succeed(claimed, None).await;
        }
        done.extend(tasks_of(&claimed));
    }
    done.retain(|id| *id != damaged);
    assert_eq!(done, tasks, "in their order");
    assert_eq!(world.store().place(damaged, FIRST).await.map(|_| ()), Ok(()));
    is_quarantined(&mut world, tasks[0], damaged).await;
}

async fn a_damaged_task_is_left_out_of_lists(mut world: World) {
    let Some((tasks, damaged)) = damaged(&mut world, Millis::from_secs(3_600)).await else { return };
    for statuses in [Vec::new(), vec![TaskStatus::Scheduled]] {
        for limit in 1..=TASKS {
            let (mut listed, mut before) = (Vec::new(), None);
            loop {
                let query = TaskQuery { limit, before, statuses: statuses.clone(), ..TaskQuery::default() };
                let page = world.store().tasks(&query).await.expect("one damaged task fails no list");
                listed.extend(page.items.iter().map(|loaded| loaded.task.id));
                before = page.next;
                if before.is_none() {
                    break;
                }
            }
            listed.reverse();
            assert_eq!(listed, tasks, "pages of {limit}");
        }
    }
    is_quarantined(&mut world, tasks[0], damaged).await;
}

/// All tasks that are read together are damaged: the tasks behind them are still found.
async fn a_page_of_damaged_tasks_is_passed(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let at = Some(world.now.wall + Millis(1_000));
    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        tasks.push(world.submit_with(&flow, |input| input.at = at).await);
        world.pass(Millis(1));
    }
    let sound = [tasks[0], tasks[TASKS - 1]];
    for id in &tasks[1..TASKS - 1] {
        if !world.reopen_damaged(*id).await {
            return;
        }
    }
    world.pass(Millis(2_000));
    let due = world.due().await;
    for id in sound {
        assert!(due.contains(&Due::Wake { task: id, wakeup: Wakeup::Start }), "{due:?}");
    }
    for limit in 1..=TASKS {
        let query = TaskQuery { limit, ..TaskQuery::default() };
        let mut page = world.store().tasks(&query).await.expect("damaged tasks fail no list");
        let mut listed: Vec<TaskId> = page.items.iter().map(|loaded| loaded.task.id).collect();
        while let Some(before) = page.next {
            let query = TaskQuery { before: Some(before), ..query.clone() };
            page = world.store().tasks(&query).await.expect("damaged tasks fail no list");
            listed.extend(page.items.iter().map(|loaded| loaded.task.id));
        }
        assert_eq!(listed, [sound[1], sound[0]], "pages of {limit}");
    }
}
