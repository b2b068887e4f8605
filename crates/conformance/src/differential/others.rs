//! Operations besides tasks: flows, queues, logs, alarms and sweeps.

use std::sync::Arc;

use windlass_core::{
    Alarm, AlarmCommand, Backoff, Doer, Each, Expression, Flow, Message, Millis, OnFailure, OnPartial, Retry,
    TaskId,
};
use windlass_store::{
    AlarmChange, AttemptId, Change, Limit, LimitChange, LogLine, QueueChange, QueuePause, Retention,
    StoredFlow, Unannounced,
};

use crate::differential::walk::Walk;
use crate::history::{line, name};

impl Walk {
    pub(super) async fn add_flow(&mut self, flow: Flow) {
        let flow = Arc::new(flow);
        let stored = StoredFlow { flow: flow.clone(), created_at: self.now.wall };
        if self.commit("flow", vec![Change::Flow(stored)]).await {
            self.flows.push(flow);
        }
    }

    pub(super) async fn change_flow(&mut self) {
        let Some(flow) = self.random.pick(&self.flows).cloned() else { return };
        let version = flow.version + 1;
        self.add_flow(Flow { version, ..(*flow).clone() }).await;
    }

    pub(super) async fn pause_queue(&mut self) {
        let paused = self.random.once_in(4).then_some(QueuePause { at: self.now.wall, by: None });
        let module = if self.random.once_in(2) { "work" } else { "other" };
        self.commit("queue", vec![Change::Queue(QueueChange { name: name(module), paused })]).await;
    }

    /// Sets or removes a limit, of all attempts of a queue or of each concurrency key.
    pub(super) async fn set_limit(&mut self) {
        let (name, queue) = (name("a-limit"), name("work"));
        let limit = self.random.once_in(3).then(|| Limit {
            name: name.clone(),
            queue,
            command: None,
            per_key: self.random.once_in(2),
            running: u32::try_from(1 + self.random.below(4)).ok(),
            starts: None,
        });
        self.commit("limit", vec![Change::Limit(LimitChange { name, limit })]).await;
    }

    pub(super) async fn log(&mut self) {
        let mut lines = Vec::new();
        for number in 0..self.random.below(4) {
            let Some(claimed) = self.any_attempt() else { return };
            // Log lines of a deleted task are handled by each store in its own way.
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

    pub(super) async fn deliver(&mut self) {
        let messages = self.pair.messages().await;
        let Some(envelope) = self.random.pick(&messages) else { return };
        let Message::Alarm { id, command } = &envelope.message else { return };
        let stored = self.pair.alarm(id).await;
        let alarm = Alarm::apply(stored.as_ref().map(|stored| &stored.alarm), id, command, self.now.wall);
        let change = AlarmChange {
            before: stored.map_or(0, |stored| stored.version),
            alarm: alarm.ok().flatten(),
            consumes: Some(envelope.id.clone()),
        };
        let change = Change::Alarm(change);
        if self.random.once_in(4) {
            self.late.push(change.clone());
        }
        self.commit("message", vec![change]).await;
    }

    pub(super) async fn acknowledge(&mut self) {
        let alarms = self.pair.alarms(false).await;
        let Some(alarm) = self.random.pick(&alarms) else { return };
        let Some(stored) = self.pair.alarm(&alarm.id).await else { return };
        let command = AlarmCommand::Acknowledge { by: None };
        let Ok(Some(alarm)) = Alarm::apply(Some(alarm), &alarm.id, &command, self.now.wall) else { return };
        let change = AlarmChange { before: stored.version, alarm: Some(alarm), consumes: None };
        self.commit("alarm", vec![Change::Alarm(change)]).await;
    }

    pub(super) async fn sweep(&mut self) {
        // First the announced events are removed, then the rest.
        let mut announced: Vec<_> =
            self.pair.unannounced().await.iter().map(Unannounced::announced).collect();
        announced.truncate(announced.len() / 2);
        self.commit("announced", vec![Change::Announced(announced)]).await;
        let before = self.pair.load(&self.ended).await.into_iter().flatten().count();
        for keeps_unannounced in [true, false] {
            let retention = Retention {
                tasks: Millis(60_000),
                logs: Millis(30_000),
                audit: Millis(30_000),
                keeps_unannounced,
                messages_until: None,
            };
            self.pair.sweep(&retention, self.now).await;
            self.pair.unannounced().await;
        }
        let kept: Vec<TaskId> =
            self.pair.load(&self.ended).await.into_iter().flatten().map(|loaded| loaded.task.id).collect();
        if kept.len() < before {
            self.count("sweep");
        }
        self.ended = kept;
    }
}

/// Flows that together use every feature of a flow.
pub(super) fn flows() -> Vec<Flow> {
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
        step.run.doer = Doer::Worker { module: name("other"), command: name("do") };
        step.run.timeout = Millis(2_000);
        step.run.deadline = Some(Millis(6_000));
        step.run.retry = Retry { backoff: Backoff::None, ..retry };
    }
    let mut bare = line("bare", 1);
    bare.steps[0].rollback = None;
    bare.steps[0].run.retry = retry;
    let mut fan = line("fan", 2);
    fan.steps[0].each = Some(Each { list: "items".into(), parallel: 2 });
    fan.steps[0].on_partial = OnPartial::AtLeast(2);
    fan.steps[0].run.retry = retry;
    let mut held_fan = Flow { on_failure: OnFailure::Hold, ..line("held-fan", 2) };
    held_fan.steps[1].each = Some(Each { list: "items".into(), parallel: 3 });
    let mut keyed = line("keyed", 2);
    for step in &mut keyed.steps {
        step.key = Some(Expression::compile("tenant").expect("an expression"));
    }
    vec![plain, diamond, hold, hurried, bare, fan, held_fan, keyed]
}
