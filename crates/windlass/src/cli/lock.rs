//! `windlass lock`: shows lock holders and waiters.

use clap::Subcommand;
use jiff::Timestamp;
use windlass_api::{Direction, Lock, LockHolder, LockStep, ReleasedLock};

use super::{connection::Context, exit::Exit, output::Style};
use crate::cli::output::{
    table::{Cell, Color, Table},
    time::age,
};

/// Commands for locks.
#[derive(Debug, Subcommand)]
pub(crate) enum LockCommand {
    /// List the locks that have a holder
    List,
    /// Show a lock and its waiters
    Show {
        /// Name of the lock
        name: String,
    },
    /// Take a lock from its holder; the next waiter gets it
    Release {
        /// Name of the lock
        name: String,
        /// The reason, for the history of the task that had the lock
        #[arg(long)]
        reason: String,
    },
}

impl LockCommand {
    /// Runs the command.
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let (client, output) = (&context.client, &context.output);
        match self {
            Self::List => {
                let locks = client.locks().await?;
                output.show(&locks, |locks, style| match locks.items.as_slice() {
                    [] => "no locks\n".to_owned(),
                    locks => render(locks, Timestamp::now(), style),
                })?;
            }
            Self::Show { name } => {
                let lock = client.lock(&name).await?;
                output.show(&lock, |lock, style| details(lock, Timestamp::now(), style))?;
            }
            Self::Release { name, reason } => {
                let released = client.release_lock(&name, &reason).await?;
                output.show(&released, |released, style| told(released, Timestamp::now(), style))?;
            }
        }
        Ok(Exit::Done)
    }
}

/// One lock with its waiters.
pub(super) fn details(lock: &Lock, now: Timestamp, style: Style) -> String {
    render(std::slice::from_ref(lock), now, style) + &waiters(lock, now, style)
}

fn render(locks: &[Lock], now: Timestamp, style: Style) -> String {
    let mut table = Table::new(["LOCK", "TASK", "STEP", "SINCE", "FENCE", "WAITING"]);
    for lock in locks {
        let holder = lock.holder.as_ref();
        table.row([
            (&lock.name).into(),
            holder.map(task).unwrap_or_default().into(),
            holder.map(held_by).unwrap_or_default().into(),
            holder
                .filter(|holder| !holder.step.task.is_empty() || holder.leader.is_some())
                .map(|holder| age(holder.step.since, now))
                .unwrap_or_default()
                .into(),
            holder.map(|holder| holder.fence.to_string()).unwrap_or_default().into(),
            lock.waiting.to_string().into(),
        ]);
    }
    table.text(style)
}

fn waiters(lock: &Lock, now: Timestamp, style: Style) -> String {
    if lock.waiters.is_empty() {
        return String::new();
    }
    let mut table = Table::new(["WAITS", "TASK", "STEP", "SINCE"]);
    for (place, waiter) in (1..).zip(&lock.waiters) {
        let place: u64 = place;
        let (task, since) = (waiter.step.task.clone(), age(waiter.step.since, now));
        table.row([place.to_string().into(), task.into(), step(&waiter.step).into(), since.into()]);
    }
    let more = lock.waiting.saturating_sub(lock.waiters.len() as u64);
    let more = if more == 0 { String::new() } else { format!("and {more} more\n") };
    format!("\n{}{more}", table.text(style))
}

/// The task of a holder.
fn task(holder: &LockHolder) -> String {
    match (&holder.leader, holder.step.task.as_str()) {
        (Some(leader), _) => format!("(leader of {})", leader.name),
        (None, "") => "(closed: damaged row)".to_owned(),
        (None, task) => task.to_owned(),
    }
}

/// The step of a holder, or the id of a leader.
fn held_by(holder: &LockHolder) -> String {
    holder.leader.as_ref().map_or_else(|| step(&holder.step), |leader| leader.id.clone())
}

fn step(found: &LockStep) -> String {
    if found.exclusive {
        return "(whole task)".to_owned();
    }
    let member = found.index.map(|index| format!("[{index}]")).unwrap_or_default();
    let rollback = if found.direction == Direction::Rollback { " (rollback)" } else { "" };
    format!("{}{member}{rollback}", found.step)
}

/// What the operator took from whom.
pub(super) fn told(released: &ReleasedLock, now: Timestamp, style: Style) -> String {
    let former = &released.former;
    let mut table = Table::headless();
    let faint = |text: &str| Cell::colored(text, Some(Color::Faint));
    let from = match former.step.task.as_str() {
        _ if former.leader.is_some() => format!("{}, {}", held_by(former), task(former)),
        "" => "nobody: it was closed because its row was damaged".to_owned(),
        task if former.step.exclusive => format!("task {task}"),
        task => format!("step {} of task {task}", step(&former.step)),
    };
    table.row([faint("taken from"), from.into()]);
    table.row([
        faint("beware"),
        format!(
            "the release does not stop it: resources that check fencing tokens must refuse {} from now on",
            former.fence
        )
        .into(),
    ]);
    table.text(style) + "\n" + &render(std::slice::from_ref(&released.lock), now, style)
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use jiff::SignedDuration;
    use windlass_api::LockWaiter;

    use super::*;

    #[test]
    fn a_lock_says_who_has_it_and_who_waits() {
        let now = Timestamp::constant(1_900_000_000, 0);
        let of = |task: &str, index, seconds| LockStep {
            task: task.to_owned(),
            step: "write".to_owned(),
            exclusive: false,
            index,
            direction: Direction::Forward,
            since: now - SignedDuration::from_secs(seconds),
        };
        let lock = Lock {
            name: "disk-7".to_owned(),
            holder: Some(LockHolder { step: of("task-1", None, 200), fence: 17, leader: None }),
            waiting: 3,
            waiters: vec![LockWaiter { step: of("task-2", Some(4), 30) }],
        };
        assert_snapshot!(details(&lock, now, Style::PLAIN), @r"
        LOCK    TASK    STEP   SINCE   FENCE  WAITING
        disk-7  task-1  write  3m ago  17     3

        WAITS  TASK    STEP      SINCE
        1      task-2  write[4]  30s ago
        and 2 more
        ");
        let former = LockHolder { step: of("task-0", None, 900), fence: 16, leader: None };
        let told = told(&ReleasedLock { lock, former }, now, Style::PLAIN);
        assert!(told.contains("step write of task task-0") && told.contains("must refuse 16"), "{told}");
        assert!(told.contains("task-1"), "it says who has it now: {told}");
    }
}
