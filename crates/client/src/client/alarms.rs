//! Alarms, and the API document of the server.

use windlass_api::{Alarm, List};

use super::Client;
use crate::Error;

impl Client {
    /// The unresolved alarms, or all of them.
    ///
    /// # Errors
    /// As every call: see [`Error`].
    pub async fn alarms(&self, all: bool) -> Result<List<Alarm>, Error> {
        let query: &[_] = if all { &[("all", "true".into())] } else { &[] };
        self.all_pages(&["v1", "alarms"], query).await
    }

    /// Acknowledges an alarm: an operator has seen it.
    ///
    /// # Errors
    /// [`Error::Refused`] if no alarm has this id (404), or it is resolved (409).
    pub async fn acknowledge_alarm(&self, id: &str) -> Result<Alarm, Error> {
        self.verb(&["v1", "alarms", id, "acknowledge"]).await
    }

    /// Resolves an alarm.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if no alarm has this id.
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
