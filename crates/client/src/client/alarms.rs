//! Alarms, and what describes the server itself.

use windlass_api::{Alarm, List};

use super::Client;
use crate::Error;

impl Client {
    /// The alarms that are not resolved, or all of them.
    ///
    /// # Errors
    /// As every call: see [`Error`].
    pub async fn alarms(&self, all: bool) -> Result<List<Alarm>, Error> {
        let query: &[_] = if all { &[("all", "true".into())] } else { &[] };
        self.all_pages(&["v1", "alarms"], query).await
    }

    /// Says that somebody has seen the alarm.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is none of this id (404), or it is resolved (409).
    pub async fn acknowledge_alarm(&self, id: &str) -> Result<Alarm, Error> {
        self.verb(&["v1", "alarms", id, "acknowledge"]).await
    }

    /// Says that the alarm is over.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if there is none of this id.
    pub async fn resolve_alarm(&self, id: &str) -> Result<Alarm, Error> {
        self.verb(&["v1", "alarms", id, "resolve"]).await
    }

    /// The server's contract, as an OpenAPI document.
    ///
    /// # Errors
    /// As every call: see [`Error`].
    pub async fn openapi(&self) -> Result<serde_json::Value, Error> {
        self.get(&["openapi.json"]).await
    }
}
