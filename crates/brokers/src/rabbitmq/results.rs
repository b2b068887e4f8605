//! Results for clients of the Go library machinery on RabbitMQ: each task has a queue with its UUID as its name, and its
//! states are the messages. A client takes one after the other.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use lapin::{
    options::{BasicGetOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};

use super::{
    address::Address,
    kind,
    link::{Link, answer},
    publish::Publisher,
    queues,
    target::{Letter, Target},
};
use crate::{BrokerError, Message, Queue, ResultBackend, ResultDocument};

/// A RabbitMQ server that has results.
pub(crate) struct Results {
    address: Arc<Address>,
    asking: Arc<Link>,
    publisher: Publisher,
    /// How long a state is kept, in milliseconds. It belongs to each queue, and clients declare the same one.
    keep: i32,
}

impl Results {
    /// Makes a client of a server by its URL, without connecting.
    pub(crate) fn open(url: &str, keep: Duration) -> Result<Self, BrokerError> {
        let address = Arc::new(Address::parse(url)?);
        let asking = Link::new(Arc::clone(&address), "asking about results");
        let sending = Link::new(Arc::clone(&address), "sending results");
        let keep = i32::try_from(keep.as_millis()).unwrap_or(i32::MAX);
        Ok(Self { address, publisher: Publisher::new(sending, Arc::clone(&asking)), asking, keep })
    }

    /// Creates the queue of a task or group, as clients do.
    async fn create(&self, id: &str) -> Result<(), BrokerError> {
        let mut arguments = FieldTable::default();
        for name in ["x-message-ttl", "x-expires"] {
            arguments.insert(name.into(), AMQPValue::LongInt(self.keep));
        }
        let options = QueueDeclareOptions { auto_delete: true, ..QueueDeclareOptions::default() };
        let (_line, channel) = self.asking.channel().await?;
        let name = kind::name(&Queue::new(id))?;
        match answer(Some(id), channel.queue_declare(name, options, arguments)).await {
            // A client has created it with another time: it belongs to the client.
            Ok(_) | Err(BrokerError::Invalid(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The last state of a task, if no other one is in its queue, which stays there.
    async fn last(&self, id: &str) -> Result<Option<String>, BrokerError> {
        let queue = Queue::new(id);
        let Ok(name) = kind::name(&queue) else { return Ok(None) };
        match queues::look(&self.asking, &queue).await {
            Ok(look) if look.messages == Some(1) => {}
            Ok(_) | Err(BrokerError::NoQueue(_)) => return Ok(None),
            Err(error) => return Err(error),
        }
        // It goes back with the channel's end.
        let (_line, channel) = self.asking.channel().await?;
        let taken = answer(Some(id), channel.basic_get(name, BasicGetOptions::default())).await?;
        Ok(taken.and_then(|message| String::from_utf8(message.delivery.data).ok()))
    }

    async fn send(&self, messages: &[(&str, Message)]) -> Vec<Result<(), BrokerError>> {
        let letters: Vec<Letter<'_>> = messages.iter().map(|(id, message)| Letter::to(id, message)).collect();
        self.publisher.publish_to_existing(&Target::Queues, &letters).await
    }
}

#[async_trait]
impl ResultBackend for Results {
    fn name(&self) -> &str {
        &self.address.name
    }

    async fn read(&self, ids: &[String]) -> Result<Vec<Option<String>>, BrokerError> {
        let mut documents = Vec::with_capacity(ids.len());
        for id in ids {
            documents.push(self.last(id).await?);
        }
        Ok(documents)
    }

    async fn write(&self, documents: &[ResultDocument]) -> Result<(), BrokerError> {
        let message = |document: &ResultDocument| {
            Message::new(document.id.as_str(), "", document.text.clone())
                .with_header("content-type", "application/json")
        };
        // A client cannot read a result whose id cannot be the name of a queue.
        let documents = documents.iter().filter(|document| kind::name(&Queue::new(&document.id)).is_ok());
        let messages: Vec<_> = documents.map(|document| (document.id.as_str(), message(document))).collect();
        let mut missing = Vec::new();
        for (outcome, message) in self.send(&messages).await.into_iter().zip(messages) {
            match outcome {
                Err(BrokerError::NoQueue(_)) => missing.push(message),
                outcome => outcome?,
            }
        }
        for (id, _) in &missing {
            self.create(id).await?;
        }
        self.send(&missing).await.into_iter().collect()
    }

    /// The time belongs to each queue.
    async fn keep_for(&self, _ids: &[String], _span: Option<Duration>) -> Result<(), BrokerError> {
        Ok(())
    }
}
