//! Log lines of attempts, in the order they came.

use windlass_core::{ActKey, Millis, TaskId};

use super::{World, history::line, topic};
use crate::ports::{Change, LogLine, Outcome};

topic![lines_keep_the_order_they_came_in, lines_are_read_in_pieces, lines_of_tasks_are_kept_apart];

async fn write(world: &mut World, task: TaskId, key: ActKey, attempt: u32, lines: &[&str]) -> Vec<LogLine> {
    let at = world.now.wall;
    let lines = lines.iter().map(|line| LogLine { task, key, attempt, at, line: (*line).into() });
    let lines: Vec<LogLine> = lines.collect();
    assert_eq!(world.commit_one(Change::Logs(lines.clone())).await, Outcome::Committed);
    lines
}

async fn read(world: &mut World, task: TaskId, skip: u64, limit: usize) -> Vec<LogLine> {
    world.store().logs(task, skip, limit).await.expect("reading logs succeeds")
}

async fn lines_keep_the_order_they_came_in(mut world: World) {
    let flow = world.add_flow(line("flow", 2)).await;
    let id = world.submit(&flow).await;
    let mut expected = write(&mut world, id, ActKey::forward(1), 2, &["late step", "first"]).await;
    // The same time, an earlier step, an empty line, and text of any kind.
    expected.extend(
        write(&mut world, id, ActKey::forward(0), 1, &["early step, later", "", "é\t\u{1f40e}\n"]).await,
    );
    world.pass(Millis(10));
    expected.extend(write(&mut world, id, ActKey::rollback(1), 1, &["undone"]).await);
    assert_eq!(read(&mut world, id, 0, 100).await, expected);
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
        let mut found = Vec::new();
        loop {
            let piece = read(&mut world, id, found.len() as u64, limit).await;
            assert!(piece.len() <= limit);
            if piece.is_empty() {
                break;
            }
            found.extend(piece);
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
    assert_eq!(read(&mut world, one, 0, 10).await, [lines[0].clone(), lines[2].clone()]);
    assert_eq!(read(&mut world, other, 0, 10).await, [lines[1].clone()]);
    assert_eq!(read(&mut world, TaskId(7), 0, 10).await, []);
}
