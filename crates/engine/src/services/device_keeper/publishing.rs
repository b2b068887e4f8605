//! Publishing jobs to devices that are online.

use std::sync::Arc;

use serde_json::json;
use windlass_brokers::{BrokerError, DeviceCommand, DeviceConnection};
use windlass_core::{
    JobMessage, Json, Name,
    planted::{Bug, is_planted},
};
use windlass_store::{AttemptId, Change, Now, SessionId};

use super::{DeviceKeeper, ROUND_MAX, State, waiting::Waiting};
use crate::{EngineError, deciding::device_log::entry, services::leading::Led};

impl DeviceKeeper {
    /// Publishes what waits for devices that are online. Returns the number of messages; `None` = the network took none of
    /// them.
    pub(super) async fn publish(
        &self,
        led: Led,
        connection: &Arc<dyn DeviceConnection>,
        now: Now,
    ) -> Result<Option<usize>, EngineError> {
        let jobs = self.publishable(connection, now);
        if jobs.is_empty() {
            return Ok(Some(0));
        }
        let messages: Vec<DeviceCommand> = jobs
            .iter()
            .map(|(id, waiting)| DeviceCommand {
                topic: waiting.message.topic.to_string(),
                payload: payload(id, waiting.number, &waiting.message),
            })
            .collect();
        let outcomes = match connection.publish(&messages).await {
            Ok(outcomes) => outcomes,
            Err(error) => {
                self.has_failed(&error, now);
                return Ok(None);
            }
        };
        let mut confirmed = Vec::with_capacity(jobs.len());
        let (mut too_large, mut failure) = (Vec::new(), None);
        for ((id, waiting), outcome) in jobs.iter().zip(outcomes) {
            match outcome {
                Ok(()) => confirmed.push((*id, waiting)),
                Err(error @ BrokerError::TooLarge { .. }) => {
                    too_large.push((*id, error.to_string()));
                }
                Err(error) => {
                    self.state().maybe_published.insert(*id);
                    failure = Some(error);
                }
            }
        }
        let took_none = confirmed.is_empty() && failure.is_some();
        if !confirmed.is_empty() {
            let ids: Vec<AttemptId> = confirmed.iter().map(|(id, _)| *id).collect();
            self.engine.store.adopt(SessionId::AFAR, &ids, now).await?;
            let entries = confirmed.iter().map(|(id, Waiting { device, message, .. })| {
                entry(device, "published", *id, now.wall, &json!({ "topic": &*message.topic }))
            });
            let journal = Change::Journal(entries.collect());
            self.engine.commit_as(led.lease, vec![journal], now).await?;
            for (id, Waiting { device, timeout, .. }) in &confirmed {
                self.note_running(*id, device, *timeout, now.wall, now);
            }
            let mut state = self.state();
            ids.iter().for_each(|id| state.forget(id));
        }
        for (id, message) in too_large {
            self.state().forget(&id);
            self.refuse(id, &message, now).await?;
        }
        if let Some(error) = failure {
            self.has_failed(&error, now);
        }
        Ok((!took_none).then_some(messages.len()))
    }

    /// The next jobs whose devices are online. None before this server has caught up over this connection: the answer of a
    /// job that was published over an earlier one may wait.
    fn publishable(&self, connection: &Arc<dyn DeviceConnection>, now: Now) -> Vec<(AttemptId, Waiting)> {
        let mut state = self.state();
        let State { hearing, waiting, fleet, .. } = &mut *state;
        let hearing = hearing.as_ref().filter(|hearing| hearing.concerns(connection));
        let has_caught_up = hearing.is_some_and(|hearing| hearing.is_caught_up);
        if !has_caught_up && !is_planted(Bug::PublishedUnheard) {
            return Vec::new();
        }
        let is_online = |device: &Name| fleet.is_online(device, now) || is_planted(Bug::PresenceIgnored);
        waiting.sendable(ROUND_MAX, is_online)
    }
}

/// What is published: the arguments, and what the answer must name.
fn payload(id: &AttemptId, number: u64, message: &JobMessage) -> Vec<u8> {
    let named = Json::from_stored(&format!(r#"{{"uuid":"{}","attempt":{number}}}"#, id.task));
    Json::merge([&message.args, &named]).as_str().as_bytes().to_vec()
}
