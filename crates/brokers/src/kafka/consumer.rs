//! Hands out messages that have arrived, and settles them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::{
    pin,
    time::{Instant, timeout_at},
};

use crate::{
    BrokerError, Consumer, ConsumerSettings, Delivery, Queue, Receipt,
    kafka::{address::Address, ledger::Place, member::Member, shared::Shared, topics::Topics},
};

/// How long a commit to the group may take.
const COMMIT_MAX: Duration = Duration::from_secs(10);

/// A consumer of one topic.
pub(super) struct QueueConsumer {
    address: Arc<Address>,
    topics: Arc<Topics>,
    queue: Queue,
    settings: ConsumerSettings,
    /// None after the member became unusable.
    member: Option<Member>,
}

impl QueueConsumer {
    pub(super) async fn open(
        address: Arc<Address>,
        topics: Arc<Topics>,
        queue: Queue,
        settings: ConsumerSettings,
    ) -> Result<Self, BrokerError> {
        let mut consumer = Self { address, topics, queue, settings, member: None };
        consumer.join().await?;
        Ok(consumer)
    }

    async fn join(&mut self) -> Result<(), BrokerError> {
        if self.member.is_none() {
            self.topics.declare(&self.queue).await?;
            self.member = Some(Member::join(&self.address, &self.queue, &self.settings)?);
        }
        Ok(())
    }

    /// Checks whether the cluster grants access again, after it denied it.
    async fn ask_in(&self) -> Result<(), BrokerError> {
        if self.shared()?.lock().is_refused {
            self.topics.doubt(&self.queue);
            self.topics.declare(&self.queue).await?;
            self.shared()?.lock().is_refused = false;
        }
        Ok(())
    }

    /// The state shared with the member; an error if there is no member.
    fn shared(&self) -> Result<&Shared, BrokerError> {
        self.member.as_ref().map(Member::shared).ok_or_else(|| lost(&self.queue))
    }
}

/// Hands out waiting messages, up to the limit of messages in flight.
fn hand_out(shared: &Shared, max: usize, in_hands_max: usize) -> Vec<Delivery> {
    let mut state = shared.lock();
    let room = in_hands_max.saturating_sub(state.ledger.in_hands());
    let places = (0..max.min(room)).map_while(|_| state.ledger.hand_out());
    places.map(|(place, message)| Delivery { message, receipt: place.receipt(), deliveries: None }).collect()
}

fn lost(queue: &Queue) -> BrokerError {
    BrokerError::Failed(format!("another consumer of {queue} has the message's partition by now"))
}

#[async_trait]
impl Consumer for QueueConsumer {
    async fn receive(&mut self, max: usize, wait: Duration) -> Result<Vec<Delivery>, BrokerError> {
        let until = Instant::now() + wait;
        self.join().await?;
        self.ask_in().await?;
        let shared = self.shared()?;
        let (is_broken, failure) = loop {
            let changed = shared.changed.notified();
            pin!(changed);
            changed.as_mut().enable();
            let handed_out = hand_out(shared, max, self.settings.in_hands_max);
            if !handed_out.is_empty() {
                shared.turn();
                return Ok(handed_out);
            }
            if let Some(failure) = shared.failure() {
                break failure;
            }
            if timeout_at(until, changed).await.is_err() {
                return Ok(Vec::new());
            }
        };
        if is_broken {
            self.topics.doubt(&self.queue);
            self.member = None;
        }
        Err(failure)
    }

    async fn acknowledge(&mut self, receipts: &[Receipt]) -> Result<(), BrokerError> {
        let until = Instant::now() + COMMIT_MAX;
        let shared = self.shared()?;
        let mut is_lost = false;
        // The offset that the group must know, for each partition and assignment.
        let mut targets = BTreeMap::new();
        {
            let mut state = shared.lock();
            for receipt in receipts {
                match Place::of(receipt).filter(|place| state.ledger.done(*place)) {
                    Some(place) => drop(targets.insert((place.partition, place.handover), None)),
                    None => is_lost = true,
                }
            }
            for ((partition, _), target) in &mut targets {
                *target = state.ledger.to_commit(*partition);
            }
            state.commit_soon(targets.keys().map(|(partition, _)| *partition));
        }
        shared.turn();
        loop {
            let changed = shared.changed.notified();
            pin!(changed);
            changed.as_mut().enable();
            {
                let state = shared.lock();
                targets.retain(|(partition, handover), target| {
                    let Some(target) = target else { return false };
                    match state.ledger.is_committed(*partition, *handover, *target) {
                        Some(is_committed) => !is_committed,
                        None => {
                            is_lost = true;
                            false
                        }
                    }
                });
            }
            if targets.is_empty() {
                return if is_lost { Err(lost(&self.queue)) } else { Ok(()) };
            }
            if timeout_at(until, changed).await.is_err() {
                let why = format!("the group did not take what is done within {COMMIT_MAX:?}");
                return Err(BrokerError::Unreachable(why));
            }
        }
    }

    async fn give_back(&mut self, receipts: &[Receipt]) -> Result<(), BrokerError> {
        let shared = self.shared()?;
        let mut state = shared.lock();
        for place in receipts.iter().filter_map(Place::of) {
            // A message whose partition was reassigned is already back.
            state.ledger.give_back(place);
        }
        drop(state);
        shared.turn();
        shared.changed.notify_waiters();
        Ok(())
    }

    async fn keep(&mut self, receipts: &[Receipt]) -> Result<(), BrokerError> {
        let shared = self.shared()?;
        let mut state = shared.lock();
        let mut is_lost = false;
        for receipt in receipts {
            match Place::of(receipt).filter(|place| state.ledger.has(*place)) {
                Some(place) => state.hear_of(place.partition, self.settings.silent_after),
                None => is_lost = true,
            }
        }
        if is_lost { Err(lost(&self.queue)) } else { Ok(()) }
    }
}
