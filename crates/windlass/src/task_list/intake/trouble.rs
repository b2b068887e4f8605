//! Alarms: Consul fails, or entries start no task.

use std::fmt::Display;

use windlass_core::{Alarm, AlarmCommand, AlarmId, AlarmKind, TaskId};
use windlass_engine::{EngineError, services};

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
    /// What was reported last, one text for each entry. None until the alarm was looked at.
    told: Option<Vec<String>>,
}

impl Complaints {
    pub(super) fn new(list: &TaskList) -> Self {
        let prefix = list.settings.prefix.trim_end_matches('/');
        Self { alarm: alarm_id(AlarmKind::MessageRefused, prefix, &list.consul), told: None }
    }

    /// Raises the alarm when there is something new to say, and resolves it when nothing is left to say. `shown` are texts
    /// for the first of `count` entries.
    pub(super) async fn tell(&mut self, list: &TaskList, shown: Vec<String>, count: usize) {
        if self.told.as_ref() == Some(&shown) {
            return;
        }
        match self.change(list, &shown, count).await {
            Ok(()) => self.told = Some(shown),
            Err(error) => tracing::debug!(%error, "cannot change an alarm; retrying"),
        }
    }

    async fn change(&self, list: &TaskList, shown: &[String], count: usize) -> Result<(), EngineError> {
        let engine = &list.app.engine;
        let standing = engine.standing_alarm(&self.alarm).await?;
        // Another server, or this one before a restart, has said it.
        let is_told = |alarm: &Alarm| shown.iter().all(|text| alarm.message.contains(text));
        let command = match standing {
            Some(_) if shown.is_empty() => AlarmCommand::Resolve { by: None },
            None if shown.is_empty() => return Ok(()),
            Some(alarm) if is_told(&alarm) => return Ok(()),
            _ => {
                let (prefix, consul) = (&list.settings.prefix, &list.consul);
                let message = format!(
                    "entries of the task list {prefix} at {consul} start no task and are left alone ({count}): {}",
                    shown.join("; ")
                );
                tracing::warn!("{message}");
                let (kind, message) = (AlarmKind::MessageRefused, message.into());
                AlarmCommand::Raise { kind, task: TaskId::NONE, step: None, message }
            }
        };
        engine.tell_alarm(self.alarm.clone(), command).await.map(drop)
    }
}
