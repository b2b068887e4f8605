//! How a worker over a broker is asked for.

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

    /// Takes the work from the queues of a broker instead of the server, one for each module. The server is asked before an
    /// attempt runs whose it is, hears what became of it, and cancels it: what comes twice runs once.
    pub fn over(mut self, broker: Arc<dyn Broker>) -> Self {
        match self.work {
            Work::Server(client) => self.work = Work::Queues(Setup::with_server(broker, client)),
            Work::Queues(_) => return self.note(invalid("the worker has two brokers: give it one")),
        }
        self
    }

    /// The queue of a module; one of the module's name when left out.
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

/// Whether the queues are those of modules that are served, and the broker can have them.
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
