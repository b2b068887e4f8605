//! Attempts from a feed: the worker must claim them before it runs them and reports their end to the feed.

use windlass_api::Attempt;

use super::Driver;
use crate::worker::{Failure, Outcome, Token, feed::Feed, ledger::Taken, outbox::Kind, report};

impl Driver {
    /// Claims attempts that the feed has brought.
    pub(super) fn take_up(&mut self, attempts: Vec<Attempt>) {
        for attempt in attempts {
            let token: Token = attempt.token.as_str().into();
            if self.drain.is_some() {
                self.give_back(&token);
            } else if self.ledger.offer(attempt) {
                self.push(&token, Kind::Taking, &report::of_news(&token, None, vec![]));
            }
        }
    }

    /// The claim of an attempt was granted.
    pub(super) fn taken(&mut self, token: &Token) {
        match self.ledger.taken(token) {
            Taken::Waits if self.drain.is_some() => self.decline_waiting(),
            Taken::Waits | Taken::Unknown => {}
            Taken::Cancelled => {
                self.push_report(
                    token,
                    Outcome::Failed(Failure::new("cancelled before it was started")),
                    vec![],
                );
            }
        }
    }

    /// The last report of an attempt was answered.
    pub(super) fn settle(&mut self, token: &Token) {
        if self.ledger.settle(token) {
            if self.link.polls.has_overlapped() {
                self.ledger.remember_settled(token.clone(), self.link.polls.newest());
            }
            self.settled(token);
        }
    }

    pub(super) fn settled(&mut self, token: &Token) {
        if let Some(feed) = &mut self.feed {
            feed.settle(token);
        }
    }

    pub(super) fn give_back(&mut self, token: &Token) {
        if let Some(feed) = &mut self.feed {
            feed.give_back(token);
        }
    }
}

/// The attempts of the feed; waits for ever without a feed.
pub(super) async fn arrived(feed: &mut Option<Box<dyn Feed>>) -> Vec<Attempt> {
    match feed {
        Some(feed) => feed.arrived().await,
        None => std::future::pending().await,
    }
}
