//! What is done at random.

use std::sync::Arc;

use windlass_core::{
    Alarm, AlarmCommand, Attempt, Backoff, Command, Failure, Flow, Message, Millis, OnFailure,
    Outcome as Ended, Report, Resolution, Retry, TaskId, TaskStatus, Timestamp,
};

use super::{Counts, pair::Pair, random::Random};
use crate::{
    conformance::history::{accept, decide, input, json, line, name},
    ports::{
        AlarmChange, AttemptId, Change, Claimed, Due, LogLine, Now, Outcome, QueueChange, QueuePause,
        Retention, SessionId, SessionRenewal, Store, StoredFlow, SubmitKey, TaskQuery, Wish, WorkerState,
    },
};

/// Every kind of operation, each of which must succeed at least once in a walk.
pub(super) const KINDS: &[&str] = &[
    "submit",
    "key taken",
    "conflict",
    "flow",
    "claim",
    "adopt",
    "release",
    "renew",
    "forgive",
    "succeed",
    "fail",
    "retry later",
    "pause",
    "resume",
    "cancel",
    "resolve",
    "wake",
    "lose",
    "time out",
    "queue",
    "logs",
    "alarm",
    "message",
    "sweep",
    "ended",
];

/// Sessions that the walk knows.
const SESSIONS: u64 = 4;

/// Tasks it keeps busy; it submits more only when fewer are active.
const ACTIVE_MAX: usize = 30;

pub(super) struct Walk {
    seed: u64,
    random: Random,
    pair: Pair,
    now: Now,
    flows: Vec<Arc<Flow>>,
    ids: u128,
    active: Vec<TaskId>,
    ended: Vec<TaskId>,
    /// Attempts that were handed out at some time.
    handed_out: Vec<Claimed>,
    /// Changes that are decided and not committed yet.
    late: Vec<Change>,
    counts: Counts,
}

impl Walk {
    pub(super) async fn begin(seed: u64, one: Arc<dyn Store>, other: Arc<dyn Store>) -> Self {
        let mut walk = Self {
            seed,
            random: Random::new(seed),
            pair: Pair::new(one, other),
            now: Now { wall: Timestamp(1_700_000_000_000), mono: Millis(5_000) },
            flows: Vec::new(),
            ids: 0x0190_0000 << 96,
            active: Vec::new(),
            ended: Vec::new(),
            handed_out: Vec::new(),
            late: Vec::new(),
            counts: Counts::new(),
        };
        for flow in flows() {
            walk.add_flow(flow).await;
        }
        for session in 0..SESSIONS {
            walk.renew(SessionId(session.into())).await;
        }
        walk
    }

    pub(super) async fn finish(mut self) -> Counts {
        self.look_at_everything().await;
        self.counts
    }

    /// Does one thing, and looks at what both stores say then.
    pub(super) async fn step(&mut self, number: usize) {
        let choice = self.random.below(100);
        self.pair.doing = format!("seed {}, operation {number} ({choice})", self.seed);
        match choice {
            0..10 => self.submit().await,
            10..28 => self.claim().await,
            28..48 => self.report().await,
            48..58 => self.order().await,
            58..64 => self.settle_due().await,
            64..68 => self.settle_lost().await,
            68..72 => self.adopt().await,
            72..75 => self.release().await,
            75..81 => self.hear_of().await,
            81..84 => self.pause_queue().await,
            84..86 => self.log().await,
            86..90 => self.deliver().await,
            90..91 => self.acknowledge().await,
            91..94 => self.come_late().await,
            94..95 => self.change_flow().await,
            95..96 => self.sweep().await,
            _ => self.pass().await,
        }
        let limit = if self.random.once_in(2) { usize::MAX } else { 3 };
        self.pair.due(self.now, limit).await;
        self.pair.lost(self.now).await;
        let picked = self.random.pick(&self.active).copied();
        if let Some(id) = picked {
            self.pair.compare_task(id).await;
        }
        if number % 50 == 0 {
            self.look_at_everything().await;
        }
    }

    fn count(&mut self, kind: &'static str) {
        *self.counts.entry(kind).or_default() += 1;
    }

    /// Commits and counts; tells whether it was the first outcome that was wished for.
    async fn commit(&mut self, kind: &'static str, changes: Vec<Change>) -> bool {
        let outcomes = self.pair.commit(changes).await;
        for outcome in &outcomes {
            self.count(match outcome {
                Outcome::Committed => kind,
                Outcome::Conflict => "conflict",
                Outcome::KeyTaken { .. } => "key taken",
            });
        }
        outcomes.first() == Some(&Outcome::Committed)
    }

    async fn add_flow(&mut self, flow: Flow) {
        let flow = Arc::new(flow);
        let stored = StoredFlow { flow: flow.clone(), created_at: self.now.wall };
        if self.commit("flow", vec![Change::Flow(stored)]).await {
            self.flows.push(flow);
        }
    }

    async fn submit(&mut self) {
        if self.active.len() >= ACTIVE_MAX {
            return;
        }
        let mut changes = Vec::new();
        for _ in 0..=self.random.below(3) {
            let Some(flow) = self.random.pick(&self.flows).cloned() else { return };
            self.ids += 1 << 64;
            let mut input = input(self.now.wall);
            input.params = json(r#"{"size": 3}"#);
            input.priority = i8::try_from(self.random.below(5)).unwrap_or(0) - 2;
            input
                .labels
                .insert("color".to_owned(), if self.random.once_in(2) { "red" } else { "blue" }.to_owned());
            if self.random.once_in(6) {
                input.at = Some(self.now.wall + Millis(self.random.below(20_000)));
            }
            let mut change = accept(TaskId(self.ids), flow, input);
            if self.random.once_in(3) {
                let scope = u8::try_from(self.random.below(12)).unwrap_or(0);
                let fingerprint = u8::try_from(self.random.below(2)).unwrap_or(0);
                change.submit_key = Some(SubmitKey { scope: [scope; 32], fingerprint: [fingerprint; 32] });
            }
            changes.push(Change::from(change));
        }
        let ids: Vec<TaskId> = changes
            .iter()
            .filter_map(|change| match change {
                Change::Task(change) => Some(change.task.id),
                _ => None,
            })
            .collect();
        self.commit("submit", changes).await;
        let loaded = self.pair.load(&ids).await;
        self.active.extend(loaded.into_iter().flatten().map(|loaded| loaded.task.id));
    }

    async fn claim(&mut self) {
        let session = self.any_session();
        let modules = ["work", "other"];
        let wishes: Vec<Wish> = modules
            .iter()
            .filter(|_| !self.random.once_in(3))
            .map(|module| Wish { module: name(module), commands: None, free: 0 })
            .collect();
        let mut filled = Vec::new();
        for mut wish in wishes {
            wish.free = u32::try_from(self.random.below(4)).unwrap_or(0);
            if self.random.once_in(4) {
                wish.commands = Some(vec![name(if self.random.once_in(2) { "do" } else { "undo" })]);
            }
            filled.push(wish);
        }
        let claimed = self.pair.claim(session, &filled, self.now).await;
        for claimed in claimed {
            self.count("claim");
            self.handed_out.push(claimed);
        }
    }

    async fn report(&mut self) {
        let Some(claimed) = self.any_attempt() else { return };
        let (kind, outcome) = match self.random.below(10) {
            0..6 => {
                ("succeed", Ended::Succeeded(self.random.once_in(2).then(|| json(r#"{"made": [1, 2]}"#))))
            }
            6..8 => ("fail", Ended::Failed(Failure::new("it broke", 3, true))),
            8 => ("fail", Ended::Failed(Failure::new("it broke for good", 3, false))),
            _ => {
                let delay = Some(Millis(self.random.below(5_000)));
                ("retry later", Ended::RetryLater { delay, message: "not now".into() })
            }
        };
        let id = claimed.id.task;
        let Some(loaded) = self.pair.load(&[id]).await.remove(0) else { return };
        let claim = loaded.claims.iter().find(|claim| claim.key == claimed.id.key);
        let started_at = claim.map(|claim| claim.at);
        let attempt = Attempt { key: claimed.id.key, number: claimed.id.attempt, started_at };
        self.do_task(kind, id, Command::Report(Report { attempt, outcome })).await;
    }

    /// A person asks something of a task.
    async fn order(&mut self) {
        let Some(id) = self.random.pick(&self.active).copied() else { return };
        let Some(loaded) = self.pair.load(&[id]).await.remove(0) else { return };
        let is_stuck = loaded.task.state.stuck.is_some();
        let (kind, command) = match self.random.below(8) {
            0..2 => ("pause", Command::Pause { by: None }),
            2..4 => ("resume", Command::Resume { by: None }),
            4 if !is_stuck => ("cancel", Command::Cancel { by: None }),
            _ => {
                let resolution = match self.random.below(4) {
                    0 => Resolution::Retry,
                    1 => Resolution::Skip,
                    2 => Resolution::Done(Some(json(r#"{"by": "hand"}"#))),
                    _ => Resolution::Rollback,
                };
                let step = usize::try_from(self.random.below(3)).unwrap_or(0);
                ("resolve", Command::Resolve { step, resolution, by: None })
            }
        };
        self.do_task(kind, id, command).await;
    }

    async fn settle_due(&mut self) {
        let due = self.pair.due(self.now, usize::MAX).await;
        match self.random.pick(&due).cloned() {
            Some(Due::Wake { task, wakeup }) => self.do_task("wake", task, Command::Wake(wakeup)).await,
            Some(Due::TimeOut(claimed)) => {
                self.do_task("time out", claimed.id.task, Command::TimeOut(attempt(&claimed))).await;
            }
            Some(Due::GiveUp { task, key, attempt }) => {
                let attempt = Attempt { key, number: attempt, started_at: None };
                self.do_task("give up", task, Command::Lose(attempt)).await;
            }
            None => {}
        }
    }

    async fn settle_lost(&mut self) {
        let lost = self.pair.lost(self.now).await;
        if let Some(claimed) = self.random.pick(&lost).cloned() {
            self.do_task("lose", claimed.id.task, Command::Lose(attempt(&claimed))).await;
        }
    }

    /// Decides a command and commits it now, or lays it aside to come late.
    async fn do_task(&mut self, kind: &'static str, id: TaskId, command: Command) {
        let Some(loaded) = self.pair.load(&[id]).await.remove(0) else { return };
        let Ok(change) = decide(&loaded, &command, self.now.wall) else { return };
        if change.events.is_empty() {
            return;
        }
        if self.random.once_in(12) {
            self.late.push(change.into());
            return;
        }
        let is_ended = change.task.is_ended();
        if self.commit(kind, vec![change.into()]).await {
            if is_ended {
                self.count("ended");
                self.active.retain(|active| *active != id);
                self.ended.push(id);
            }
            self.pair.compare_task(id).await;
        }
    }

    /// Commits what was laid aside, together with something that is fine.
    async fn come_late(&mut self) {
        let mut changes = std::mem::take(&mut self.late);
        changes.push(Change::Logs(Vec::new()));
        let ids: Vec<TaskId> = self.active.clone();
        self.commit("late", changes).await;
        for loaded in self.pair.load(&ids).await.into_iter().flatten() {
            if loaded.task.is_ended() {
                self.active.retain(|id| *id != loaded.task.id);
                self.ended.push(loaded.task.id);
            }
        }
    }

    async fn adopt(&mut self) {
        let session = self.any_session();
        let mut attempts: Vec<AttemptId> = Vec::new();
        for _ in 0..=self.random.below(3) {
            let Some(claimed) = self.any_attempt() else { return };
            let session_fits = claimed.session == session || self.random.once_in(3);
            let attempt = if self.random.once_in(8) { claimed.id.attempt + 1 } else { claimed.id.attempt };
            if session_fits
                && attempts.iter().all(|id| (id.task, id.key) != (claimed.id.task, claimed.id.key))
            {
                attempts.push(AttemptId { attempt, ..claimed.id });
            }
        }
        self.renew(session).await;
        let adoptions = self.pair.adopt(session, &attempts, self.now).await;
        for _ in adoptions.iter().filter(|adoption| **adoption == crate::ports::Adoption::Held) {
            self.count("adopt");
        }
    }

    async fn release(&mut self) {
        let Some(claimed) = self.any_attempt() else { return };
        let session = if self.random.once_in(4) { self.any_session() } else { claimed.session };
        let held = |loaded: &Option<crate::ports::Loaded>| {
            loaded
                .as_ref()
                .is_some_and(|loaded| loaded.claims.iter().any(|claim| claim.number == claimed.id.claim))
        };
        let was_held = held(&self.pair.load(&[claimed.id.task]).await[0]);
        self.pair.release(session, claimed.id, self.now).await;
        if was_held && !held(&self.pair.load(&[claimed.id.task]).await[0]) {
            self.count("release");
        }
    }

    async fn hear_of(&mut self) {
        if self.random.once_in(12) {
            self.pair.forgive(self.now).await;
            self.count("forgive");
        } else {
            let session = self.any_session();
            self.renew(session).await;
        }
    }

    async fn renew(&mut self, session: SessionId) {
        let worker = self.random.once_in(3).then(|| WorkerState {
            name: format!("worker {session}").into(),
            attached: self.random.once_in(2),
            modules: vec![name("work")],
            ..WorkerState::default()
        });
        let lease = Millis(1_000 + self.random.below(20_000));
        let renewal = SessionRenewal { session, lease, lease_full: Millis(20_000), worker };
        self.pair.renew(renewal, self.now).await;
        self.count("renew");
    }

    async fn pause_queue(&mut self) {
        let paused = self.random.once_in(4).then_some(QueuePause { at: self.now.wall, by: None });
        let module = if self.random.once_in(2) { "work" } else { "other" };
        self.commit("queue", vec![Change::Queue(QueueChange { name: name(module), paused })]).await;
    }

    async fn log(&mut self) {
        let mut lines = Vec::new();
        for number in 0..self.random.below(4) {
            let Some(claimed) = self.any_attempt() else { return };
            // Lines of a task that is gone are an affair of its store.
            if !self.active.contains(&claimed.id.task) {
                continue;
            }
            let AttemptId { task, key, attempt, .. } = claimed.id;
            lines.push(LogLine {
                task,
                key,
                attempt,
                at: self.now.wall,
                line: format!("line {number}").into(),
            });
        }
        self.commit("logs", vec![Change::Logs(lines)]).await;
    }

    async fn deliver(&mut self) {
        let messages = self.pair.messages().await;
        let Some(envelope) = self.random.pick(&messages) else { return };
        let Message::Alarm { id, command } = &envelope.message;
        let stored = self.pair.alarm(id).await;
        let alarm = Alarm::apply(stored.as_ref().map(|stored| &stored.alarm), id, command, self.now.wall);
        let change = AlarmChange {
            before: stored.map_or(0, |stored| stored.version),
            alarm: alarm.ok().flatten(),
            consumes: Some(envelope.id),
        };
        let change = Change::Alarm(change);
        if self.random.once_in(4) {
            self.late.push(change.clone());
        }
        self.commit("message", vec![change]).await;
    }

    async fn acknowledge(&mut self) {
        let alarms = self.pair.alarms(false).await;
        let Some(alarm) = self.random.pick(&alarms) else { return };
        let Some(stored) = self.pair.alarm(&alarm.id).await else { return };
        let command = AlarmCommand::Acknowledge { by: None };
        let Ok(Some(alarm)) = Alarm::apply(Some(alarm), &alarm.id, &command, self.now.wall) else { return };
        let change = AlarmChange { before: stored.version, alarm: Some(alarm), consumes: None };
        self.commit("alarm", vec![Change::Alarm(change)]).await;
    }

    async fn change_flow(&mut self) {
        let Some(flow) = self.random.pick(&self.flows).cloned() else { return };
        let version = flow.version + 1;
        self.add_flow(Flow { version, ..(*flow).clone() }).await;
    }

    async fn sweep(&mut self) {
        let retention = Retention { tasks: Millis(60_000), logs: Millis(30_000) };
        let before = self.pair.load(&self.ended).await.into_iter().flatten().count();
        self.pair.sweep(&retention, self.now).await;
        let kept: Vec<TaskId> =
            self.pair.load(&self.ended).await.into_iter().flatten().map(|loaded| loaded.task.id).collect();
        if kept.len() < before {
            self.count("sweep");
        }
        self.ended = kept;
    }

    async fn pass(&mut self) {
        let length = match self.random.below(10) {
            0..5 => self.random.below(100),
            5..9 => self.random.below(3_000),
            _ => self.random.below(30_000),
        };
        self.now.wall = self.now.wall + Millis(length);
        self.now.mono.0 += length;
    }

    async fn look_at_everything(&mut self) {
        let limit = usize::try_from(1 + self.random.below(9)).unwrap_or(1);
        let all = TaskQuery { limit, ..TaskQuery::default() };
        let red = [("color".to_owned(), "red".to_owned())].into();
        let statuses = vec![TaskStatus::Running, TaskStatus::Paused, TaskStatus::Cancelled];
        for query in [
            TaskQuery { labels: red, ..all.clone() },
            TaskQuery { statuses, ..all.clone() },
            TaskQuery { since: Some(Timestamp(self.now.wall.0 - 5_000)), ..all.clone() },
            all,
        ] {
            self.pair.compare_lists(&query, self.now).await;
        }
        for id in self.active.iter().chain(&self.ended) {
            self.pair.compare_task(*id).await;
        }
    }

    fn any_session(&mut self) -> SessionId {
        SessionId(self.random.below(SESSIONS).into())
    }

    /// One of the attempts that were handed out, mostly one of the last.
    fn any_attempt(&mut self) -> Option<Claimed> {
        let recent = self.handed_out.len().saturating_sub(if self.random.once_in(10) { 200 } else { 12 });
        self.random.pick(&self.handed_out[recent..]).cloned()
    }
}

fn attempt(claimed: &Claimed) -> Attempt {
    Attempt { key: claimed.id.key, number: claimed.id.attempt, started_at: Some(claimed.at) }
}

/// Flows that between them have everything a flow can have.
fn flows() -> Vec<Flow> {
    let retry = Retry { max: 2, backoff: Backoff::Exponential, base: Millis(500), cap: Millis(2_000) };
    let plain = line("plain", 3);
    let mut diamond = line("diamond", 4);
    for (step, after) in [vec![], vec![0], vec![0], vec![1, 2]].into_iter().enumerate() {
        diamond.steps[step].after = after;
        diamond.steps[step].run.retry = retry;
    }
    let mut hold = line("hold", 2);
    hold.on_failure = OnFailure::Hold;
    hold.steps[1].rollback = None;
    let mut hurried = line("hurried", 2);
    for step in &mut hurried.steps {
        step.run.module = name("other");
        step.run.timeout = Millis(2_000);
        step.run.deadline = Some(Millis(6_000));
        step.run.retry = Retry { backoff: Backoff::None, ..retry };
    }
    let mut bare = line("bare", 1);
    bare.steps[0].rollback = None;
    bare.steps[0].run.retry = retry;
    vec![plain, diamond, hold, hurried, bare]
}
