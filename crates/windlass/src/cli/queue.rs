//! `windlass queue`: the queues of modules.

use clap::Subcommand;
use jiff::Timestamp;
use windlass_api::Queue;

use super::{connection::Context, exit::Exit, lock, output::Style};
use crate::cli::output::{
    table::{Cell, Color, Table},
    time::age,
};

/// Commands for queues.
#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// List the queues with their ready and running attempts and their workers
    List,
    /// Show one queue
    Show {
        /// Name of the module
        name: String,
    },
    /// Pause a queue: no attempt starts, running attempts finish
    Pause {
        /// Name of the module
        name: String,
    },
    /// Resume a paused queue
    Resume {
        /// Name of the module
        name: String,
    },
    /// Move an exclusive queue past the task that has it; the next task of the queue starts
    Skip {
        /// Name of the exclusive queue
        name: String,
        /// The reason, for the history of the task that has the queue
        #[arg(long)]
        reason: String,
    },
}

impl QueueCommand {
    /// Runs the command.
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let client = &context.client;
        let show = |queue: &Queue| {
            context
                .output
                .show(queue, |queue, style| render(std::slice::from_ref(queue), Timestamp::now(), style))
        };
        match self {
            Self::List => {
                let queues = client.queues().await?;
                context
                    .output
                    .show(&queues, |queues, style| render(&queues.items, Timestamp::now(), style))?;
            }
            Self::Show { name } => show(&client.queue(&name).await?)?,
            Self::Pause { name } => show(&client.pause_queue(&name).await?)?,
            Self::Resume { name } => show(&client.resume_queue(&name).await?)?,
            Self::Skip { name, reason } => {
                let queue = client.skip_queue(&name, &reason).await?;
                context.output.show(&queue, |queue, style| lock::details(queue, Timestamp::now(), style))?;
            }
        }
        Ok(Exit::Done)
    }
}

fn render(queues: &[Queue], now: Timestamp, style: Style) -> String {
    let mut table = Table::new(["QUEUE", "READY", "RUNNING", "WORKERS", "OLDEST", "STATE"]);
    for queue in queues {
        let state = if queue.paused {
            Cell::colored("paused", Some(Color::Warning))
        } else if queue.workers > 0 && queue.draining == queue.workers {
            Cell::colored("draining", Some(Color::Warning))
        } else if queue.workers == 0 && queue.ready > 0 && queue.running == 0 {
            Cell::colored("no worker", Some(Color::Bad))
        } else {
            "open".into()
        };
        table.row([
            (&queue.name).into(),
            queue.ready.to_string().into(),
            queue.running.to_string().into(),
            workers(queue).into(),
            queue.oldest_ready_at.map(|at| age(at, now)).unwrap_or_default().into(),
            state,
        ]);
    }
    table.text(style)
}

/// The number of workers of a queue, and how many of them accept no new attempts.
fn workers(queue: &Queue) -> String {
    match queue.draining {
        0 => queue.workers.to_string(),
        draining => format!("{} ({draining} draining)", queue.workers),
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn a_queue_says_what_is_wrong_with_it() {
        let now = Timestamp::constant(1_900_000_000, 0);
        let queue = |name: &str, ready, workers, paused| Queue {
            name: name.to_owned(),
            ready,
            running: if workers > 0 { 2 } else { 0 },
            oldest_ready_at: (ready > 0).then(|| now - SignedDuration::from_secs(200)),
            paused,
            workers,
            draining: 0,
        };
        let queues = [
            queue("resource", 0, 1, false),
            queue("mysql", 12, 0, false),
            queue("monitor", 3, 2, true),
            Queue { draining: 1, ..queue("backup", 3, 1, false) },
            Queue { draining: 1, ..queue("mail", 3, 2, false) },
        ];
        assert_snapshot!(render(&queues, now, Style::PLAIN), @"
        QUEUE     READY  RUNNING  WORKERS         OLDEST  STATE
        resource  0      2        1                       open
        mysql     12     0        0               3m ago  no worker
        monitor   3      2        2               3m ago  paused
        backup    3      2        1 (1 draining)  3m ago  draining
        mail      3      2        2 (1 draining)  3m ago  open
        ");
    }
}
