//! Creates topics and reads their state.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer as _},
    error::KafkaError,
    types::RDKafkaErrorCode as Code,
};
use tokio::task::spawn_blocking;

use crate::{
    BrokerError, InFlight, Look, Positions, Progress, Queue,
    kafka::{
        address::{self, Address},
        failure,
        reason::Reason,
        settings,
    },
};

/// The time limit for one answer of the cluster.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The time limit until a new topic is usable.
const MAKE_MAX: Duration = Duration::from_secs(10);

/// The interval of the checks whether it is usable.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The time limit for polling the client for further reports.
const TELL_MAX: Duration = Duration::from_millis(1);

/// The longest name of a topic.
const NAME_BYTES_MAX: usize = 249;

/// The topics used so far.
pub(super) struct Topics {
    address: Arc<Address>,
    clients: Mutex<Option<Clients>>,
    /// By group id; each group has one topic.
    group_observers: Mutex<HashMap<String, Arc<Observer>>>,
    known: Mutex<HashMap<String, Known>>,
}

#[derive(Clone)]
struct Clients {
    administrator: Arc<AdminClient<DefaultClientContext>>,
    observer: Arc<Observer>,
}

type Observer = BaseConsumer<Reason>;

/// The known state of a topic.
///
/// The library does not report a topic's id. A topic that was created again is recognised by lost data: an
/// offset lower than an earlier one.
#[derive(Debug, Default)]
struct Known {
    /// Whether it exists.
    is_made: bool,
    /// How often its data was lost.
    generation: u64,
    /// The offset after the last message seen or confirmed, for each partition.
    ends: HashMap<i32, i64>,
}

impl Topics {
    pub(super) fn new(address: Arc<Address>) -> Self {
        Self {
            address,
            clients: Mutex::default(),
            group_observers: Mutex::default(),
            known: Mutex::default(),
        }
    }

    /// Creates a topic unless it exists.
    pub(super) async fn declare(&self, queue: &Queue) -> Result<(), BrokerError> {
        check(queue)?;
        if self.known().get(&queue.name).is_some_and(|known| known.is_made) {
            return Ok(());
        }
        let clients = self.clients(queue)?;
        let until = Instant::now() + MAKE_MAX;
        let mut is_made = false;
        loop {
            let can_be_used = match partitions(&clients.observer, queue).await {
                // Without the offsets of the group: a client that only writes may lack access to it.
                Ok(partitions) => ends(&clients.observer, queue, partitions).await.map(drop),
                Err(error) => Err(error),
            };
            match can_be_used {
                Ok(()) => break,
                // Only now: a client with access to a topic may lack the right to create one.
                Err(BrokerError::NoQueue(_)) if !is_made => {
                    self.make(&clients, queue).await?;
                    is_made = true;
                }
                // The topic was created, but not all servers know it yet.
                Err(error) if is_made && error.is_passing() && Instant::now() < until => {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                Err(error) => return Err(error),
            }
        }
        self.known().entry(queue.name.clone()).or_default().is_made = true;
        Ok(())
    }

    async fn make(&self, clients: &Clients, queue: &Queue) -> Result<(), BrokerError> {
        let copies = TopicReplication::Fixed(self.address.replicas);
        let topic = NewTopic::new(&queue.name, self.address.partitions, copies);
        let options =
            AdminOptions::new().request_timeout(Some(ANSWER_MAX)).operation_timeout(Some(ANSWER_MAX));
        let answers = clients.administrator.create_topics([&topic], &options).await;
        match answers.map_err(|error| failure::of(queue, &error))?.pop() {
            Some(Ok(_) | Err((_, Code::TopicAlreadyExists))) => Ok(()),
            Some(Err((_, code))) => Err(failure::of_code(queue, code)),
            None => Err(BrokerError::Failed("the cluster returned no outcome for a topic".to_owned())),
        }
    }

    /// Marks a topic as possibly deleted.
    pub(super) fn doubt(&self, queue: &Queue) {
        if let Some(known) = self.known().get_mut(&queue.name) {
            known.is_made = false;
        }
    }

    /// Records that a message was confirmed at this offset.
    pub(super) fn note(&self, queue: &Queue, partition: i32, offset: i64) {
        let mut known = self.known();
        let end = known.entry(queue.name.clone()).or_default().ends.entry(partition).or_default();
        *end = (*end).max(offset + 1);
    }

    /// Reads the number of messages of a topic, and the progress of the group.
    pub(super) async fn look(&self, queue: &Queue) -> Result<Look, BrokerError> {
        check(queue)?;
        // Messages confirmed during the query may be missing in its answer.
        let before = self.known().get(&queue.name).map(|known| known.ends.clone()).unwrap_or_default();
        let observer = self.group_observer(queue, self.address.group(&queue.name))?;
        let looked = match partitions(&observer, queue).await {
            Ok(partitions) => spans(&observer, queue, partitions).await,
            Err(error) => Err(error),
        };
        let mut known = self.known();
        let known = known.entry(queue.name.clone()).or_default();
        if matches!(looked, Err(BrokerError::NoQueue(_))) {
            known.is_made = false;
            known.begin_anew(HashMap::new());
        }
        let spans = looked?;
        let left = spans.values().map(Span::left).sum();
        let ends: HashMap<i32, i64> =
            spans.into_iter().map(|(partition, span)| (partition, span.end)).collect();
        if before.iter().any(|(partition, end)| ends.get(partition).is_none_or(|now| now < end)) {
            known.begin_anew(ends);
        } else {
            for (partition, end) in ends {
                let seen = known.ends.entry(partition).or_default();
                *seen = (*seen).max(end);
            }
        }
        let identity = Some(known.generation.to_string());
        Ok(Look { messages: Some(left), in_flight: InFlight::Counted, identity })
    }

    /// How far the consumers of a group have settled a topic's messages.
    pub(super) async fn progress(&self, queue: &Queue, group: &str) -> Result<Progress, BrokerError> {
        check(queue)?;
        let observer = self.group_observer(queue, address::group(group, &queue.name))?;
        let partitions = partitions(&observer, queue).await?;
        let spans = spans(&observer, queue, partitions).await?;
        let position = |offset: i64| u128::try_from(offset).unwrap_or_default();
        let positions = |span: &Span| Positions { settled: position(span.settled), end: position(span.end) };
        Ok(Progress::Positions(spans.iter().map(|(partition, span)| (*partition, positions(span))).collect()))
    }

    fn clients(&self, queue: &Queue) -> Result<Clients, BrokerError> {
        let mut clients = self.clients.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(clients) = &*clients {
            return Ok(clients.clone());
        }
        let administrator = settings::common(&self.address).create();
        let administrator = Arc::new(administrator.map_err(|error| failure::of(queue, &error))?);
        let observer = observer(queue, &settings::common(&self.address))?;
        Ok(clients.insert(Clients { administrator, observer }).clone())
    }

    /// The client that sees a topic with the offsets of a group. The library supports one group per client.
    fn group_observer(&self, queue: &Queue, group: String) -> Result<Arc<Observer>, BrokerError> {
        let mut observers = self.group_observers.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(observer) = observers.get(&group) {
            return Ok(Arc::clone(observer));
        }
        let made = observer(queue, &settings::of_group_observer(&self.address, &group))?;
        observers.insert(group, Arc::clone(&made));
        Ok(made)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Known {
    /// Records that the data was lost.
    fn begin_anew(&mut self, ends: HashMap<i32, i64>) {
        if !self.ends.is_empty() {
            self.generation += 1;
        }
        self.ends = ends;
    }
}

fn observer(queue: &Queue, config: &ClientConfig) -> Result<Arc<Observer>, BrokerError> {
    let made = config.create_with_context(Reason::default());
    made.map(Arc::new).map_err(|error| failure::of(queue, &error))
}

/// The numbers of a topic's partitions.
async fn partitions(observer: &Arc<Observer>, queue: &Queue) -> Result<Vec<i32>, BrokerError> {
    observe(observer, queue, |observer, topic| {
        let answer = observer.fetch_metadata(Some(topic), ANSWER_MAX)?;
        let missing = KafkaError::MetadataFetch(Code::UnknownTopicOrPartition);
        let Some(topic) = answer.topics().iter().find(|known| known.name() == topic) else {
            return Err(missing);
        };
        if let Some(code) = topic.error() {
            return Err(KafkaError::MetadataFetch(code.into()));
        }
        let partitions: Vec<i32> = topic.partitions().iter().map(|partition| partition.id()).collect();
        if partitions.is_empty() { Err(missing) } else { Ok(partitions) }
    })
    .await
}

/// The end offsets of the partitions.
async fn ends(
    observer: &Arc<Observer>,
    queue: &Queue,
    partitions: Vec<i32>,
) -> Result<HashMap<i32, i64>, BrokerError> {
    observe(observer, queue, move |observer, topic| {
        let list = all_at(topic, &partitions, Offset::End)?;
        offsets(&observer.offsets_for_times(list, ANSWER_MAX)?)
    })
    .await
}

/// Offsets of a partition: the group has done everything before `settled`, and the next message gets `end`.
#[derive(Debug, Clone, Copy)]
struct Span {
    settled: i64,
    end: i64,
}

impl Span {
    /// The number of messages that the group has not done yet.
    fn left(&self) -> u64 {
        u64::try_from(self.end - self.settled).unwrap_or_default()
    }
}

/// The progress of the observer's group in each partition.
async fn spans(
    observer: &Arc<Observer>,
    queue: &Queue,
    partitions: Vec<i32>,
) -> Result<HashMap<i32, Span>, BrokerError> {
    observe(observer, queue, move |observer, topic| {
        let at = |offset| all_at(topic, &partitions, offset);
        let ask = |offset| offsets(&observer.offsets_for_times(at(offset)?, ANSWER_MAX)?);
        let (ends, begins) = (ask(Offset::End)?, ask(Offset::Beginning)?);
        let done = offsets(&observer.committed_offsets(at(Offset::Invalid)?, ANSWER_MAX)?)?;
        let span = |(partition, end): (&i32, &i64)| {
            let begin = begins.get(partition).copied().unwrap_or_default();
            let settled = done.get(partition).map_or(begin, |done| begin.max(*done));
            (*partition, Span { settled, end: *end })
        };
        Ok(ends.iter().map(span).collect())
    })
    .await
}

/// All partitions of a topic, each at this offset.
fn all_at(topic: &str, partitions: &[i32], offset: Offset) -> Result<TopicPartitionList, KafkaError> {
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    for partition in partitions {
        list.add_partition_offset(topic, *partition, offset)?;
    }
    Ok(list)
}

/// The offsets of a list; partitions without one are left out.
fn offsets(list: &TopicPartitionList) -> Result<HashMap<i32, i64>, KafkaError> {
    let mut offsets = HashMap::new();
    for element in list.elements() {
        element.error()?;
        if let Offset::Offset(offset) = element.offset() {
            offsets.insert(element.partition(), offset);
        }
    }
    Ok(offsets)
}

/// Runs a blocking query on another thread, and explains why it failed.
async fn observe<T: Send + 'static>(
    observer: &Arc<Observer>,
    queue: &Queue,
    ask: impl FnOnce(&Observer, &str) -> Result<T, KafkaError> + Send + 'static,
) -> Result<T, BrokerError> {
    let (observer, queue) = (Arc::clone(observer), queue.clone());
    let work = move || {
        let answer = ask(&observer, &queue.name);
        // The library delivers its reports only when it is polled.
        while observer.poll(TELL_MAX).is_some() {}
        let reason = observer.context();
        if answer.is_ok() {
            reason.forget();
        }
        answer.map_err(|error| reason.explain(&queue, &error))
    };
    spawn_blocking(work).await.map_err(|error| BrokerError::Failed(error.to_string()))?
}

/// Refuses an invalid name of a topic.
pub(super) fn check(queue: &Queue) -> Result<(), BrokerError> {
    if let Some(kind) = &queue.kind {
        return Err(BrokerError::Invalid(format!(
            "Kafka has no kinds of queues, and so not {kind}: leave the kind out"
        )));
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let name = queue.name.as_str();
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.starts_with('.') || !name.chars().all(allowed) {
        return Err(BrokerError::Invalid(format!(
            "{name:?} cannot be a topic: 1 to {NAME_BYTES_MAX} letters, digits, dots, hyphens and underscores, of \
             which the first must not be a dot"
        )));
    }
    Ok(())
}
