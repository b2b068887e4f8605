//! Rollouts.

use std::borrow::Cow;

use reqwest::Method;
use windlass_api::{ChangeRollout, List, Rollout, RolloutDocument, RolloutEntry};

use super::{
    Client,
    request::{Details, encode},
};
use crate::Error;

impl Client {
    /// All rollouts, by name.
    ///
    /// # Errors
    /// As every call: see [`Error`].
    pub async fn rollouts(&self) -> Result<List<Rollout>, Error> {
        self.all_pages(&["v1", "rollouts"], &[]).await
    }

    /// One rollout, with its progress by group.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if no rollout has this name.
    pub async fn rollout(&self, name: &str) -> Result<Rollout, Error> {
        self.get(&["v1", "rollouts", name]).await
    }

    /// Starts a rollout. One that was started before with the same definition is returned as it is now.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 400, 404 or 422 if it cannot work, with 409 if another rollout has the name or there are
    /// too many.
    pub async fn start_rollout(&self, name: &str, rollout: &RolloutDocument) -> Result<Rollout, Error> {
        let details = Details { body: Some(encode(rollout)?), ..Details::default() };
        self.call(Method::PUT, &["v1", "rollouts", name], details).await
    }

    /// Pauses a rollout: it starts no tasks, and those that run go on.
    ///
    /// # Errors
    /// [`Error::Refused`] if no rollout has this name (404), or it is paused, being aborted or ended (409).
    pub async fn pause_rollout(&self, name: &str, reason: Option<String>) -> Result<Rollout, Error> {
        self.post(&["v1", "rollouts", name, "pause"], &ChangeRollout { reason }).await
    }

    /// Resumes a paused rollout.
    ///
    /// # Errors
    /// [`Error::Refused`] if no rollout has this name (404), or it is not paused (409).
    pub async fn resume_rollout(&self, name: &str) -> Result<Rollout, Error> {
        self.verb(&["v1", "rollouts", name, "resume"]).await
    }

    /// Aborts a rollout: it starts no tasks, and cancels those that run. With `on_abort: rollback` it then rolls back those that
    /// succeeded.
    ///
    /// # Errors
    /// [`Error::Refused`] if no rollout has this name (404), or it is being aborted or ended (409).
    pub async fn abort_rollout(&self, name: &str, reason: Option<String>) -> Result<Rollout, Error> {
        self.post(&["v1", "rollouts", name, "abort"], &ChangeRollout { reason }).await
    }

    /// Removes a rollout that has ended. Returns its last state.
    ///
    /// # Errors
    /// [`Error::Refused`] if no rollout has this name (404), or it has not ended (409).
    pub async fn remove_rollout(&self, name: &str) -> Result<Rollout, Error> {
        self.call(Method::DELETE, &["v1", "rollouts", name], Details::default()).await
    }

    /// The last `limit` things that happened to a rollout, newest first; 1 to 1,000.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if there is no such rollout, and no history of one.
    pub async fn rollout_history(&self, name: &str, limit: usize) -> Result<List<RolloutEntry>, Error> {
        let query = [("limit", Cow::from(limit.to_string()))];
        self.get_with(&["v1", "rollouts", name, "history"], &query).await
    }
}
