//! The two versions of MQTT as one client: the only file that knows the types of both.

use bytes::Bytes;
use rumqttc::{
    AsyncClient, Event, EventLoop, MqttOptions, Outgoing, Packet, Publish, QoS, StateError, SubscribeFilter,
    SubscribeReasonCode, TlsConfiguration, Transport,
    v5::{
        self,
        mqttbytes::{
            QoS as QoS5,
            v5::{
                DisconnectReasonCode, Filter, Packet as Packet5, PubAckReason, Publish as Publish5,
                SubscribeReasonCode as SubscribeReason5,
            },
        },
    },
};
use std::time::Duration;

use super::{Address, MqttSettings, MqttVersion};
use crate::{BrokerError, tls};

/// Requests on their way to the event loop: publishes and acknowledgements.
const REQUESTS_MAX: usize = 20_000;

/// Messages that are published and not acknowledged by the broker. With MQTT 5 the broker may set fewer.
const IN_FLIGHT_MAX: u16 = 1_000;

/// Messages that the broker may send before they are acknowledged; with 3.1.1 it is a setting of the broker.
const RECEIVE_MAX: u16 = 5_000;

/// How long the broker keeps the session of a client that is not connected: for ever, as with 3.1.1. A broker may have a
/// limit of its own.
const SESSION_EXPIRY: u32 = u32::MAX;

/// The largest packet that the broker may send: the largest that MQTT has. One above the limit would end each connection
/// before it is acknowledged, and come again.
const PACKET_BYTES_MAX: u32 = (256 << 20) + 16;

/// The largest packet that is sent.
const SENT_BYTES_MAX: usize = 1 << 20;

/// The interval at which an idle connection is checked.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// What both versions say where the other end closed the connection without a reason.
const CLOSED: &str = "the broker closed the connection: another client may have the same client id";

/// Sends requests.
pub(super) enum Client {
    V3(AsyncClient),
    V5(v5::AsyncClient),
}

/// Reads and writes, and says what has happened.
pub(super) enum Events {
    V3(Box<EventLoop>),
    V5(Box<v5::EventLoop>),
}

/// What has happened on a connection.
pub(super) enum Happening {
    /// The broker accepted the connection.
    Connected,
    /// The broker answered a subscription.
    Subscribed(Result<(), BrokerError>),
    /// A message came.
    Received { topic: String, payload: Bytes, retained: bool, pkid: u16 },
    /// The message that was requested first of those without a packet id has this one.
    Sent(u16),
    /// The broker answered a message.
    Acknowledged(u16, Result<(), BrokerError>),
    /// Nothing that concerns a caller.
    Other,
}

/// A client that connects when its events are read.
///
/// # Errors
/// When a file with certificates cannot be used.
pub(super) fn client(address: &Address, settings: &MqttSettings) -> Result<(Client, Events), BrokerError> {
    let transport = match &address.tls {
        Some(files) => Transport::tls_with_config(TlsConfiguration::Rustls(tls::configuration(files)?)),
        None => Transport::Tcp,
    };
    match settings.version {
        MqttVersion::V3 => {
            let mut options = MqttOptions::new(&settings.client_id, &address.host, address.port);
            options.set_clean_session(false);
            options.set_manual_acks(true);
            options.set_keep_alive(KEEP_ALIVE);
            options.set_inflight(IN_FLIGHT_MAX);
            options.set_max_packet_size(PACKET_BYTES_MAX as usize, SENT_BYTES_MAX);
            options.set_transport(transport);
            if let Some((user, password)) = &address.login {
                options.set_credentials(user, password);
            }
            let (client, events) = AsyncClient::new(options, REQUESTS_MAX);
            Ok((Client::V3(client), Events::V3(Box::new(events))))
        }
        MqttVersion::V5 => {
            let mut options = v5::MqttOptions::new(&settings.client_id, &address.host, address.port);
            options.set_clean_start(false);
            options.set_session_expiry_interval(Some(SESSION_EXPIRY));
            options.set_receive_maximum(Some(RECEIVE_MAX));
            options.set_max_packet_size(Some(PACKET_BYTES_MAX));
            options.set_manual_acks(true);
            options.set_keep_alive(KEEP_ALIVE);
            options.set_outgoing_inflight_upper_limit(IN_FLIGHT_MAX);
            options.set_transport(transport);
            if let Some((user, password)) = &address.login {
                options.set_credentials(user, password);
            }
            let (client, events) = v5::AsyncClient::new(options, REQUESTS_MAX);
            Ok((Client::V5(client), Events::V5(Box::new(events))))
        }
    }
}

/// The event loop has ended, or too many requests wait for it.
pub(super) struct NotRequested;

impl Client {
    /// Requests a message at QoS 1.
    pub(super) fn try_publish(&self, topic: String, payload: Vec<u8>) -> Result<(), NotRequested> {
        match self {
            Self::V3(client) => {
                client.try_publish(topic, QoS::AtLeastOnce, false, payload).map_err(|_| NotRequested)
            }
            Self::V5(client) => {
                client.try_publish(topic, QoS5::AtLeastOnce, false, payload).map_err(|_| NotRequested)
            }
        }
    }

    /// Requests subscriptions at QoS 1.
    pub(super) async fn subscribe(&self, filters: &[String]) -> Result<(), NotRequested> {
        let filters = filters.iter().cloned();
        match self {
            Self::V3(client) => {
                let filters = filters.map(|filter| SubscribeFilter::new(filter, QoS::AtLeastOnce));
                client.subscribe_many(filters).await.map_err(|_| NotRequested)
            }
            Self::V5(client) => {
                let filters = filters.map(|filter| Filter::new(filter, QoS5::AtLeastOnce));
                client.subscribe_many(filters).await.map_err(|_| NotRequested)
            }
        }
    }

    /// Requests the acknowledgement of a message at QoS 1.
    pub(super) async fn acknowledge(&self, pkid: u16) -> Result<(), NotRequested> {
        match self {
            Self::V3(client) => {
                let mut publish = Publish::new("", QoS::AtLeastOnce, Vec::new());
                publish.pkid = pkid;
                client.ack(&publish).await.map_err(|_| NotRequested)
            }
            Self::V5(client) => {
                let mut publish = Publish5::new("", QoS5::AtLeastOnce, Vec::new(), None);
                publish.pkid = pkid;
                client.ack(&publish).await.map_err(|_| NotRequested)
            }
        }
    }

    /// Requests the end of the connection.
    pub(super) fn try_disconnect(&self) -> Result<(), NotRequested> {
        match self {
            Self::V3(client) => client.try_disconnect().map_err(|_| NotRequested),
            Self::V5(client) => client.try_disconnect().map_err(|_| NotRequested),
        }
    }
}

impl Events {
    /// Waits for the next event.
    ///
    /// # Errors
    /// When the connection was lost or could not be made. The error contains no password.
    pub(super) async fn next(&mut self) -> Result<Happening, BrokerError> {
        match self {
            Self::V3(events) => events.poll().await.map(of_v3).map_err(|error| lost_by_v3(&error)),
            Self::V5(events) => events.poll().await.map(of_v5).map_err(|error| lost_by_v5(&error)),
        }
    }
}

fn of_v3(event: Event) -> Happening {
    match event {
        Event::Incoming(Packet::ConnAck(_)) => Happening::Connected,
        Event::Incoming(Packet::Publish(Publish { topic, payload, retain, pkid, .. })) => {
            Happening::Received { topic, payload, retained: retain, pkid }
        }
        Event::Incoming(Packet::PubAck(answer)) => Happening::Acknowledged(answer.pkid, Ok(())),
        Event::Incoming(Packet::SubAck(answer)) => {
            let refused = answer.return_codes.contains(&SubscribeReasonCode::Failure);
            Happening::Subscribed(if refused { Err(subscription_refused("")) } else { Ok(()) })
        }
        Event::Outgoing(outgoing) => of_outgoing(&outgoing),
        Event::Incoming(_) => Happening::Other,
    }
}

fn of_v5(event: v5::Event) -> Happening {
    match event {
        v5::Event::Incoming(Packet5::ConnAck(_)) => Happening::Connected,
        v5::Event::Incoming(Packet5::Publish(Publish5 { topic, payload, retain, pkid, .. })) => {
            let topic = String::from_utf8_lossy(&topic).into_owned();
            Happening::Received { topic, payload, retained: retain, pkid }
        }
        v5::Event::Incoming(Packet5::PubAck(answer)) => {
            let result = match answer.reason {
                PubAckReason::Success | PubAckReason::NoMatchingSubscribers => Ok(()),
                reason => Err(BrokerError::Refused(format!("the message: {reason:?}"))),
            };
            Happening::Acknowledged(answer.pkid, result)
        }
        v5::Event::Incoming(Packet5::SubAck(answer)) => {
            let refused =
                answer.return_codes.iter().find(|code| !matches!(code, SubscribeReason5::Success(_)));
            Happening::Subscribed(match refused {
                Some(reason) => Err(subscription_refused(&format!(" ({reason:?})"))),
                None => Ok(()),
            })
        }
        v5::Event::Outgoing(outgoing) => of_outgoing(&outgoing),
        v5::Event::Incoming(_) => Happening::Other,
    }
}

fn of_outgoing(outgoing: &Outgoing) -> Happening {
    match outgoing {
        Outgoing::Publish(pkid) => Happening::Sent(*pkid),
        _ => Happening::Other,
    }
}

fn subscription_refused(reason: &str) -> BrokerError {
    BrokerError::Refused(format!("a subscription{reason}: check the access control of the broker"))
}

fn lost_by_v3(error: &rumqttc::ConnectionError) -> BrokerError {
    use rumqttc::ConnectionError as Error;
    match error {
        Error::ConnectionRefused(code) => BrokerError::Refused(format!("{code:?}")),
        Error::MqttState(StateError::ConnectionAborted) => BrokerError::Unreachable(CLOSED.to_owned()),
        other => lost(&other.to_string()),
    }
}

fn lost_by_v5(error: &v5::ConnectionError) -> BrokerError {
    use v5::{ConnectionError as Error, StateError};
    match error {
        Error::ConnectionRefused(code) | Error::MqttState(StateError::ConnFail { reason: code }) => {
            BrokerError::Refused(format!("{code:?}"))
        }
        Error::MqttState(StateError::ConnectionAborted) => BrokerError::Unreachable(CLOSED.to_owned()),
        Error::MqttState(StateError::ServerDisconnect { reason_code, reason_string }) => {
            let advice = match reason_code {
                DisconnectReasonCode::SessionTakenOver => ": another client has the same client id",
                _ => "",
            };
            let text = reason_string.as_deref().map(|text| format!(" ({text})")).unwrap_or_default();
            BrokerError::Unreachable(format!(
                "the broker closed the connection: {reason_code:?}{text}{advice}"
            ))
        }
        other => lost(&other.to_string()),
    }
}

fn lost(text: &str) -> BrokerError {
    tls::refusal(text).unwrap_or_else(|| BrokerError::Unreachable(text.to_owned()))
}
