//! One connection to an MQTT broker.
//!
//! A task drives it and alone reads from it. Acknowledgements are matched by packet id: requests are sent in their order, so
//! the next packet id that is sent belongs to the message that has waited longest.
//!
//! The task never waits for a receiver: it would not read the acknowledgements of what is published meanwhile. Messages that
//! nobody asks for are kept up to a limit in bytes. Those above the limit are left to the broker: none is kept from then on,
//! so that they stay in order, and when the receiver has read what is there, a new connection makes the broker send the
//! others again.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use tokio::{
    sync::{Notify, mpsc, oneshot},
    task::JoinHandle,
    time::timeout,
};

use super::{
    ANSWER_TIMEOUT, Address, MqttSettings,
    protocol::{self, Client, Events, Happening},
};
use crate::{BrokerError, DeviceCommand, DeviceConnection, DeviceMessage};

/// Bytes of messages that were received and not asked for. A broker sends few messages that are not acknowledged (Mosquitto:
/// 20), but it may be configured to send them all.
const RECEIVED_BYTES_MAX: usize = 64 << 20;

/// The memory of a message besides its topic and payload, about.
const MESSAGE_BYTES: usize = 128;

/// The largest payload that is passed on. A longer one is cut: it must not take the memory of all others.
const PAYLOAD_BYTES_MAX: usize = 256 << 10;

/// The largest payload that is published. Larger ones are refused before they are sent.
const PUBLISHED_BYTES_MAX: usize = 512 << 10;

/// How long a new connection waits for the answer to its subscription.
const SUBSCRIBED_WITHIN: Duration = Duration::from_secs(2);

/// How long a disconnect may take.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection.
pub(super) struct Link {
    client: Client,
    filters: Vec<String>,
    opened_at: Instant,
    shared: Arc<Shared>,
    received: tokio::sync::Mutex<mpsc::UnboundedReceiver<DeviceMessage>>,
    task: JoinHandle<()>,
}

/// Gets the broker's answer to a message.
type Waits = oneshot::Sender<Result<(), BrokerError>>;

struct Shared {
    is_lost: AtomicBool,
    lost: Notify,
    /// Bytes of messages that were received and not asked for.
    received_bytes: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Messages that have no packet id yet, in the order of their requests.
    unsent: VecDeque<Waits>,
    /// Messages that were sent, by packet id.
    sent: HashMap<u16, Waits>,
    error: Option<BrokerError>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection is lost: nobody waits for it any longer.
    fn lose(&self, error: BrokerError) {
        let mut state = self.state();
        state.error.get_or_insert(error);
        state.unsent.clear();
        state.sent.clear();
        drop(state);
        self.is_lost.store(true, Ordering::Release);
        self.lost.notify_waiters();
    }
}

impl Link {
    /// Connects and subscribes.
    pub(super) async fn open(address: &Address, settings: &MqttSettings) -> Result<Self, BrokerError> {
        let (client, mut events) = protocol::client(address, settings)?;
        while !matches!(events.next().await?, Happening::Connected) {}
        let (subscribed, is_subscribed) = oneshot::channel();
        client.subscribe(&settings.filters).await.map_err(|_| gone())?;
        let shared = Arc::new(Shared {
            is_lost: AtomicBool::new(false),
            lost: Notify::new(),
            received_bytes: AtomicUsize::new(0),
            state: Mutex::default(),
        });
        let (sender, received) = mpsc::unbounded_channel();
        let task = tokio::spawn(drive(events, shared.clone(), sender, subscribed));
        let link = Self {
            client,
            filters: settings.filters.clone(),
            opened_at: Instant::now(),
            shared,
            received: tokio::sync::Mutex::new(received),
            task,
        };
        // What waits at the broker may come before its answer, and a lot of it.
        match timeout(SUBSCRIBED_WITHIN, is_subscribed).await {
            Ok(Err(_)) => Err(link.error()),
            Ok(Ok(())) | Err(_) => Ok(link),
        }
    }

    /// Whether it works, as far as is known.
    pub(super) fn is_alive(&self) -> bool {
        !self.shared.is_lost.load(Ordering::Acquire)
    }

    /// How long ago it was made.
    pub(super) fn age(&self) -> Duration {
        self.opened_at.elapsed()
    }

    /// Why it was lost.
    pub(super) fn error(&self) -> BrokerError {
        self.shared.state().error.clone().unwrap_or_else(gone)
    }

    /// Sends a message. Returns what receives the broker's answer; it closes if the connection is lost.
    fn send(
        &self,
        message: &DeviceCommand,
    ) -> Result<oneshot::Receiver<Result<(), BrokerError>>, BrokerError> {
        let (answer, waits) = oneshot::channel();
        let (topic, payload) = (message.topic.clone(), message.payload.clone());
        {
            // The order of the requests is that of the senders.
            let mut state = self.shared.state();
            if state.error.is_some() {
                return Err(state.error.clone().unwrap_or_else(gone));
            }
            if self.client.try_publish(topic, payload).is_err() {
                return Err(BrokerError::Failed("too many messages wait to be published".to_owned()));
            }
            state.unsent.push_back(answer);
        }
        Ok(waits)
    }

    /// Gives the connection up.
    pub(super) fn close(&self) {
        self.shared.lose(gone());
        self.task.abort();
    }

    /// Closes the connection in order: the broker does not publish a last will, and keeps the session. Waits for the broker to
    /// close its end: a new connection before that can make it drop acknowledgements that it has not read.
    pub(super) async fn end(&self) {
        if self.client.try_disconnect().is_ok() && self.is_alive() {
            // An error means that it is gone already.
            let _ = timeout(DISCONNECT_TIMEOUT, self.shared.lost.notified()).await;
        }
        self.close();
    }
}

#[async_trait]
impl DeviceConnection for Link {
    async fn publish(&self, messages: &[DeviceCommand]) -> Result<Vec<Result<(), BrokerError>>, BrokerError> {
        if !self.is_alive() {
            return Err(self.error());
        }
        let send = |message| check(message).and_then(|()| self.send(message));
        let waiting: Vec<_> = messages.iter().map(send).collect();
        let mut outcomes = Vec::with_capacity(messages.len());
        for sent in waiting {
            outcomes.push(match sent {
                Ok(acknowledged) => match timeout(ANSWER_TIMEOUT, acknowledged).await {
                    Ok(Ok(answer)) => answer,
                    Ok(Err(_)) => Err(self.error()),
                    Err(_) => {
                        self.close();
                        Err(BrokerError::Unreachable("it acknowledges nothing".to_owned()))
                    }
                },
                Err(error) => Err(error),
            });
        }
        Ok(outcomes)
    }

    async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<DeviceMessage>, BrokerError> {
        if !self.is_alive() {
            return Err(self.error());
        }
        let mut received = self.received.lock().await;
        let mut messages = Vec::new();
        let first = timeout(wait, received.recv()).await;
        match first {
            Ok(Some(message)) => messages.push(message),
            Ok(None) => {
                self.shared.state().error.get_or_insert_with(overfull);
                // In order: what was acknowledged must not come again.
                self.end().await;
                return Err(self.error());
            }
            Err(_) => return Ok(messages),
        }
        while messages.len() < max
            && let Ok(message) = received.try_recv()
        {
            messages.push(message);
        }
        let bytes = messages.iter().map(bytes).sum();
        self.shared.received_bytes.fetch_sub(bytes, Ordering::Relaxed);
        Ok(messages)
    }

    async fn acknowledge(&self, receipts: &[u64]) -> Result<(), BrokerError> {
        // After a lost connection all of them come again.
        for receipt in receipts.iter().filter(|_| self.is_alive()) {
            let Ok(pkid @ 1..) = u16::try_from(*receipt) else { continue };
            self.client.acknowledge(pkid).await.map_err(|_| self.error())?;
        }
        Ok(())
    }

    async fn refresh(&self) -> Result<(), BrokerError> {
        if !self.is_alive() {
            return Err(self.error());
        }
        self.client.subscribe(&self.filters).await.map_err(|_| self.error())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Drives a connection until its first error.
async fn drive(
    mut events: Events,
    shared: Arc<Shared>,
    sender: mpsc::UnboundedSender<DeviceMessage>,
    subscribed: oneshot::Sender<()>,
) {
    let (mut sender, mut subscribed) = (Some(sender), Some(subscribed));
    let error = loop {
        match events.next().await {
            Ok(Happening::Received { topic, payload, retained, pkid }) => {
                let receipt = u64::from(pkid);
                let payload = payload[..payload.len().min(PAYLOAD_BYTES_MAX)].to_vec();
                let message = DeviceMessage { topic, payload, retained, receipt };
                let bytes = bytes(&message);
                let received_bytes = shared.received_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
                if received_bytes > RECEIVED_BYTES_MAX {
                    sender = None;
                }
                // The link owns the receiver, and ends this task.
                let _ = sender.as_ref().map(|sender| sender.send(message));
            }
            Ok(Happening::Sent(pkid)) => {
                let mut state = shared.state();
                if let Some(waits) = state.unsent.pop_front() {
                    state.sent.insert(pkid, waits);
                }
            }
            Ok(Happening::Acknowledged(pkid, answer)) => {
                if let Some(waits) = shared.state().sent.remove(&pkid) {
                    // The caller may have given up.
                    let _ = waits.send(answer);
                }
            }
            Ok(Happening::Subscribed(Err(refusal))) => break refusal,
            Ok(Happening::Subscribed(Ok(()))) => {
                // The caller may have given up.
                let _ = subscribed.take().map(|subscribed| subscribed.send(()));
            }
            Ok(Happening::Connected | Happening::Other) => {}
            Err(error) => break error,
        }
    };
    shared.lose(error);
}

/// What a message that waits counts for.
fn bytes(message: &DeviceMessage) -> usize {
    message.topic.len() + message.payload.len() + MESSAGE_BYTES
}

fn overfull() -> BrokerError {
    BrokerError::Unreachable(format!(
        "more than {} MiB of messages waited to be handled: the broker sends the others again",
        RECEIVED_BYTES_MAX >> 20
    ))
}

fn gone() -> BrokerError {
    BrokerError::Unreachable("the connection was lost".to_owned())
}

/// Checks a message to publish.
fn check(message: &DeviceCommand) -> Result<(), BrokerError> {
    if message.topic.is_empty() || message.topic.contains(['+', '#', '\0']) {
        return Err(BrokerError::Invalid(format!("{:?} is not a topic to publish to", message.topic)));
    }
    if message.payload.len() > PUBLISHED_BYTES_MAX {
        return Err(BrokerError::TooLarge { bytes: message.payload.len(), limit: PUBLISHED_BYTES_MAX });
    }
    Ok(())
}
