//! Alarms: Consul fails, or entries start no task.

use std::fmt::Display;

use windlass_core::{AlarmCommand, AlarmId, AlarmKind, TaskId};
use windlass_engine::{Engine, EngineError, services};

use super::TaskList;
use crate::brokers::alarm_id;

/// A failing Consul, as one user of it sees it.
pub(super) struct Trouble<'l> {
    list: &'l TaskList,
    state: services::Trouble,
    alarm: AlarmId,
    what: String,
}

impl<'l> Trouble<'l> {
    /// `what` cannot be done of this key or prefix.
    pub(super) fn new(list: &'l TaskList, key: &str, what: String) -> Self {
        let alarm = alarm_id(AlarmKind::BrokerAway, key.trim_end_matches('/'), &list.consul);
        Self { list, state: services::Trouble::default(), alarm, what }
    }

    /// Records a failure. One that lasts raises an alarm.
    pub(super) async fn goes_on(&self, error: &impl Display) {
        if self.state.goes_on(error, self.list.app.clock.now()) {
            tracing::warn!(consul = self.list.consul, %error, "{}; retrying", self.what);
        }
        self.tell().await;
    }

    /// Records a success.
    pub(super) async fn ends(&self) {
        if self.state.is_away() {
            tracing::info!(consul = self.list.consul, "Consul answers again");
        }
        self.state.ends();
        if self.state.is_known() {
            self.tell().await;
        }
    }

    async fn tell(&self) {
        let describe = |error: &str| format!("{} of {}: {error}", self.what, self.list.consul);
        let (engine, now) = (&self.list.app.engine, self.list.app.clock.now());
        if let Err(error) = self.state.tell(engine, self.alarm.clone(), describe, now).await {
            tracing::debug!(%error, "cannot change an alarm; retrying");
        }
    }
}

/// The alarm about entries that start no task.
pub(super) struct Complaints {
    alarm: AlarmId,
    /// What the alarm says. None until it was looked at; empty when it is resolved.
    told: Option<String>,
}

impl Complaints {
    pub(super) fn new(list: &TaskList) -> Self {
        let prefix = list.settings.prefix.trim_end_matches('/');
        Self { alarm: alarm_id(AlarmKind::MessageRefused, prefix, &list.consul), told: None }
    }

    /// Raises the alarm when there is something else to say than before, and resolves it when nothing is left to say.
    /// What an alarm says already, of an earlier server or another one, is not raised again.
    pub(super) async fn tell(&mut self, list: &TaskList, complaint: &str) {
        if self.told.as_deref() == Some(complaint) {
            return;
        }
        match self.change(list, complaint).await {
            Ok(()) => self.told = Some(complaint.to_owned()),
            Err(error) => tracing::debug!(%error, "cannot change an alarm; retrying"),
        }
    }

    async fn change(&self, list: &TaskList, complaint: &str) -> Result<(), EngineError> {
        let engine: &Engine = &list.app.engine;
        let standing = engine.standing_alarm(&self.alarm).await?;
        let prefix = &list.settings.prefix;
        let message = format!(
            "entries of the task list {prefix} at {} start no task and are left alone: {complaint}",
            list.consul
        );
        let command = match standing {
            Some(_) if complaint.is_empty() => AlarmCommand::Resolve { by: None },
            None if complaint.is_empty() => return Ok(()),
            Some(alarm) if *alarm.message == message => return Ok(()),
            _ => {
                tracing::warn!(
                    prefix,
                    consul = list.consul,
                    complaint,
                    "entries of a task list start no task"
                );
                let (kind, message) = (AlarmKind::MessageRefused, message.into());
                AlarmCommand::Raise { kind, task: TaskId::NONE, step: None, message }
            }
        };
        engine.tell_alarm(self.alarm.clone(), command).await.map(drop)
    }
}
