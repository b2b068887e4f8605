//! Log lines of attempts, in the order of arrival.

use windlass_core::{ActKey, Millis, TaskId};
use windlass_store::{Change, LogLine, Outcome, Retention};

use crate::{World, history::line, topic};

topic![
    lines_keep_the_order_they_came_in,
    lines_are_read_in_pieces,
    lines_of_tasks_are_kept_apart,
    numbers_of_lines_never_come_again,
];

async fn write(world: &mut World, task: TaskId, key: ActKey, attempt: u32, lines: &[&str]) -> Vec<LogLine> {
    let at = world.now.wall;
    let lines = lines.iter().map(|line| LogLine { task, key, attempt, at, line: (*line).into() });
    let lines: Vec<LogLine> = lines.collect();
    assert_eq!(world.commit_one(Change::Logs(lines.clone())).await, Outcome::Committed);
    lines
}

async fn numbered(world: &mut World, task: TaskId, after: u64, limit: usize) -> Vec<(u64, LogLine)> {
    world.store().logs(task, after, limit).await.expect("reading logs succeeds")
}

async fn read(world: &mut World, task: TaskId) -> Vec<LogLine> {
    numbered(world, task, 0, 100).await.into_iter().map(|(_, line)| line).collect()
}

async fn lines_keep_the_order_they_came_in(mut world: World) {
    let flow = world.add_flow(line("flow", 2)).await;
    let id = world.submit(&flow).await;
    let mut expected = write(&mut world, id, ActKey::forward(1), 2, &["late step", "first"]).await;
    // The same time, an earlier step, an empty line, and special characters.
    expected.extend(
        write(&mut world, id, ActKey::forward(0), 1, &["early step, later", "", "é\t\u{1f40e}\n"]).await,
    );
    world.pass(Millis(10));
    expected.extend(write(&mut world, id, ActKey::rollback(1), 1, &["undone"]).await);
    assert_eq!(read(&mut world, id).await, expected);
}

async fn lines_are_read_in_pieces(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let id = world.submit(&flow).await;
    let mut expected = Vec::new();
    for _ in 0..4 {
        expected.extend(write(&mut world, id, ActKey::forward(0), 1, &["a", "b", "c"]).await);
        world.pass(Millis(10));
    }
    for limit in [1, 5, 12, 100] {
        let (mut found, mut after) = (Vec::new(), 0);
        loop {
            let piece = numbered(&mut world, id, after, limit).await;
            assert!(piece.len() <= limit);
            let Some((last, _)) = piece.last() else { break };
            assert!(*last > after, "numbers grow");
            after = *last;
            found.extend(piece.into_iter().map(|(_, line)| line));
        }
        assert_eq!(found, expected, "in pieces of {limit}");
    }
}

async fn lines_of_tasks_are_kept_apart(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let (one, other) = (world.submit(&flow).await, world.submit(&flow).await);
    let at = world.now.wall;
    let line = |task: TaskId, line: &str| LogLine {
        task,
        key: ActKey::forward(0),
        attempt: 1,
        at,
        line: line.into(),
    };
    let lines = vec![line(one, "1"), line(other, "2"), line(one, "3")];
    assert_eq!(world.commit_one(Change::Logs(lines.clone())).await, Outcome::Committed);
    assert_eq!(read(&mut world, one).await, [lines[0].clone(), lines[2].clone()]);
    assert_eq!(read(&mut world, other).await, [lines[1].clone()]);
    assert_eq!(read(&mut world, TaskId(7)).await, []);
}

async fn numbers_of_lines_never_come_again(mut world: World) {
    let flow = world.add_flow(line("flow", 1)).await;
    let (id, other) = (world.submit(&flow).await, world.submit(&flow).await);
    write(&mut world, id, ActKey::forward(0), 1, &["a", "b", "c"]).await;
    write(&mut world, other, ActKey::forward(0), 1, &["x"]).await;
    let seen = numbered(&mut world, id, 0, 100).await.last().map_or(0, |(number, _)| *number);
    world.pass(Millis::from_secs(60));
    let retention = Retention {
        tasks: Millis::from_secs(3600),
        logs: Millis::from_secs(30),
        audit: Millis::from_secs(60),
        keeps_unannounced: false,
        messages_until: None,
    };
    let now = world.now;
    while world.store().sweep(&retention, None, now, 100).await.expect("sweeping succeeds") > 0 {}
    assert_eq!(read(&mut world, id).await, []);
    // Also when the store was closed in between, with no line left in it.
    world.reopen().await;
    let later = write(&mut world, id, ActKey::forward(0), 1, &["d"]).await;
    let found = numbered(&mut world, id, seen, 100).await;
    assert_eq!(found.into_iter().map(|(_, line)| line).collect::<Vec<_>>(), later);
}
