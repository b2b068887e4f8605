//! Checks that a server's reasons are sufficient: asks why a task waits, removes exactly that blocker, and
//! expects the task to move. Meanwhile there are no faults, and no other operator acts.

use std::{pin::Pin, rc::Rc};

use windlass_core::{
    ActKey, Actor, Command, Json, Name, Resolution, ResolutionKind, Task, TaskId, Timestamp, choices,
};
use windlass_engine::{EngineError, Reason, Why};

use super::{Live, asker, submitter::repeat, worker::start_spare_workers};
use crate::{
    answer::{Answer, taken_away},
    judge::Seen,
    world::{Host, World},
};

/// The number of tasks tried in a world.
const TASKS_MAX: usize = 12;

/// How often another blocker may appear behind a removed one before the task has moved.
const ROUNDS_MAX: usize = 300;

/// How long a task may take to move after its blocker was removed: hanging attempts end with their timeouts,
/// and leases of killed workers must end.
const PATIENCE_MS: u64 = 180_000;

/// How long calls of others may still be in transit after these actors have stopped.
const LATE_MS: u64 = 20_000;

/// How long the blocker of the task that has an exclusive queue may need, until that task is asked again.
const HOLDER_MS: u64 = 5_000;

type Doing = Pin<Box<dyn Future<Output = Result<(), EngineError>>>>;

/// Removes the blockers of some tasks, one after another.
pub(crate) async fn unblock_tasks(world: Rc<World>, person: usize) {
    let unblocker = Unblocker { host: Host::Person(person), world };
    for _ in 0..TASKS_MAX {
        let unfinished = unblocker.world.judge.borrow().truth.unfinished();
        let Some(task) = unblocker.world.choose(&unfinished).map(|task| task.id) else { break };
        unblocker.unblock(task).await;
    }
    unblocker.world.set_unblocking(false);
}

struct Unblocker {
    world: Rc<World>,
    host: Host,
}

impl Unblocker {
    /// Removes the blocker of the task, and further ones that appear behind it, until the task moves.
    async fn unblock(&self, task: TaskId) {
        let mut named = Vec::new();
        for _ in 0..ROUNDS_MAX {
            let answer = self.ask(task).await;
            let (about, reason) = answer.deepest();
            let Some(before) = self.task(about).filter(|before| !before.is_ended()) else { return };
            self.world.tell(|| format!("task {about}: it is taken at its word that it waits for {reason:?}"));
            self.take_away(&before, &reason).await;
            if self.moves(task, &before, &answer).await {
                self.world.count("blocker taken away, and the task moved");
                return;
            }
            named.push(identity(about, &reason));
        }
        self.complain(task, format!("has not moved although all of {named:?} were taken away"));
    }

    /// Waits until the task has moved, or waits for something else.
    async fn moves(&self, asked_of: TaskId, before: &Task, answer: &Answer) -> bool {
        let (about, reason) = answer.deepest();
        let begun = self.world.now();
        // What waits for a time is late only after that time, which a clock that was set back puts off.
        let mut due_since = begun;
        loop {
            if self.task(about).is_none_or(|now| has_moved(before, &now)) {
                return true;
            }
            self.world.sleep(self.world.within(20..=1000)).await;
            let again = self.ask(asked_of).await;
            let (now_about, now_reason) = again.deepest();
            if identity(about, &reason) != identity(now_about, &now_reason) {
                return self.task(about).is_none_or(|now| has_moved(before, &now));
            }
            let is_held_up = matches!(reason.why, Why::Exclusive { holder: Some(_), .. });
            if is_held_up && self.world.now() > begun + HOLDER_MS {
                // The task that has the queue may wait for something else by now.
                return false;
            }
            let is_paused = matches!(reason.why, Why::QueuePaused { .. } | Why::Paused { .. });
            if is_paused && self.world.now() > begun + LATE_MS {
                // A call in transit has paused the task again: repeat.
                return false;
            }
            if is_still_to_come(&reason.why, again.now.wall) {
                due_since = self.world.now();
                continue;
            }
            if self.world.now() > due_since + PATIENCE_MS && self.world.is_unblocking() {
                let message = format!("does not move although this was taken away: {reason:?}");
                self.complain(about, message);
                return true;
            }
        }
    }

    fn complain(&self, task: TaskId, message: String) {
        self.world.see(Seen::Unexplained { task, message: format!("task {task} {message}") });
    }

    fn task(&self, id: TaskId) -> Option<Rc<Task>> {
        self.world.judge.borrow().truth.tasks.get(&id).map(|known| known.task.clone())
    }

    async fn ask(&self, task: TaskId) -> Rc<Answer> {
        loop {
            if let Some(answer) = asker::ask(&self.world, self.host, task).await {
                return answer;
            }
            self.world.sleep(100).await;
        }
    }

    /// Removes the named blocker, and nothing else. Some blockers end by themselves.
    async fn take_away(&self, task: &Task, reason: &Reason) {
        self.world.count(taken_away(&reason.why));
        let (id, by) = (task.id, by());
        match &reason.why {
            Why::Paused { .. } => self.tell(id, Command::Resume { by }).await,
            Why::Stuck { .. } => self.tell(id, self.settle(task, reason.key)).await,
            Why::Signal { name, .. } => {
                let signal = Command::Signal { name: name.clone(), params: None, keep: false, by };
                self.tell(id, signal).await;
            }
            Why::QueuePaused { module, .. } => self.resume_queue(module).await,
            Why::Limited { state, .. } => self.lift_limit(&state.limit.name).await,
            Why::Lock { name, holder: Some(_), .. } => self.seize_lock(name).await,
            // A damaged queue is closed until an operator opens it.
            Why::Exclusive { queue, holder: Some(holder), .. } if holder.task == TaskId::NONE => {
                self.seize_lock(queue).await;
            }
            Why::Exclusive { holder: Some(holder), .. } => {
                let answer = self.ask(holder.task).await;
                let (about, reason) = answer.deepest();
                if let Some(task) = self.task(about) {
                    Box::pin(self.take_away(&task, &reason)).await;
                }
            }
            Why::NoWorker { .. } => start_spare_workers(&self.world),
            // Other blockers end by themselves: a time, a turn, the end of an attempt.
            _ => {}
        }
    }

    /// A random decision of an operator for a step that waits for one.
    fn settle(&self, task: &Task, key: Option<ActKey>) -> Command {
        let Some(key) = key else { return Command::Resume { by: by() } };
        let mut choices = choices(task).to_vec();
        if task.state.steps[key.step].members.is_some() {
            // Items keep their elements, so a retry may end like the last try.
            choices.retain(|choice| *choice != ResolutionKind::Retry);
        }
        let resolution = match self.world.choose(&choices) {
            Some(ResolutionKind::Skip) => Resolution::Skip,
            Some(ResolutionKind::Done) => Resolution::Done(None),
            Some(ResolutionKind::Rollback) => Resolution::Rollback,
            // The step may have failed because of its parameters: with these every flow can succeed.
            _ => Resolution::Retry(Json::parse("{\"size\":3,\"list\":[1,2],\"missing\":1}").ok()),
        };
        Command::Resolve { step: key.step, resolution, by: by() }
    }

    async fn tell(&self, id: TaskId, command: Command) {
        self.world.tell(|| format!("task {id}: {command:?} takes away what it waits for"));
        self.call(move |live| {
            let command = command.clone();
            Box::pin(async move { live.engine.tell(id, command).await.map(drop) })
        })
        .await;
    }

    async fn resume_queue(&self, queue: &Name) {
        let queue = queue.clone();
        self.call(move |live| {
            let queue = queue.clone();
            Box::pin(
                async move { live.engine.set_queue_paused(queue, false, by(), live.now()).await.map(drop) },
            )
        })
        .await;
    }

    async fn lift_limit(&self, name: &Name) {
        let name = name.clone();
        self.call(move |live| {
            let name = name.clone();
            Box::pin(async move { live.engine.remove_limit(name).await })
        })
        .await;
    }

    async fn seize_lock(&self, name: &Name) {
        let name = name.clone();
        self.call(move |live| {
            let name = name.clone();
            Box::pin(
                async move { live.engine.seize_lock(name, "somebody waits for it", by()).await.map(drop) },
            )
        })
        .await;
    }

    async fn call(&self, ask: impl Fn(Rc<Live>) -> Doing + 'static) {
        repeat(&self.world, self.host, 40, ask).await;
    }
}

/// Whether any of the task's steps has changed.
fn has_moved(before: &Task, now: &Task) -> bool {
    before.state.phase != now.state.phase || before.state.steps != now.state.steps
}

/// Whether a reason names a time that this clock has not reached.
fn is_still_to_come(why: &Why, now: Timestamp) -> bool {
    match why {
        Why::Scheduled { at } | Why::DeadlineFirst { at } => now < *at,
        Why::Retry { until, .. } | Why::Postponed { until, .. } | Why::Delayed { until } => now < *until,
        Why::Limited { state, .. } => state.next_start_at.is_some_and(|at| now < at),
        _ => false,
    }
}

/// Identifies a reason: stays the same as long as the reason does.
fn identity(task: TaskId, reason: &Reason) -> String {
    let what = match &reason.why {
        Why::Running(at) | Why::Ending(at) => format!("{} {}", at.attempt, at.worker),
        Why::Retry { attempt, until, .. } | Why::Postponed { attempt, until, .. } => {
            format!("{attempt} {until:?}")
        }
        Why::Delayed { until } => format!("{until:?}"),
        Why::Lock { name, holder, before, .. } | Why::Exclusive { queue: name, holder, before, .. } => {
            format!("{name} {holder:?} {before}")
        }
        Why::Limited { state, .. } => state.limit.name.to_string(),
        Why::Queued { before, .. } => before.to_string(),
        Why::Child { task, child } => {
            let status = child.as_ref().map(|child| child.status);
            format!("{task:?} {status:?}")
        }
        _ => String::new(),
    };
    format!("task {task} {:?} {} {what}", reason.key, reason.why.as_str())
}

fn by() -> Option<Actor> {
    Some(Actor { name: "unblocker".into(), claimed: true })
}
