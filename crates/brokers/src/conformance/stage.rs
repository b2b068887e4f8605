//! Shared by the cases of topics: their own topic, and helpers for it.

use std::{ops::Range, sync::Arc, time::Instant};

use super::{
    Audience, Listener,
    bench::{PATIENCE, text},
};
use crate::{Announcement, Broker, BrokerError, Message, Topic};

/// The topic of one case.
pub(super) struct Stage<'s> {
    pub(super) audience: &'s dyn Audience,
    pub(super) broker: Arc<dyn Broker>,
    pub(super) topic: Topic,
}

impl<'s> Stage<'s> {
    pub(super) fn new(audience: &'s dyn Audience, case: &str) -> Self {
        let case = case.rsplit("::").next().unwrap_or_default().replace('_', "-");
        let name = format!("{}-{:08x}", &case[..case.len().min(50)], fastrand::u32(..));
        Self { audience, broker: audience.connect(), topic: audience.topic(&name) }
    }

    /// Publishes announcements, which must all be confirmed.
    pub(super) async fn announce(&self, announcements: &[Announcement]) {
        let outcomes = self.broker.announce(&self.topic, announcements).await;
        assert_eq!(outcomes.len(), announcements.len(), "there is one outcome per announcement");
        for (said, outcome) in announcements.iter().zip(outcomes) {
            assert_eq!(outcome, Ok(()), "{}", text(&said.message));
        }
    }

    /// Publishes one announcement, and returns its outcome.
    pub(super) async fn try_to_announce(&self, number: u32) -> Result<(), BrokerError> {
        let mut outcomes = self.broker.announce(&self.topic, &announcements(number..number + 1)).await;
        assert_eq!(outcomes.len(), 1, "there is one outcome per announcement");
        outcomes.remove(0)
    }

    pub(super) async fn listen(&self) -> Box<dyn Listener + '_> {
        self.audience.listen(&self.topic).await
    }
}

/// Announcements with these numbers as bodies, with five keys in turn.
pub(super) fn announcements(numbers: Range<u32>) -> Vec<Announcement> {
    numbers
        .map(|number| Announcement {
            subject: "task.accepted".to_owned(),
            message: Message::new(format!("id-{number}"), format!("key-{}", number % 5), number.to_string())
                .with_header("ce-type", "of a test"),
        })
        .collect()
}

/// Receives until there are `count` messages, in the order of arrival.
pub(super) async fn hear(listener: &mut dyn Listener, count: usize) -> Vec<Message> {
    let mut heard = Vec::new();
    hear_until(listener, |more| {
        heard.extend_from_slice(more);
        heard.len() >= count
    })
    .await;
    heard
}

/// Receives until the condition is met.
pub(super) async fn hear_until(listener: &mut dyn Listener, mut is_enough: impl FnMut(&[Message]) -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_enough(&listener.hear().await) {
        assert!(Instant::now() < until, "it is heard within {PATIENCE:?}");
    }
}

/// The bodies of these messages, as numbers.
pub(super) fn numbers(messages: &[Message]) -> Vec<u32> {
    messages.iter().map(|message| text(message).parse().expect("a number")).collect()
}
