//! Stories: a flow and what happens to a task of it, written as text; what came of it, as text.
//!
//! The first lines say what the flow is; the first line that is not a setting begins the story.
//!
//! ```text
//! flow a > b c > d          steps; those of one group run in parallel, each after all of the group before
//! b: retry 2, no rollback   how a step is done: retry N, backoff fixed|none, base T, cap T, timeout T, deadline T,
//!                           start_within T
//! ~b: retry 1               how it is rolled back
//! b: when x > 1, key x      only of steps: when EXPRESSION, key EXPRESSION, delay T, signal NAME, runs FLOW, role on_error,
//!                           each LIST, parallel N (2 by default), on_partial continue|N
//! on_failure hold · retry_by module · rollback_params shared · deaths_max N · params {…} · secret NAME… · input {…} · priority N · at T ·
//! deadline T · below N: it is a child, and that many tasks stand above it
//!
//! accept [STEP…]            those steps were done by another task
//! cancel · pause · resume · hold WHY · resolve STEP retry [JSON]|skip|done [JSON]|rollback
//! signal NAME [JSON]        it is kept for later where no step waits; not so with `signal? NAME [JSON]`
//! child b ok [JSON]|fail WHY|final WHY|gone: how the task ended that b started · cancelled · undone: by its parent
//! offer b · afar b: a module that answers over a broker alone takes it · kept b: when it was taken is written down
//! take b · decline b · lose b · timeout b · park b · wake b
//! ok b [JSON] · fail b WHY · final b WHY · later b [T]
//! + T        the clock goes on by T                 wake     wakes everything that is due
//! again      the last command once more             run      every worker succeeds until nothing more is ready
//! results b  the results that b is given
//! show b     the parameters that b is given         next     the clock goes on to what is due next, and it is woken
//! ```
//!
//! `~b` is the rollback of `b`, `b[2]` its second item; `b#1` names an attempt other than the current one. A worker
//! that reports has taken.

use std::fmt::Write as _;

use windlass_core::{
    ActKey, ActState, Action, AlarmCommand, Backoff, CHILD_TIMEOUT_DEFAULT, Cause, ChildCommand, ChildEnd,
    Command, Direction, Doer, Each, Effect, Event, EventKind, Expression, Failure, Flow, Free, Json,
    LockCommand, Message, Millis, Name, OnFailure, OnPartial, Outcome, Parent, Rejection, Report, Resolution,
    RetryBy, Role, RollbackParams, StepDefinition, TaskId, Timestamp, Transition, Wakeup, act_status,
    task_status,
};

use crate::world::{START, World, anna, input};

/// Plays a story and returns what came of it.
pub(crate) fn tell(story: &str) -> String {
    let (world, lines) = begin(story);
    let mut teller = Teller { world, last: None, told: String::new() };
    for line in lines {
        writeln!(teller.told, "{line}").unwrap();
        teller.play(&line);
    }
    teller.told
}

/// What happens in a story: its events alone, and how things stand at its end.
pub(crate) fn events(story: &str) -> String {
    let is_effect = |line: &&str| line.starts_with("  ->");
    let told = tell(story);
    let lines: Vec<&str> = told.lines().filter(|line| !is_effect(line)).collect();
    let last = lines.iter().rposition(|line| line.starts_with("  =="));
    let told = lines.into_iter().enumerate();
    let kept = told.filter(|(index, line)| !line.starts_with("  ==") || Some(*index) == last);
    kept.map(|(_, line)| format!("{line}\n")).collect()
}

/// Plays a story that has no surprises and gives what stands at its end.
pub(crate) fn play(story: &str) -> World {
    let (world, lines) = begin(story);
    let mut teller = Teller { world, last: None, told: String::new() };
    for line in lines {
        teller.play(&line);
    }
    teller.world
}

/// An action with its defaults.
pub(crate) fn action(module: &str, command: &str) -> Action {
    Action::of_worker(name(module), name(command))
}

/// A flow of `groups`: the steps of one run in parallel, each after all of the group before.
pub(crate) fn flow(groups: &str) -> Flow {
    let mut steps: Vec<StepDefinition> = Vec::new();
    let mut before: Vec<usize> = Vec::new();
    for group in groups.split('>') {
        let first = steps.len();
        for step in group.split_whitespace() {
            steps.push(StepDefinition {
                rollback: Some(action("m", &format!("un{step}"))),
                ..StepDefinition::new(name(step), action("m", step), before.clone())
            });
        }
        before = (first..steps.len()).collect();
    }
    Flow { unique: None, ..Flow::new(name("story"), steps) }
}

fn begin(story: &str) -> (World, Vec<String>) {
    let mut lines = story.lines().map(str::trim).filter(|line| !line.is_empty()).peekable();
    let groups =
        lines.next().and_then(|line| line.strip_prefix("flow ")).expect("a story begins with a flow");
    let (mut flow, mut input) = (flow(groups), input(None));
    while let Some(line) = lines.peek() {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "on_failure" => flow.on_failure = OnFailure::Hold,
            "retry_by" => flow.retry_by = RetryBy::Module,
            "rollback_params" => flow.rollback_params = rollback_params(rest),
            "deaths_max" => flow.deaths_max = rest.parse().unwrap(),
            "deadline" => flow.deadline = Some(span(rest)),
            "params" => flow.params = Some(rest.into()),
            "secret" => flow.secret = rest.split_whitespace().map(name).collect(),
            "input" => input.params = Json::parse(rest).unwrap(),
            "priority" => input.priority = rest.parse().unwrap(),
            "exclusive" => input.exclusive = Some(name(rest)),
            "at" => input.at = Some(START + span(rest)),
            "below" => {
                let key = ActKey::forward(4);
                input.parent = Some(Parent {
                    task: TaskId(5),
                    key,
                    attempt: 1,
                    depth: rest.parse().unwrap(),
                    top: TaskId(5),
                });
            }
            _ => match word.strip_suffix(':') {
                Some(act) => rest.split(',').for_each(|setting| set(&mut flow, act, setting.trim())),
                None => break,
            },
        }
        lines.next();
    }
    (World::new(flow, input), lines.map(str::to_owned).collect())
}

fn set(flow: &mut Flow, act: &str, setting: &str) {
    let (undo, step) = (act.starts_with('~'), act.trim_start_matches('~'));
    let index = flow.step_index(step).expect("the step is there");
    let step = &mut flow.steps[index];
    if setting == "no rollback" {
        step.rollback = None;
        return;
    }
    let (word, value) = setting.split_once(' ').expect("a setting has a value");
    match word {
        "when" => return step.when = Some(Expression::compile(value).unwrap()),
        "key" => return step.key = Some(Expression::compile(value).unwrap()),
        "each" => return step.each = Some(Each { list: value.into(), parallel: 2 }),
        "parallel" => return step.each.as_mut().unwrap().parallel = value.parse().unwrap(),
        "on_partial" => return step.on_partial = partial(value),
        "delay" => return step.delay = Some(span(value)),
        "signal" => {
            step.run.doer = Doer::Signal { name: name(value) };
            return step.rollback = None;
        }
        "runs" => {
            step.run = Action {
                doer: Doer::Flow { name: name(value) },
                timeout: CHILD_TIMEOUT_DEFAULT,
                ..step.run.clone()
            };
            return step.rollback = None;
        }
        "role" if value == "on_error" => return step.role = Role::OnError,
        _ => {}
    }
    let action = if undo { step.rollback.as_mut().unwrap() } else { &mut step.run };
    match word {
        "retry" => action.retry.max = value.parse().unwrap(),
        "backoff" if value == "fixed" => action.retry.backoff = Backoff::Fixed,
        "backoff" if value == "none" => action.retry.backoff = Backoff::None,
        "base" => action.retry.base = span(value),
        "cap" => action.retry.cap = span(value),
        "timeout" => action.timeout = span(value),
        "deadline" => action.deadline = Some(span(value)),
        "start_within" => action.start_within = Some(span(value)),
        _ => panic!("no such setting: {setting}"),
    }
}

fn rollback_params(text: &str) -> RollbackParams {
    match text {
        "shared" => RollbackParams::Shared,
        "step_and_result" => RollbackParams::StepAndResult,
        _ => panic!("no such parameters: {text}"),
    }
}

fn partial(text: &str) -> OnPartial {
    match text {
        "continue" => OnPartial::Continue,
        least => OnPartial::AtLeast(least.parse().unwrap()),
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn span(text: &str) -> Millis {
    match text.strip_suffix("ms") {
        Some(ms) => Millis(ms.parse().unwrap()),
        None => Millis::from_secs(text.trim_end_matches('s').parse().unwrap()),
    }
}

struct Teller {
    world: World,
    last: Option<Command>,
    told: String,
}

impl Teller {
    fn play(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "+" => self.world.now = self.world.now + span(rest),
            "take" if self.world.offered.remove(&self.key(rest).0) => {}
            "take" => self.world.take(self.key(rest).0),
            "offer" => self.world.offer(self.key(rest).0),
            "afar" => self.world.take_afar(self.key(rest).0),
            "decline" => drop(self.world.held.remove(&self.key(rest).0)),
            "show" => {
                let params = self.world.task.params_for(self.key(rest).0);
                writeln!(self.told, "    {params}").unwrap();
            }
            "results" => {
                let results = self.world.task.results_for(self.key(rest).0);
                writeln!(self.told, "    {}", results.unwrap_or_else(Json::empty)).unwrap();
            }
            "again" => self.apply(self.last.clone().expect("there was a command")),
            "run" => self.run(),
            "next" => self.next(),
            "wake" if rest.is_empty() => self.wake_due(),
            _ => {
                let command = self.command(word, rest);
                self.apply(command);
            }
        }
    }

    fn command(&mut self, word: &str, rest: &str) -> Command {
        match word {
            "accept" => {
                let done = rest.split_whitespace().map(|step| (self.key(step).0.step, None));
                return Command::Accept { done: done.collect(), overrides_unique: false, by: None };
            }
            "cancel" => return Command::Cancel { by: anna() },
            "pause" => return Command::Pause { by: anna() },
            "stop" => return Command::Stop { by: anna() },
            "suspend" => return Command::Suspend { by: server() },
            "continue" => return Command::Continue { by: server() },
            "resume" => return Command::Resume { by: anna() },
            "hold" => return Command::Hold { message: rest.into() },
            "cancelled" => return Command::CancelForParent,
            "undone" => return Command::UndoForParent,
            "rollout" => return Command::RollBack { rollout: name(rest) },
            _ => {}
        }
        let (act, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        if word == "signal" || word == "signal?" {
            let params = Some(rest).filter(|rest| !rest.is_empty()).map(json);
            return Command::Signal { name: name(act), params, keep: word == "signal", by: anna() };
        }
        let (key, number) = self.key(act);
        if word == "child" {
            let child = self.world.task.act(key).and_then(|act| act.child()).expect("it has started one");
            let (word, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            let end = match word {
                "ok" => ChildEnd::Succeeded(Some(rest).filter(|rest| !rest.is_empty()).map(Into::into)),
                "fail" => ChildEnd::Undone(Failure::new(rest, 1, true)),
                "final" => ChildEnd::Undone(Failure::new(rest, 65, false)),
                "gone" => ChildEnd::Gone,
                _ => panic!("no such end: {word}"),
            };
            return Command::ChildEnded { key, child, end };
        }
        if word == "wake" {
            return Command::Wake(match act {
                "start" => Wakeup::Start,
                "deadline" => Wakeup::Deadline,
                _ => Wakeup::Act(key),
            });
        }
        if word == "resolve" {
            let (word, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            let resolution = match word {
                "retry" => Resolution::Retry(Some(rest).filter(|rest| !rest.is_empty()).map(json)),
                "skip" => Resolution::Skip,
                "done" => Resolution::Done(Some(rest).filter(|rest| !rest.is_empty()).map(json)),
                "rollback" => Resolution::Rollback,
                _ => panic!("no such resolution: {word}"),
            };
            return Command::Resolve { step: key.step, resolution, by: anna() };
        }
        let free = self
            .world
            .task
            .act(key)
            .filter(|act| act.state == ActState::Ready && !self.world.handed_out.contains_key(&key));
        if word != "park" && free.is_some_and(|act| number.is_none_or(|number| number == act.attempt)) {
            self.world.take(key);
        }
        let attempt = self.world.attempt(key, number);
        let outcome = match word {
            "lose" => return Command::Lose(attempt),
            "park" => return Command::Park(attempt),
            "kept" => return Command::Taken(attempt),
            "timeout" => return Command::TimeOut(attempt),
            "ok" => Outcome::Succeeded(Some(rest).filter(|rest| !rest.is_empty()).map(json)),
            "fail" => Outcome::Failed(Failure::new(rest, 1, true)),
            "final" => Outcome::Failed(Failure::new(rest, 65, false)),
            "later" => {
                let delay = Some(rest).filter(|rest| !rest.is_empty()).map(span);
                Outcome::RetryLater { delay, message: "busy".into() }
            }
            _ => panic!("no such command: {word}"),
        };
        Command::Report(Report { attempt, outcome })
    }

    /// The act that a word such as `a`, `~a`, `a[3]` or `a#2` names, and the attempt.
    fn key(&self, word: &str) -> (ActKey, Option<u32>) {
        let (act, number) = match word.split_once('#') {
            Some((act, number)) => (act, Some(number.parse().unwrap())),
            None => (word, None),
        };
        // A step that is not there gets an index that is not there.
        let step = |name: &str| self.world.task.flow.step_index(name).unwrap_or(99);
        let (act, member) = match act.trim_end_matches(']').split_once('[') {
            Some((act, member)) => (act, member.parse().unwrap()),
            None => (act, 0),
        };
        let key = match act.strip_prefix('~') {
            Some(name) => ActKey::rollback(step(name)),
            None => ActKey::forward(step(act)),
        };
        (key.of_member(member), number)
    }

    fn run(&mut self) {
        for _ in 0..100 {
            let ready = self.world.task.acts().find(|(_, act)| act.state == ActState::Ready);
            let Some(key) = ready.map(|(key, _)| key) else { return };
            if !self.world.handed_out.contains_key(&key) {
                self.world.take(key);
            }
            let command = self.world.report(key, Outcome::Succeeded(None));
            self.apply(command);
        }
    }

    fn next(&mut self) {
        let due = self.world.waits.values().filter_map(|waiting| waiting.due_at).min();
        self.world.now = self.world.now.max(due.expect("something is due"));
        writeln!(self.told, "    at {}", time(self.world.now)).unwrap();
        self.wake_due();
    }

    fn wake_due(&mut self) {
        let now = self.world.now;
        let is_due = |due_at: Option<Timestamp>| due_at.is_some_and(|due_at| due_at <= now);
        let due: Vec<Wakeup> =
            self.world.waits.values().filter(|waiting| is_due(waiting.due_at)).map(|w| w.key).collect();
        for key in due {
            self.apply(Command::Wake(key));
        }
    }

    fn apply(&mut self, command: Command) {
        let outcome = self.world.apply(&command);
        self.last = Some(command);
        self.trace(outcome);
    }

    fn trace(&mut self, outcome: Result<Transition, Rejection>) {
        let transition = match outcome {
            Err(rejection) => return writeln!(self.told, "    rejected: {rejection}").unwrap(),
            Ok(transition) if transition.events.is_empty() => {
                assert_eq!(transition.effects, [], "without events there is nothing to do");
                return writeln!(self.told, "    nothing changes").unwrap();
            }
            Ok(transition) => transition,
        };
        for event in &transition.events {
            let at =
                if event.at == self.world.now { String::new() } else { format!(" (at {})", time(event.at)) };
            let text = self.event(event);
            writeln!(self.told, "    {text}{at}").unwrap();
        }
        for effect in &transition.effects {
            let text = self.effect(effect);
            writeln!(self.told, "  -> {text}").unwrap();
        }
        let status = self.status();
        writeln!(self.told, "  == {status}").unwrap();
    }

    fn event(&self, event: &Event) -> String {
        let act = |key: ActKey, attempt: u32| format!("{}#{attempt}", self.act_name(key));
        let name = |step: usize| self.world.task.flow.steps[step].name.clone();
        match &event.kind {
            EventKind::TaskAccepted => "accepted".to_owned(),
            EventKind::TaskStarted => "started".to_owned(),
            EventKind::TaskPaused { by } => format!("paused{}", actor(by.as_ref())),
            EventKind::TaskStopping { by } => format!("stopping{}", actor(by.as_ref())),
            EventKind::TaskSuspended { by } => format!("suspended{}", actor(by.as_ref())),
            EventKind::TaskResumed { by } => format!("resumed{}", actor(by.as_ref())),
            EventKind::TaskRollingBack { cause } => match cause {
                Cause::Failure { step } => format!("rolling back: {} failed", name(*step)),
                Cause::GivenUp { step, by } => {
                    format!("rolling back: {} given up{}", name(*step), actor(by.as_ref()))
                }
                Cause::Cancel { by } => format!("rolling back: cancelled{}", actor(by.as_ref())),
                Cause::Deadline => "rolling back: too late".to_owned(),
                Cause::Rollout { rollout } => format!("rolling back: rollout {rollout} was aborted"),
                Cause::Parent => "rolling back: wanted by its parent".to_owned(),
                Cause::ResultTooLarge { bytes } => format!("rolling back: {bytes} bytes of results"),
            },
            EventKind::TaskStuck(stuck) => format!("stuck ({}): {}", stuck.kind.as_str(), stuck.message),
            EventKind::TaskUnstuck => "stuck no more".to_owned(),
            EventKind::TaskEnded(ending) => format!("ended: {ending:?}"),
            EventKind::ActReady { key, attempt } => format!("{} ready", act(*key, *attempt)),
            EventKind::ActParked { key, attempt } => format!("{} parked", act(*key, *attempt)),
            EventKind::ActStarted { key, attempt } => format!("{} was handed out", act(*key, *attempt)),
            EventKind::ActRetrying { key, attempt, until, failure } => {
                format!("{} failed: {}; again at {}", act(*key, *attempt), failure.message, time(*until))
            }
            EventKind::ActPostponed { key, attempt, until, message } => {
                format!("{} asked for later: {message}; again at {}", act(*key, *attempt), time(*until))
            }
            EventKind::ActLost { key, attempt } => format!("{} lost", act(*key, *attempt)),
            EventKind::ActStopped { key, attempt } => format!("{} stopped", act(*key, *attempt)),
            EventKind::ActReclaimed { key, attempt } => format!("{} reclaimed", act(*key, *attempt)),
            EventKind::ActWithdrawn { key, attempt, touched } => {
                let touched = if *touched { "touched" } else { "untouched" };
                format!("{} withdrawn, {touched}", act(*key, *attempt))
            }
            EventKind::ActSucceeded { key, attempt, result } => {
                let result = result.as_ref().map(|result| format!(" {result}")).unwrap_or_default();
                format!("{} succeeded{result}", act(*key, *attempt))
            }
            EventKind::ActFailed { key, attempt, failure } => {
                format!(
                    "{} failed for good: {} (code {})",
                    act(*key, *attempt),
                    failure.message,
                    failure.code
                )
            }
            EventKind::ActOverdue { key, attempt } => format!("{} overdue", act(*key, *attempt)),
            EventKind::ActResultDropped { key, attempt, failure } => {
                format!("{} rolls back its child: {}", act(*key, *attempt), failure.message)
            }
            EventKind::ActSkipped { key } => format!("{} skipped", self.act_name(*key)),
            EventKind::ActResolved { key, resolution, result, by } => {
                let result = result.as_ref().map(|result| format!(" {result}")).unwrap_or_default();
                format!("{} resolved: {resolution:?}{result}{}", self.act_name(*key), actor(by.as_ref()))
            }
            EventKind::AlarmRaised { stuck } => format!("alarm: {}", stuck.message),
            EventKind::AlarmCleared { kind, step, by } => {
                let step = step.map(|step| format!(" {}", name(step))).unwrap_or_default();
                format!("alarm over: {}{step}{}", kind.as_str(), actor(by.as_ref()))
            }
            EventKind::ActDelayed { key, until } => {
                format!("{} begins at {}", self.act_name(*key), time(*until))
            }
            EventKind::ActKeyed { key, fairness } => {
                format!("{} counts under {fairness}", self.act_name(*key))
            }
            EventKind::ActFanned { key, members } => format!("{} has {members} members", self.act_name(*key)),
            EventKind::ActAwaiting { key, attempt, awaited, .. } => {
                format!("{} waits for a {awaited:?}", act(*key, *attempt)).to_lowercase()
            }
            EventKind::ActLocked { key, name, fence } => {
                format!("{} has the lock {name} (fence {fence})", self.act_name(*key))
            }
            EventKind::ActUnlocked { key, name, fence, reason, by } => {
                let by = actor(by.as_ref());
                format!("{} has lock {name} ({fence}) no more{by}: {reason}", self.act_name(*key))
            }
            EventKind::ActTaken { key, attempt } => format!("{} was taken", act(*key, *attempt)),
            EventKind::ActUnanswered { key, attempt } => format!("{} was not answered", act(*key, *attempt)),
            EventKind::SignalKept { name, by, .. } => format!("signal {name} kept{}", actor(by.as_ref())),
            EventKind::SignalReceived { key, name, by } => {
                format!("{} got the signal {name}{}", self.act_name(*key), actor(by.as_ref()))
            }
            EventKind::QueueJoined => "joined its queue".to_owned(),
            EventKind::QueueGranted { fence } => format!("has its queue (fence {fence})"),
            EventKind::QueueLost { fence, reason, by } => {
                format!("lost its queue ({fence}){}: {reason}", actor(by.as_ref()))
            }
            EventKind::UniqueOverridden { by } => format!("unique key overridden{}", actor(by.as_ref())),
            EventKind::StepAmended { step, before, after, by } => {
                format!("{} amended: {before} to {after}{}", name(*step), actor(by.as_ref()))
            }
        }
    }

    fn effect(&self, effect: &Effect) -> String {
        match effect {
            Effect::Wait(waiting) => {
                let due = waiting.due_at.map(|due_at| format!(" until {}", time(due_at))).unwrap_or_default();
                match &waiting.ready {
                    Some(ready) if ready.free == Free::GiveUp => {
                        format!("stop {}#{}{due}", self.wakeup(waiting.key), waiting.attempt)
                    }
                    Some(ready) if ready.free == Free::Park => {
                        format!("keep {}#{}{due}", self.wakeup(waiting.key), waiting.attempt)
                    }
                    Some(ready) => format!(
                        "queue {}: {}#{} {} at {}{due}",
                        ready.module,
                        self.wakeup(waiting.key),
                        waiting.attempt,
                        ready.command,
                        time(Timestamp(ready.rank)),
                    ),
                    None => format!("wait {}{due}", self.wakeup(waiting.key)),
                }
            }
            Effect::Forget(key) => format!("forget {}", self.wakeup(*key)),
            Effect::Send(Message::Lock { name, command }) => match command {
                LockCommand::Acquire { .. } => format!("acquire {name}"),
                LockCommand::Join { order: None, .. } => format!("join {name}"),
                LockCommand::Join { order: Some(order), .. } => format!("join {name} as of {}", time(*order)),
                LockCommand::Release { .. } => format!("release {name}"),
                LockCommand::Seize { .. } => format!("seize {name}"),
                LockCommand::Lead(_) => format!("lead {name}"),
                LockCommand::Depose { .. } => format!("depose {name}"),
            },
            Effect::Send(Message::Granted { .. } | Message::Seized { .. }) => {
                unreachable!("only locks send these")
            }
            Effect::Send(Message::Child { parent, command, .. }) => {
                let step = format!("{}#{}", self.act_name(parent.key), parent.attempt);
                match command {
                    ChildCommand::Start(start) => {
                        let until =
                            start.until.map(|until| format!(" until {}", time(until))).unwrap_or_default();
                        format!("start {} for {step} {}{until}", start.flow, start.params)
                    }
                    ChildCommand::Cancel => format!("cancel the task of {step}"),
                    ChildCommand::Undo => format!("roll back the task of {step}"),
                }
            }
            Effect::Send(Message::ChildEnded { end, .. }) => match end {
                ChildEnd::Succeeded(result) => {
                    format!("to the parent: done {}", result.as_deref().unwrap_or("{}"))
                }
                ChildEnd::Undone(failure) => {
                    let message = failure.message.replace(&self.world.task.id.to_string(), "TASK");
                    format!(
                        "to the parent: {message} (code {}, retryable {})",
                        failure.code, failure.retryable
                    )
                }
                ChildEnd::Gone => unreachable!("a task that is gone sends nothing"),
            },
            Effect::Send(Message::Alarm { id, command }) => {
                let id = id.to_string().replace(&self.world.task.id.to_string(), "TASK");
                let verb = match command {
                    AlarmCommand::Raise { .. } => "raise",
                    AlarmCommand::Acknowledge { .. } => "acknowledge",
                    AlarmCommand::Resolve { .. } => "resolve",
                };
                format!("{verb} {id}")
            }
        }
    }

    fn wakeup(&self, key: Wakeup) -> String {
        match key {
            Wakeup::Start => "start".to_owned(),
            Wakeup::Deadline => "deadline".to_owned(),
            Wakeup::Act(key) => self.act_name(key),
        }
    }

    fn act_name(&self, key: ActKey) -> String {
        let undo = if key.direction == Direction::Rollback { "~" } else { "" };
        let member = if key.is_member() { format!("[{}]", key.member) } else { String::new() };
        format!("{undo}{}{member}", self.world.task.flow.steps[key.step].name)
    }

    /// The task's status, and that of every act that has begun.
    fn status(&self) -> String {
        let held = self.world.held_keys();
        let task = &self.world.task;
        let mut text = format!("{:?}:", task_status(task, &held));
        for (key, act) in task.acts().filter(|(_, act)| act.state != ActState::Idle) {
            let word = match act.state {
                ActState::Parked => "parked".to_owned(),
                ActState::Delayed { .. } => "delayed".to_owned(),
                _ => format!("{:?}", act_status(act, held.contains(&key))).to_lowercase(),
            };
            write!(text, " {}={word}", self.act_name(key)).unwrap();
        }
        text
    }
}

fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

/// The part of a server that suspends tasks.
fn server() -> Option<windlass_core::Actor> {
    Some(windlass_core::Actor { name: "a list".into(), claimed: false })
}

fn actor(by: Option<&windlass_core::Actor>) -> String {
    by.map(|by| format!(" by {by}")).unwrap_or_default()
}

fn time(at: Timestamp) -> String {
    let ms = at.0 - START.0;
    if ms % 1000 == 0 { format!("{}s", ms / 1000) } else { format!("{ms}ms") }
}
