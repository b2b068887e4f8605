//! Exchanges: a message goes to all queues bound to the exchange, and is dropped if there are none.

use std::sync::Arc;

use lapin::{
    ExchangeKind,
    options::ExchangeDeclareOptions,
    types::{FieldTable, ShortString},
};

use crate::{
    BrokerError,
    rabbitmq::link::{Link, answer},
};

/// The longest name of an exchange in the protocol, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// The properties in which an existing exchange must match ours, so that messages are routed as expected.
const MUST_BE_EQUAL: [&str; 3] =
    ["inequivalent arg 'type'", "inequivalent arg 'durable'", "inequivalent arg 'internal'"];

/// An exchange that survives a restart of the server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Exchange {
    pub(super) name: String,
    pub(super) way: Way,
}

/// The routing of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Way {
    /// By patterns of subjects, such as `task.#`.
    Topic,
    /// To all bound queues.
    Fanout,
    /// To queues that are bound with the subject.
    Direct,
}

impl Exchange {
    /// Its name in the protocol. Reserved names are left to the server: `amq.topic`, for example, may be
    /// used.
    pub(super) fn short_name(&self) -> Result<ShortString, BrokerError> {
        // The exchange with the empty name is the default exchange, which routes to queues.
        let name = ShortString::try_new(self.name.as_str()).ok().filter(|name| !name.as_str().is_empty());
        name.ok_or_else(|| {
            BrokerError::Invalid(format!(
                "{:?} cannot be an exchange: its name has 1 to {NAME_BYTES_MAX} bytes",
                self.name
            ))
        })
    }

    /// Creates it unless it exists.
    pub(super) async fn declare(&self, link: &Arc<Link>) -> Result<(), BrokerError> {
        let options = ExchangeDeclareOptions { durable: true, ..Default::default() };
        match self.ask(link, options).await {
            // An administrator may have created the exchange for us without the right to create any.
            Err(refused @ BrokerError::Refused(_)) => {
                let is_there = self.ask(link, ExchangeDeclareOptions { passive: true, ..options }).await;
                is_there.map_err(|_| refused)
            }
            Err(BrokerError::Invalid(why)) if differs_in_detail(&why) => Ok(()),
            told => told,
        }
    }

    async fn ask(&self, link: &Arc<Link>, options: ExchangeDeclareOptions) -> Result<(), BrokerError> {
        let kind = match self.way {
            Way::Topic => ExchangeKind::Topic,
            Way::Fanout => ExchangeKind::Fanout,
            Way::Direct => ExchangeKind::Direct,
        };
        let name = self.short_name()?;
        let (_line, channel) = link.channel().await?;
        answer(Some(&self.name), channel.exchange_declare(name, kind, options, FieldTable::default())).await
    }
}

/// Whether an existing exchange only has additional settings. Then it belongs to the user, and still works as
/// needed.
fn differs_in_detail(why: &str) -> bool {
    why.contains("inequivalent arg") && !MUST_BE_EQUAL.iter().any(|argument| why.contains(argument))
}
