//! Sets up a worker over a broker.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use tokio::{sync::mpsc::unbounded_channel, task::JoinSet};
use windlass_brokers::{Broker, BrokerError, ConsumerSettings, Queue};

use super::{
    Allowance, Credit, Queues,
    hands::Hands,
    results::Results,
    source::{Arrival, Source},
};
use crate::{
    Client, Error,
    worker::{Settings, calls::Session, counterpart::Counterpart, feed::Feed},
};

/// The consumer group of all Windlass workers: they share the messages of a queue.
const GROUP: &str = "windlass";

/// How long a worker may be silent before it counts as dead, on brokers that do not notice its death.
const SILENT_AFTER: Duration = Duration::from_secs(30);

/// The queues of step messages, and the destination of results.
#[derive(Clone)]
pub(in crate::worker) struct Setup {
    broker: Arc<dyn Broker>,
    back: WayBack,
    /// The queues of modules whose names differ from the modules'.
    queues: BTreeMap<String, Queue>,
}

#[derive(Clone)]
enum WayBack {
    Server(Client),
    Results(Queue),
}

/// The receiver of the worker's reports, and the source of its attempts.
pub(in crate::worker) type Ends = (Box<dyn Counterpart>, Option<Box<dyn Feed>>);

impl Setup {
    /// A worker that reports to a server.
    pub(in crate::worker) fn with_server(broker: Arc<dyn Broker>, server: Client) -> Self {
        Self { broker, back: WayBack::Server(server), queues: BTreeMap::new() }
    }

    /// A worker that reports to a queue.
    pub(in crate::worker) fn one_way(broker: Arc<dyn Broker>, results: Queue) -> Self {
        Self { broker, back: WayBack::Results(results), queues: BTreeMap::new() }
    }

    /// Sets the queue of a module.
    pub(in crate::worker) fn set_queue(&mut self, module: String, queue: Queue) {
        self.queues.insert(module, queue);
    }

    /// The modules with a named queue.
    pub(in crate::worker) fn named(&self) -> impl Iterator<Item = &str> {
        self.queues.keys().map(String::as_str)
    }

    /// Checks that each module, and the results, have separate queues that the broker supports, without
    /// connecting to it.
    ///
    /// # Errors
    /// The first queue that is shared or not supported.
    pub(in crate::worker) fn check<'a>(&self, modules: impl Iterator<Item = &'a str>) -> Result<(), Error> {
        let mut seen = BTreeSet::new();
        let results = match &self.back {
            WayBack::Server(_) => None,
            WayBack::Results(results) => Some(results.clone()),
        };
        for queue in modules.map(|module| self.queue(module)).chain(results) {
            if !seen.insert(queue.name.clone()) {
                return Err(Error::Invalid(format!(
                    "the queue {:?} is for two modules, or for a module and for results: use separate queues",
                    queue.name
                )));
            }
            let checked = self.broker.check(&queue).and_then(|()| self.broker.check(&queue.dead()));
            checked.map_err(|error| {
                let broker = self.broker.name();
                Error::Invalid(format!("the queue {:?} cannot be at {broker}: {error}", queue.name))
            })?;
        }
        Ok(())
    }

    fn queue(&self, module: &str) -> Queue {
        self.queues.get(module).cloned().unwrap_or_else(|| Queue::new(module))
    }

    /// Starts to consume the queues of these modules.
    ///
    /// # Errors
    /// When the broker permanently refuses a call. Retries later while it is unavailable.
    pub(in crate::worker) async fn start<'a>(
        self,
        settings: &Settings,
        modules: impl Iterator<Item = &'a str> + Send,
    ) -> Result<Ends, Error> {
        let queues: BTreeSet<Queue> = modules.map(|module| self.queue(module)).collect();
        let Self { broker, back, .. } = self;
        let server = match &back {
            WayBack::Server(client) => Some(client.clone()),
            WayBack::Results(results) => {
                lasting(&*broker, broker.declare(results).await)?;
                None
            }
        };
        let consumer_settings = ConsumerSettings {
            binding: None,
            group: GROUP.to_owned(),
            name: settings.info.name.clone(),
            in_hands_max: settings.concurrency,
            silent_after: settings.lease.unwrap_or(SILENT_AFTER),
        };
        let hands = Arc::new(Hands::default());
        let credit = Credit::new();
        let (arrive, arrivals) = unbounded_channel::<Arrival>();
        let mut sources = JoinSet::new();
        let mut orders = Vec::new();
        for (number, queue) in queues.into_iter().enumerate() {
            let consumer = lasting(&*broker, broker.consume(&queue, &consumer_settings).await)?;
            let (order, inbox) = unbounded_channel();
            orders.push(order);
            let source = Source {
                number,
                broker: broker.clone(),
                queue,
                settings: consumer_settings.clone(),
                server: server.clone(),
                consumer,
                allowance: Allowance::of(&credit),
                arrivals: arrive.clone(),
                orders: inbox,
            };
            sources.spawn(source.run());
        }
        let counterpart: Box<dyn Counterpart> = match back {
            WayBack::Server(client) => Box::new(Session::new(client)),
            WayBack::Results(results) => Box::new(Results::new(broker, results, hands.clone())),
        };
        let queues = Queues { hands, credit, arrivals, orders, sources };
        Ok((counterpart, Some(Box::new(queues))))
    }
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let results = match &self.back {
            WayBack::Server(_) => None,
            WayBack::Results(queue) => Some(queue),
        };
        f.debug_struct("Setup")
            .field("broker", &self.broker.name())
            .field("results", &results)
            .field("queues", &self.queues)
            .finish()
    }
}

/// The value of a broker call; none if the call may succeed later.
fn lasting<T>(broker: &dyn Broker, outcome: Result<T, BrokerError>) -> Result<Option<T>, Error> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_passing() => {
            tracing::warn!(broker = broker.name(), %error, "the broker is not available yet; retrying");
            Ok(None)
        }
        Err(error) => Err(Error::Broker { broker: broker.name().to_owned(), reason: Box::new(error) }),
    }
}
