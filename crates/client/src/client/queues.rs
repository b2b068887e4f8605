//! Queues, the workers that serve them, and the servers on the store.

use windlass_api::{List, Queue, Server, Worker};

use super::Client;
use crate::Error;

impl Client {
    /// The queues: one for each module that a flow names or a worker serves.
    ///
    /// # Errors
    /// As every call: see [`Error`].
    pub async fn queues(&self) -> Result<List<Queue>, Error> {
        self.all_pages(&["v1", "queues"], &[]).await
    }

    /// One queue.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if no queue has this name.
    pub async fn queue(&self, name: &str) -> Result<Queue, Error> {
        self.get(&["v1", "queues", name]).await
    }

    /// Pauses the queue: no attempt starts, running ones finish.
    ///
    /// # Errors
    /// As every call: see [`Error`].
    pub async fn pause_queue(&self, name: &str) -> Result<Queue, Error> {
        self.verb(&["v1", "queues", name, "pause"]).await
    }

    /// Resumes the queue.
    ///
    /// # Errors
    /// As every call: see [`Error`].
    pub async fn resume_queue(&self, name: &str) -> Result<Queue, Error> {
        self.verb(&["v1", "queues", name, "resume"]).await
    }

    /// All servers on the store of the server that answers.
    ///
    /// # Errors
    /// As every call: see [`Error`].
    pub async fn servers(&self) -> Result<List<Server>, Error> {
        self.all_pages(&["v1", "servers"], &[]).await
    }

    /// The connected workers.
    ///
    /// # Errors
    /// As every call: see [`Error`].
    pub async fn workers(&self) -> Result<List<Worker>, Error> {
        self.all_pages(&["v1", "workers"], &[]).await
    }
}
