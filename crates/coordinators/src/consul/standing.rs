//! A candidate's session.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;

use super::{api::Api, leadership::ConsulLeadership};
use crate::{Bound, Campaign, CoordinatorError, Leadership, candidate::Candidate, http, stored};

/// The part of a lease that is lock-delay: 1 in 10.
const LOCK_DELAY_PART: u32 = 10;

/// How often a candidate tries again during a lock-delay, whose end nothing reports.
const TRIES_PER_LOCK_DELAY: u32 = 4;

/// A candidate. It has a session only while the key seems to be free.
pub(super) struct Standing {
    api: Arc<Api>,
    key: String,
    id: String,
    stored: String,
    lease: Duration,
    renew_every: Duration,
    session: Option<Session>,
}

/// A session, and until when it surely lives.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) bound: Bound,
    renewed: Instant,
}

impl Standing {
    pub(super) fn new(api: Arc<Api>, key: String, campaign: &Campaign) -> Self {
        Self {
            api,
            key,
            id: campaign.id.clone(),
            stored: stored::encode(campaign),
            lease: campaign.lease,
            renew_every: campaign.renew_every(),
            session: None,
        }
    }

    fn patience(&self) -> Duration {
        http::patience(self.lease)
    }

    fn lock_delay(&self) -> Duration {
        self.lease / LOCK_DELAY_PART
    }

    /// A session that has enough time left to act.
    async fn fresh_session(&mut self) -> Result<String, CoordinatorError> {
        let patience = self.patience();
        match &mut self.session {
            None => {
                let sent = Instant::now();
                let ttl = (self.lease - self.lock_delay()) / 2;
                let id = self.api.create_session(&self.id, ttl, self.lock_delay(), patience).await?;
                self.session = Some(Session { id: id.clone(), bound: Bound::new(ttl, sent), renewed: sent });
                Ok(id)
            }
            Some(session) => {
                if session.renewed.elapsed() >= self.renew_every {
                    let sent = Instant::now();
                    self.api.renew(&session.id, patience).await?;
                    session.bound.renewed(sent);
                    session.renewed = sent;
                }
                Ok(session.id.clone())
            }
        }
    }
}

#[async_trait]
impl Candidate for Standing {
    async fn step(&mut self) -> Result<Option<Box<dyn Leadership>>, CoordinatorError> {
        let patience = self.patience();
        let entry = self.api.read(&self.key, patience).await?;
        let own = self.session.as_ref().and_then(|session| entry.fence_of(&session.id));
        if entry.is_locked() && own.is_none() {
            self.api.change(&self.key, entry.index, self.renew_every, patience).await?;
            return Ok(None);
        }
        let session = self.fresh_session().await?;
        let Some(fence) = self.api.lock(&self.key, &self.stored, &session, patience).await? else {
            let pause = self.lock_delay() / TRIES_PER_LOCK_DELAY;
            self.api.change(&self.key, entry.index, pause, patience).await?;
            return Ok(None);
        };
        let Some(session) = self.session.take() else { return Ok(None) };
        let (api, key, stored) = (Arc::clone(&self.api), self.key.clone(), self.stored.clone());
        let leadership =
            ConsulLeadership { api, key, stored, session, fence, patience, renew_every: self.renew_every };
        Ok(Some(Box::new(leadership)))
    }

    fn forget(&mut self) {
        self.session = None;
    }

    async fn withdraw(&mut self) -> Result<(), CoordinatorError> {
        let Some(session) = self.session.take() else { return Ok(()) };
        // A lock that it got meanwhile is released first: a session that ends with a key has a lock-delay.
        self.api.unlock(&self.key, &self.stored, &session.id, self.patience()).await?;
        self.api.destroy(&session.id, self.patience()).await
    }
}
