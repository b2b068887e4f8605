//! Exchanges: what is sent to one goes to every queue that somebody has bound to it, and nowhere if nobody has.

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

/// Bytes of an exchange's name, as the protocol has them.
const NAME_BYTES_MAX: usize = 255;

/// What in an exchange that is there already must be as we say, so that messages go where they are expected.
const MUST_BE_EQUAL: [&str; 3] =
    ["inequivalent arg 'type'", "inequivalent arg 'durable'", "inequivalent arg 'internal'"];

/// An exchange that outlives the server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Exchange {
    pub(super) name: String,
    pub(super) way: Way,
}

/// By what an exchange chooses queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Way {
    /// By patterns of subjects: `task.#`.
    Topic,
    /// All that are bound to it.
    Fanout,
}

impl Exchange {
    /// Its name as the protocol has it. Names that are the server's own are its matter: `amq.topic` is one of them and may
    /// be used.
    pub(super) fn short_name(&self) -> Result<ShortString, BrokerError> {
        // The exchange without a name is the one that leads to queues.
        let name = ShortString::try_new(self.name.as_str()).ok().filter(|name| !name.as_str().is_empty());
        name.ok_or_else(|| {
            BrokerError::Invalid(format!(
                "{:?} cannot be an exchange: its name has 1 to {NAME_BYTES_MAX} bytes",
                self.name
            ))
        })
    }

    /// Makes it unless it is there.
    pub(super) async fn declare(&self, link: &Arc<Link>) -> Result<(), BrokerError> {
        let options = ExchangeDeclareOptions { durable: true, ..Default::default() };
        match self.ask(link, options).await {
            // Somebody may have given us an exchange without letting us make any.
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
        };
        let name = self.short_name()?;
        let (_line, channel) = link.channel().await?;
        answer(Some(&self.name), channel.exchange_declare(name, kind, options, FieldTable::default())).await
    }
}

/// Whether an exchange that is there is only set up further than ours would be. It is the user's, then, and does what is
/// needed of it.
fn differs_in_detail(why: &str) -> bool {
    why.contains("inequivalent arg") && !MUST_BE_EQUAL.iter().any(|argument| why.contains(argument))
}
