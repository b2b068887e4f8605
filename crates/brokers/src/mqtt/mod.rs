//! MQTT 3.1.1 and 5, as a network of devices.
//!
//! One client with a fixed id and a persistent session: the broker keeps messages for it while it is disconnected. Messages are
//! acknowledged by the caller, so those that were not come again after a reconnect. A connection ends with its first error.
//! What was published and not acknowledged by then is reported as an error: the caller publishes it again, under the same ids.
//!
//! | file | concern |
//! |---|---|
//! | `address.rs` | the URL |
//! | `protocol.rs` | the two versions of the protocol as one client |
//! | `link.rs` | one connection: the task that drives it, and what waits for its acknowledgements |

mod address;
mod link;
mod protocol;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::{sync::Mutex, time::timeout};

use self::{address::Address, link::Link};
use crate::{BrokerError, DeviceConnection, DeviceNetwork, tls};

/// How long the broker may take to accept a connection, or to acknowledge what is published.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection that was lost earlier than this is not made again before.
const RECONNECT_AFTER: Duration = Duration::from_secs(1);

/// The version of the protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MqttVersion {
    /// 3.1.1, which all brokers have.
    #[default]
    V3,
    /// 5: the broker says why it refuses, and limits the messages that it sends before they are acknowledged.
    V5,
}

/// The settings of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MqttSettings {
    /// The client id. The broker keeps the session by it, and ends the connection of another client that has the same.
    pub client_id: String,
    /// The topic filters to subscribe to.
    pub filters: Vec<String>,
    /// The version of the protocol that the broker is spoken to in.
    pub version: MqttVersion,
}

/// An MQTT broker.
pub struct Mqtt {
    name: String,
    address: Address,
    settings: MqttSettings,
    /// The last connection. Locked while one is made.
    link: Mutex<Option<Arc<Link>>>,
}

impl Mqtt {
    /// A client of the broker at `url`, which connects when it is first used.
    ///
    /// # Errors
    /// [`BrokerError::Invalid`] if the URL or a topic filter is invalid, or a file with certificates cannot be used.
    pub fn open(url: &str, settings: MqttSettings) -> Result<Self, BrokerError> {
        let address = Address::parse(url)?;
        if let Some(filter) = settings.filters.iter().find(|filter| !rumqttc::valid_filter(filter)) {
            return Err(BrokerError::Invalid(format!(
                "{filter:?} is not a topic filter: `#` may only be its last level, and `+` a whole level"
            )));
        }
        if let Some(files) = &address.tls {
            tls::configuration(files)?;
        }
        Ok(Self { name: address.name(), address, settings, link: Mutex::default() })
    }
}

#[async_trait]
impl DeviceNetwork for Mqtt {
    fn name(&self) -> &str {
        &self.name
    }

    async fn connect(&self) -> Result<Arc<dyn DeviceConnection>, BrokerError> {
        let mut link = self.link.lock().await;
        if let Some(alive) = link.as_ref().filter(|link| link.is_alive()) {
            return Ok(alive.clone());
        }
        // Two clients with one id would end each other's connection as fast as they can connect.
        if let Some(lost) = link.as_ref().filter(|lost| lost.age() < RECONNECT_AFTER) {
            return Err(lost.error());
        }
        *link = None;
        let opened = timeout(ANSWER_TIMEOUT, Link::open(&self.address, &self.settings)).await;
        let opened = opened.map_err(|_| {
            BrokerError::Unreachable(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()))
        })??;
        Ok(link.insert(Arc::new(opened)).clone())
    }

    async fn disconnect(&self) {
        if let Some(link) = self.link.lock().await.take() {
            link.end().await;
        }
    }
}
