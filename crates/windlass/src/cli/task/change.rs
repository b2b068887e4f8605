//! `windlass task cancel`, `pause` and `resume` for any number of tasks.

use windlass_api::{List, Task};
use windlass_client::Error;

use super::{show::settling, steps::task_status};
use crate::cli::{
    connection::Context,
    exit::Exit,
    output::{Style, table::Table},
    report,
};

/// The change to make to each task.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    /// Roll back all steps that may have had effects.
    Cancel,
    /// Start no further steps.
    Pause,
    /// Start no further steps, and stop what runs.
    Stop,
    /// Continue.
    Resume,
}

/// Changes every task, even after a refusal. The exit code is that of the first refusal.
pub(crate) async fn run(change: Change, ids: &[String], context: &Context) -> anyhow::Result<Exit> {
    let client = &context.client;
    let (changed, refused) = each(ids, async |id| match change {
        Change::Cancel => client.cancel(id).await,
        Change::Pause => client.pause(id).await,
        Change::Stop => client.pause_and_stop(id).await,
        Change::Resume => client.resume(id).await,
    })
    .await;
    if matches!(change, Change::Resume) {
        changed.iter().filter_map(held).for_each(|hint| eprintln!("{hint}"));
    }
    show_all(ids, changed, context, render)?;
    Ok(refused.unwrap_or(Exit::Done))
}

/// Calls the server for each task. Reports refusals and continues; stops when the server is unreachable.
/// Returns the answers and the exit code of the first refusal.
pub(super) async fn each(
    ids: &[String],
    call: impl AsyncFn(&str) -> Result<Task, Error>,
) -> (Vec<Task>, Option<Exit>) {
    let mut answers = Vec::new();
    let mut refused = None;
    for id in ids {
        match call(id).await.map_err(anyhow::Error::from) {
            Ok(task) => answers.push(task),
            Err(error) => {
                let error = if ids.len() > 1 { error.context(id.clone()) } else { error };
                let exit = Exit::of_error(&error);
                report(&error);
                refused.get_or_insert(exit);
                if exit == Exit::Unreachable {
                    break;
                }
            }
        }
    }
    (answers, refused)
}

/// Shows the answers of [`each`]: the task for one id, a list for several.
pub(super) fn show_all(
    ids: &[String],
    mut tasks: Vec<Task>,
    context: &Context,
    render: impl Fn(&[Task], Style) -> String,
) -> anyhow::Result<()> {
    match (ids.len(), tasks.pop()) {
        (_, None) => Ok(()),
        (1, Some(task)) => {
            context.output.show(&task, |task, style| render(std::slice::from_ref(task), style))
        }
        (_, Some(last)) => {
            tasks.push(last);
            let list = List { items: tasks, next: None };
            context.output.show(&list, |list, style| render(&list.items, style))
        }
    }
}

/// A hint for a task that resuming does not continue, because it waits for a decision.
fn held(task: &Task) -> Option<String> {
    let command = settling(task)?;
    Some(format!("hint: {} waits for an operator: `{command}`", task.id))
}

pub(super) fn render(tasks: &[Task], style: Style) -> String {
    let mut table = Table::headless();
    for task in tasks {
        table.row([(&task.id).into(), task_status(task.status)]);
    }
    table.text(style)
}
