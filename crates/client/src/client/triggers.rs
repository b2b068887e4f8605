//! Triggers.

use std::borrow::Cow;

use reqwest::Method;
use windlass_api::{FireTrigger, List, Trigger, TriggerApplied, TriggerDocument, TriggerEntry, TriggerFired};

use super::{
    Client,
    request::{Details, encode},
};
use crate::Error;

impl Client {
    /// All triggers, by name.
    ///
    /// # Errors
    /// As every call: see [`Error`].
    pub async fn triggers(&self) -> Result<List<Trigger>, Error> {
        self.all_pages(&["v1", "triggers"], &[]).await
    }

    /// One trigger.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if no trigger has this name.
    pub async fn trigger(&self, name: &str) -> Result<Trigger, Error> {
        self.get(&["v1", "triggers", name]).await
    }

    /// Creates a trigger, or gives one another definition.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 400 or 422 if the definition cannot work.
    pub async fn apply_trigger(
        &self,
        name: &str,
        trigger: &TriggerDocument,
    ) -> Result<TriggerApplied, Error> {
        let details = Details { body: Some(encode(trigger)?), ..Details::default() };
        self.call(Method::PUT, &["v1", "triggers", name], details).await
    }

    /// Fires a trigger now.
    ///
    /// # Errors
    /// [`Error::Refused`] if no trigger has this name or no task was started.
    pub async fn fire_trigger(&self, name: &str, fire: &FireTrigger) -> Result<TriggerFired, Error> {
        self.post(&["v1", "triggers", name, "fire"], fire).await
    }

    /// Pauses a trigger.
    ///
    /// # Errors
    /// [`Error::Refused`] if no trigger has this name (404), or it is paused already (409).
    pub async fn pause_trigger(&self, name: &str) -> Result<Trigger, Error> {
        self.verb(&["v1", "triggers", name, "pause"]).await
    }

    /// Resumes a paused trigger.
    ///
    /// # Errors
    /// [`Error::Refused`] if no trigger has this name (404), or it is not paused (409).
    pub async fn resume_trigger(&self, name: &str) -> Result<Trigger, Error> {
        self.verb(&["v1", "triggers", name, "resume"]).await
    }

    /// Removes a trigger. Returns its last state.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if no trigger has this name.
    pub async fn remove_trigger(&self, name: &str) -> Result<Trigger, Error> {
        self.call(Method::DELETE, &["v1", "triggers", name], Details::default()).await
    }

    /// The last `limit` things that a trigger did, newest first; 1 to 1,000.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if there is no such trigger, and no history of one.
    pub async fn trigger_history(&self, name: &str, limit: usize) -> Result<List<TriggerEntry>, Error> {
        let query = [("limit", Cow::from(limit.to_string()))];
        self.get_with(&["v1", "triggers", name, "history"], &query).await
    }
}
