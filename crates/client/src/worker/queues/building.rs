//! Builder methods for workers over a broker.

use std::sync::Arc;

use windlass_brokers::{Broker, Queue};

use super::Setup;
use crate::{
    Error,
    worker::{Work, WorkerBuilder, registry::Registry},
};

impl WorkerBuilder {
    pub(in crate::worker) fn one_way(broker: Arc<dyn Broker>, results: Queue) -> Self {
        Self::doing(Work::Queues(Setup::one_way(broker, results)))
    }

    /// Receives steps from the queues of a broker, one for each module, instead of the server. The worker
    /// asks the server before it runs an attempt, sends its result there, and receives cancels from it. So a
    /// step delivered twice runs once.
    pub fn over(mut self, broker: Arc<dyn Broker>) -> Self {
        match self.work {
            Work::Server(client) => self.work = Work::Queues(Setup::with_server(broker, client)),
            Work::Queues(_) => return self.note(invalid("the worker has two brokers: give it one")),
        }
        self
    }

    /// Sets the queue of a module; default: a queue with the module's name.
    pub fn queue(mut self, module: impl Into<String>, queue: Queue) -> Self {
        match &mut self.work {
            Work::Queues(setup) => setup.set_queue(module.into(), queue),
            Work::Server(_) => {
                return self.note(invalid("a queue was given, and no broker: call `over` before `queue`"));
            }
        }
        self
    }
}

/// Checks that the named queues belong to served modules, and that the broker supports them.
pub(in crate::worker) fn check(work: &Work, registry: &Registry) -> Result<(), Error> {
    let Work::Queues(setup) = work else { return Ok(()) };
    match setup.named().find(|named| !registry.modules().any(|module| module == *named)) {
        None => setup.check(registry.modules()),
        Some(module) => {
            invalid(&format!("a queue was given to the module {module}, which the worker does not serve"))
        }
    }
}

fn invalid(message: &str) -> Result<(), Error> {
    Err(Error::Invalid(message.to_owned()))
}
