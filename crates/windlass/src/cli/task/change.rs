//! `windlass task cancel`, `pause` and `resume`: the same for any number of tasks.

use windlass_api::{List, Task};

use super::{show::settling, steps::task_status};
use crate::cli::{connection::Context, exit::Exit, output::Style, report, table::Table};

/// What to do with each task.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    /// Undo what was touched.
    Cancel,
    /// Start nothing new.
    Pause,
    /// Go on.
    Resume,
}

/// Does it with every task, whatever becomes of the others; the exit code is that of the first refusal.
pub(crate) async fn run(change: Change, ids: &[String], context: &Context) -> anyhow::Result<Exit> {
    let client = &context.client;
    let mut changed = Vec::new();
    let mut refused = None;
    for id in ids {
        let answer = match change {
            Change::Cancel => client.cancel(id).await,
            Change::Pause => client.pause(id).await,
            Change::Resume => client.resume(id).await,
        };
        match answer.map_err(anyhow::Error::from) {
            Ok(task) => {
                if let (Change::Resume, Some(hint)) = (change, held(&task)) {
                    eprintln!("{hint}");
                }
                changed.push(task);
            }
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
    match changed.as_slice() {
        [] => {}
        [task] if ids.len() == 1 => {
            context.output.show(task, |task, style| render(std::slice::from_ref(task), style))?
        }
        _ => {
            let list = List { items: changed, next: None };
            context.output.show(&list, |list, style| render(&list.items, style))?;
        }
    }
    Ok(refused.unwrap_or(Exit::Done))
}

/// What to do about a task that no resuming gets on: it waits for a decision.
fn held(task: &Task) -> Option<String> {
    let command = settling(task)?;
    Some(format!("hint: {} is held until somebody decides: `{command}`", task.id))
}

fn render(tasks: &[Task], style: Style) -> String {
    let mut table = Table::headless();
    for task in tasks {
        table.row([(&task.id).into(), task_status(task.status)]);
    }
    table.text(style)
}
