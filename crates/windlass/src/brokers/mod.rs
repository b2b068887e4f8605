//! Connects the server to brokers: publishes steps to the queues of modules and reads their results.
//!
//! | file | concern |
//! |---|---|
//! | `settings.rs`, `url.rs` | the configuration of brokers |
//! | `uses.rs` | refuses a queue with two uses |
//! | `check.rs` | refuses names and kinds that a broker does not support |
//! | `step.rs`, `job.rs` | a step as a message: the classic document, the event of a job |
//! | `ending.rs` | the shutdown of queue publishers and elected intakes |
//! | `consume.rs` | consumes a queue and settles its messages |
//! | `portion.rs` | how many messages are read at once |
//! | `results.rs` | the results that modules send over a broker |
//! | `intake.rs` | messages that start tasks |
//! | `leader.rs`, `election.rs` | an intake that only the elected server reads: its settings, its election |
//! | `document.rs`, `pointer.rs` | what a message asks for, and where its parts are |
//! | `events` | publishes events of tasks |
//! | `machinery` | signatures of the Go library machinery start tasks, and their results go back |

mod check;
mod consume;
mod document;
mod election;
mod ending;
mod events;
mod intake;
mod job;
mod leader;
mod machinery;
mod pointer;
mod portion;
mod results;
mod settings;
mod step;
mod url;
mod uses;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use anyhow::Context as _;
use tokio::sync::watch;
use windlass_brokers::{Broker, Queue};
use windlass_engine::{
    loops,
    services::{OutboxRelay, QueuePublisher, Subscriber, WriteStep},
};

use crate::{clock::SystemClock, http::App, loops::Loops};

use election::Election;
use machinery::Machinery;
use settings::{MessageFormat, PLACE_OF_EVENTS, place_of_intake, place_of_queue};

pub(crate) use check::{Keys, queue as check_queue};
#[cfg(feature = "consul")]
pub(crate) use consume::alarm_id;
pub(crate) use ending::Ending;
pub(crate) use events::{EventsSection, EventsSettings};
#[cfg(feature = "redis")]
pub use machinery::malformed::signature;
pub(crate) use machinery::{
    MachineryDiagnosis, MachinerySection, MachinerySettings, Servers as MachineryServers,
    examine as examine_machinery,
};
pub(crate) use pointer::Pointer;
pub(crate) use settings::{BrokerSettings, IntakeSection, QueueSection, RESULTS_DEFAULT, read};
pub(crate) use step::{timeout_seconds, whole};
pub(crate) use url::BrokerUrl;

/// Where brokers are configured, for error messages.
const IN_FILE: &str = "in the configuration file";

/// The brokers of a server, by URL: one connection each. They connect when they are first used.
pub(crate) struct Brokers {
    by_url: BTreeMap<BrokerUrl, Arc<dyn Broker>>,
    settings: BrokerSettings,
}

impl Brokers {
    /// Makes the clients of the configured brokers, without connecting.
    ///
    /// # Errors
    /// When a URL is invalid, its product is not in this build, or the broker does not support one of the
    /// queues. Names the section.
    pub(crate) fn new(settings: BrokerSettings) -> anyhow::Result<Self> {
        let mut by_url = BTreeMap::new();
        let queues =
            settings.queues.iter().map(|queue| (place_of_queue(&queue.publisher.module), &queue.broker));
        let intake =
            settings.intake.iter().map(|intake| (place_of_intake(&intake.queue.name), &intake.broker));
        let events = settings.events.iter().map(|events| (PLACE_OF_EVENTS.to_owned(), &events.broker));
        let machinery =
            settings.machinery.iter().map(|machinery| (machinery::PLACE.to_owned(), &machinery.broker));
        for (place, url) in queues.chain(intake).chain(events).chain(machinery) {
            if !by_url.contains_key(url) {
                let broker = windlass_brokers::connect(url.as_str())
                    .with_context(|| format!("{IN_FILE}: {place}: `broker`: cannot use the broker {url}"))?;
                by_url.insert(url.clone(), broker);
            }
        }
        let brokers = Self { by_url, settings };
        brokers.check().context(IN_FILE)?;
        Ok(brokers)
    }

    /// Starts the loops that publish steps, read their results, start tasks from messages and publish events, also to these
    /// `subscribers`.
    /// Events committed from now on are published. Returns what the caller must end before the loops.
    pub(crate) fn start(
        self,
        app: &Arc<App>,
        clock: &Arc<SystemClock>,
        mut subscribers: Vec<Arc<dyn Subscriber>>,
        running: &mut Loops,
    ) -> anyhow::Result<Ending> {
        let engine = &app.engine;
        if let Some(settings) = self.settings.events
            && let Some(broker) = self.by_url.get(&settings.broker)
        {
            subscribers.push(events::subscriber(broker.clone(), settings));
        }
        if let Some(settings) = self.settings.machinery
            && let Some(broker) = self.by_url.get(&settings.broker)
        {
            let machinery = Machinery::new(app.clone(), settings).context(machinery::PLACE)?;
            subscribers.push(machinery.start(broker, running)?);
        }
        let relay = (!subscribers.is_empty()).then(|| OutboxRelay::new(engine.clone(), subscribers));
        let relay = relay.map(Arc::new);
        if let Some(relay) = &relay {
            running.spawn_beside("publishes events", loops::relay(relay.clone(), clock.clone()))?;
        }
        let intakes = watch::Sender::new(false);
        for intake in self.settings.intake {
            let Some(broker) = self.by_url.get(&intake.broker) else { continue };
            match &intake.leader {
                None => {
                    let intake = intake::run(app.clone(), broker.clone(), intake);
                    running.spawn_beside("starts tasks from messages", intake)?;
                }
                Some(leader) => {
                    let election = Election::new(leader, app)?;
                    let intake = intake::run_elected(app.clone(), intake, election, intakes.subscribe());
                    running.spawn_beside("starts tasks from messages while elected", intake)?;
                }
            }
        }
        let mut heard: BTreeSet<(BrokerUrl, Queue)> = BTreeSet::new();
        let mut publishers = Vec::new();
        for queue in self.settings.queues {
            let Some(broker) = self.by_url.get(&queue.broker) else { continue };
            let results = queue.publisher.results.clone();
            if heard.insert((queue.broker, results.clone())) {
                let results =
                    results::run(engine.clone(), broker.clone(), results, queue.format, clock.clone());
                running.spawn_beside("reads results from a broker", results)?;
            }
            let mut chance = [0; 8];
            getrandom::fill(&mut chance).context("cannot get random bytes from the operating system")?;
            let writer: Arc<dyn WriteStep> = match queue.format {
                MessageFormat::Step => Arc::new(step::Writer),
                MessageFormat::Job => Arc::new(job::Writer),
                MessageFormat::Machinery => Arc::new(machinery::step::Writer {
                    queue: queue.publisher.queue.name.clone(),
                    results: queue.publisher.results.name.clone(),
                }),
            };
            let chance = u64::from_ne_bytes(chance);
            let publisher =
                QueuePublisher::new(engine.clone(), broker.clone(), writer, queue.publisher, chance);
            let publisher = Arc::new(publisher);
            publishers.push(publisher.clone());
            let publisher = loops::offer(publisher, engine.clone(), clock.clone());
            running.spawn_beside("publishes steps to a broker", publisher)?;
        }
        Ok(Ending { publishers, relay, intakes, clock: clock.clone() })
    }
}
