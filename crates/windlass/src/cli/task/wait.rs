//! `windlass task wait`: waits until each of the tasks has ended or is stuck.

use anyhow::Context as _;
use windlass_api::{List, Task};

use super::{
    hints::{self, About},
    show,
};
use crate::cli::{
    connection::Context,
    exit::Exit,
    output::{Format, Style, write},
};

/// Waits for all tasks. The exit code reports how they ended.
pub(crate) async fn run(ids: &[String], context: &Context) -> anyhow::Result<Exit> {
    let client = &context.client;
    // A missing task is reported at once, not after the hours that the others may take.
    for id in ids {
        client.task(id).await.with_context(|| id.clone())?;
    }
    let mut tasks = Vec::with_capacity(ids.len());
    for id in ids {
        let task = hints::while_waiting(client, id, About::ServerAndTask, client.wait(id))
            .await
            .with_context(|| id.clone())?;
        if context.output.format == Format::Table {
            write(&line(&task, context.output.style))?;
        }
        tasks.push(task);
    }
    let exit = of_tasks(&tasks);
    if context.output.format == Format::Json {
        match tasks.pop() {
            Some(task) if ids.len() == 1 => context.output.show(&task, |_, _| String::new())?,
            last => {
                tasks.extend(last);
                context.output.show(&List { items: tasks, next: None }, |_, _| String::new())?;
            }
        }
    }
    Ok(exit)
}

fn line(task: &Task, style: Style) -> String {
    format!("{}  {}", task.id, show::verdict(task, style))
}

/// A stuck task decides the exit code: it does not end without an operator.
fn of_tasks(tasks: &[Task]) -> Exit {
    let exits: Vec<Exit> = tasks.iter().map(Exit::of_task).collect();
    let worst = [Exit::Held, Exit::NotSucceeded].into_iter().find(|exit| exits.contains(exit));
    worst.unwrap_or(Exit::Done)
}

#[cfg(test)]
mod tests {
    use windlass_api::TaskStatus;

    use super::*;
    use crate::cli::task::fixture;

    #[test]
    fn the_exit_code_is_that_of_the_task_that_went_worst() {
        let of = |statuses: &[TaskStatus]| {
            let tasks: Vec<Task> =
                statuses.iter().map(|status| Task { status: *status, ..fixture::running() }).collect();
            of_tasks(&tasks)
        };
        assert_eq!(of(&[TaskStatus::Succeeded, TaskStatus::Succeeded]), Exit::Done);
        assert_eq!(of(&[TaskStatus::Succeeded, TaskStatus::RolledBack]), Exit::NotSucceeded);
        assert_eq!(of(&[TaskStatus::Stuck, TaskStatus::Failed, TaskStatus::Succeeded]), Exit::Held);
    }
}
