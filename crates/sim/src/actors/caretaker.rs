//! An operator who cancels, pauses, resumes and settles tasks at random. Once the world is calm, the operator
//! makes every task end.

use std::{pin::Pin, rc::Rc};

use windlass_core::{
    ActState, Actor, AlarmCommand, AlarmId, Awaited, Command, Json, Lock, Name, Phase, Resolution, Task,
    TaskId,
};
use windlass_engine::EngineError;
use windlass_store::TaskQuery;

use super::{Live, candidate::is_led, limits, submitter::repeat};
use crate::{
    flows::SIGNAL,
    judge::Seen,
    world::{Host, World},
};

type Doing<T> = Pin<Box<dyn Future<Output = Result<T, EngineError>>>>;

/// Acts as long as the world exists.
pub(crate) async fn look_after(world: Rc<World>, person: usize) {
    let caretaker = Caretaker { host: Host::Person(person), world };
    loop {
        caretaker.world.sleep(caretaker.world.within(50..=1200)).await;
        if caretaker.world.is_calm() && caretaker.world.is_unblocking() {
            caretaker.look().await;
        } else if caretaker.world.is_calm() {
            caretaker.finish().await;
        } else if caretaker.world.chance(caretaker.world.config.interference) {
            caretaker.interfere().await;
        } else {
            caretaker.look().await;
        }
    }
}

struct Caretaker {
    world: Rc<World>,
    host: Host,
}

/// Whether a server suspends this task, as it does with tasks of lists, rather than an operator.
fn is_of_server(task: TaskId) -> bool {
    task.0.is_multiple_of(2)
}

impl Caretaker {
    /// Sends a random command to a random task.
    async fn interfere(&self) {
        let world = &self.world;
        let Some(task) = self.any_task() else { return };
        match world.below(18) {
            0 => self.tell(task.id, Command::Cancel { by: by() }).await,
            1 => self.tell(task.id, Command::Pause { by: by() }).await,
            // No draw decides, so that worlds stay what they were where this makes no difference.
            2 if is_of_server(task.id) => self.tell(task.id, Command::Suspend { by: by() }).await,
            2 => self.tell(task.id, Command::Stop { by: by() }).await,
            3 if is_of_server(task.id) => self.tell(task.id, Command::Continue { by: by() }).await,
            3 | 4 => self.tell(task.id, Command::Resume { by: by() }).await,
            5 => self.pause_queue("m", world.chance(500)).await,
            6 => self.pause_queue("n", world.chance(300)).await,
            7 => {
                let alarm = world.judge.borrow().truth.any_alarm(world);
                if let Some(alarm) = alarm {
                    let command = match world.chance(700) {
                        true => AlarmCommand::Acknowledge { by: by() },
                        false => AlarmCommand::Resolve { by: by() },
                    };
                    self.tell_alarm(alarm, command).await;
                }
            }
            8 | 9 => self.signal(task.id, world.chance(700)).await,
            10..=12 => self.limit().await,
            13 | 15 => self.seize_lock().await,
            14 => self.skip_queue().await,
            _ => self.resolve(&task).await,
        }
    }

    /// Makes tasks end.
    async fn finish(&self) {
        for queue in ["m", "n"] {
            self.pause_queue(queue, false).await;
        }
        let names: Vec<Name> = self.world.judge.borrow().truth.spoiled_locks();
        for name in names {
            self.seize(name).await;
        }
        let names: Vec<Name> = self.world.judge.borrow().truth.closed_limits();
        for name in names {
            self.world.tell(|| format!("somebody removes the damaged limit {name}"));
            self.ask(move |live| {
                let name = name.clone();
                Box::pin(async move { live.engine.remove_limit(name).await })
            })
            .await;
        }
        let tasks: Vec<Rc<Task>> = self.world.judge.borrow().truth.readable();
        for task in tasks {
            if task.state.pause.is_paused() {
                self.tell(task.id, Command::Resume { by: by() }).await;
            }
            if task.state.stuck.is_some() {
                self.resolve(&task).await;
            }
            if task.open_acts().any(|(_, act)| act.state == ActState::Awaiting(Awaited::Signal)) {
                self.signal(task.id, false).await;
            }
        }
    }

    /// Settles the step that the task waits for, or tries to.
    async fn resolve(&self, task: &Task) {
        let world = &self.world;
        let stuck = task.state.stuck.as_ref().and_then(|stuck| stuck.step);
        let any = usize::try_from(world.below(task.state.steps.len() as u64)).unwrap_or(0);
        let resolution = match world.below(5) {
            0 => Resolution::Retry(None),
            1 => Resolution::Retry(Json::parse("{\"size\":3,\"missing\":1}").ok()),
            2 => Resolution::Skip,
            3 => Resolution::Done(None),
            _ if task.state.phase == Phase::Backward => Resolution::Skip,
            _ => Resolution::Rollback,
        };
        self.tell(task.id, Command::Resolve { step: stuck.unwrap_or(any), resolution, by: by() }).await;
    }

    /// Sends the signal that steps wait for: it is stored, or refused if no step waits for it now.
    async fn signal(&self, id: TaskId, keep: bool) {
        let Ok(name) = Name::new(SIGNAL) else { return };
        let params = self.world.chance(500).then(|| Json::parse("{\"go\":true}").ok()).flatten();
        self.tell(id, Command::Signal { name, params, keep, by: by() }).await;
    }

    /// Reads tasks as clients see them.
    async fn look(&self) {
        let world = &self.world;
        if world.chance(300) {
            let shown = self
                .ask(|live| {
                    Box::pin(async move {
                        let query = TaskQuery { limit: 10, ..TaskQuery::default() };
                        Ok(live.engine.tasks(&query).await?.items)
                    })
                })
                .await;
            for loaded in shown.into_iter().flatten() {
                world.see(Seen::Shown { task: loaded.task.id, events: loaded.task.state.events });
            }
        } else if let Some(task) = self.any_task() {
            let id = task.id;
            let shown = self.ask(move |live| Box::pin(async move { live.engine.task(id).await })).await;
            if let Some(loaded) = shown {
                world.see(Seen::Shown { task: loaded.task.id, events: loaded.task.state.events });
            }
        }
    }

    fn any_task(&self) -> Option<Rc<Task>> {
        self.world.judge.borrow().truth.any_task(&self.world)
    }

    async fn tell(&self, id: TaskId, command: Command) {
        let world = &self.world;
        let name = match &command {
            Command::Cancel { .. } => "command: cancel",
            Command::Pause { .. } => "command: pause",
            Command::Stop { .. } => "command: stop",
            Command::Suspend { .. } => "command: suspend",
            Command::Continue { .. } => "command: continue",
            Command::Resume { .. } => "command: resume",
            Command::Resolve { resolution: Resolution::Retry(None), .. } => "command: resolve retry",
            Command::Resolve { resolution: Resolution::Retry(Some(_)), .. } => {
                "command: resolve retry, amended"
            }
            Command::Signal { .. } => "command: signal",
            Command::Resolve { resolution: Resolution::Skip, .. } => "command: resolve skip",
            Command::Resolve { resolution: Resolution::Done(_), .. } => "command: resolve done",
            Command::Resolve { resolution: Resolution::Rollback, .. } => "command: resolve rollback",
            _ => "command: other",
        };
        world.tell(|| format!("task {id}: somebody asks for {command:?}"));
        let asked = command.clone();
        let told = self
            .ask(move |live| {
                let command = asked.clone();
                Box::pin(async move { live.engine.tell(id, command).await })
            })
            .await;
        if let Some(loaded) = told {
            world.count(name);
            world.see(Seen::Told { task: id, events: loaded.task.state.events });
        }
    }

    async fn tell_alarm(&self, id: AlarmId, command: AlarmCommand) {
        let told = self
            .ask(move |live| {
                let (id, command) = (id.clone(), command.clone());
                Box::pin(async move { live.engine.tell_alarm(id, command).await })
            })
            .await;
        if told.is_some() {
            self.world.count("command: alarm");
        }
    }

    async fn pause_queue(&self, queue: &'static str, paused: bool) {
        let told = self
            .ask(move |live| {
                Box::pin(async move {
                    let Ok(name) = Name::new(queue) else { return Ok(()) };
                    live.engine.set_queue_paused(name, paused, by(), live.now()).await
                })
            })
            .await;
        if told.is_some() {
            self.world.count(if paused { "command: queue pause" } else { "command: queue resume" });
        }
    }

    /// Sets a limit, replaces one, or removes one.
    async fn limit(&self) {
        let world = &self.world;
        let Some(limit) = limits::draw(world) else { return };
        let removed = world.chance(200);
        world.tell(|| format!("somebody {} {limit:?}", if removed { "removes" } else { "sets" }));
        let told = self
            .ask(move |live| {
                let limit = limit.clone();
                Box::pin(async move {
                    if removed {
                        live.engine.remove_limit(limit.name).await
                    } else {
                        live.engine.set_limit(limit).await
                    }
                })
            })
            .await;
        if told.is_some() {
            world.count(if removed { "command: limit removed" } else { "command: limit set" });
        }
    }

    /// Takes a random lock from its holder.
    async fn seize_lock(&self) {
        let world = &self.world;
        let names: Vec<Name> = {
            let judge = world.judge.borrow();
            let locks = judge.truth.post.locks.values().filter(|lock| !is_led(&lock.name));
            locks.map(|lock| lock.name.clone()).collect()
        };
        if let Some(name) = world.choose(&names).cloned() {
            self.seize(name).await;
        }
    }

    async fn seize(&self, name: Name) {
        let world = &self.world;
        world.tell(|| format!("somebody takes the lock {name} away"));
        let told = self
            .ask(move |live| {
                let name = name.clone();
                Box::pin(async move { live.engine.seize_lock(name, "it took too long", by()).await })
            })
            .await;
        if told.is_some() {
            world.count("command: lock taken away");
        }
    }

    /// Moves a random exclusive queue past the task that has it.
    async fn skip_queue(&self) {
        let world = &self.world;
        let held = |lock: &&Lock| lock.holder.is_some_and(|holder| holder.owner.is_task());
        let names: Vec<Name> = {
            let judge = world.judge.borrow();
            judge.truth.post.locks.values().filter(held).map(|lock| lock.name.clone()).collect()
        };
        let Some(name) = world.choose(&names).cloned() else { return };
        world.tell(|| format!("somebody moves the exclusive queue {name} past its task"));
        let told = self
            .ask(move |live| {
                let name = name.clone();
                Box::pin(async move { live.engine.skip_queue(name, "it takes too long", by()).await })
            })
            .await;
        if told.is_some() {
            world.count("command: queue moved past a task");
        }
    }

    async fn ask<T: 'static>(&self, ask: impl Fn(Rc<Live>) -> Doing<T> + 'static) -> Option<T> {
        repeat(&self.world, self.host, 3, ask).await?.ok()
    }
}

fn by() -> Option<Actor> {
    Some(Actor { name: "caretaker".into(), claimed: true })
}
