//! A Windlass server as the coordinator: its store elects the leader, so that nothing else is needed. A leader is the
//! holder of a lock, and the fence is the version at which it got the lock.
//!
//! | bound | why |
//! |---|---|
//! | the leader acts for one lease | a server counts a lease from when it first saw the last renewal, on its own monotonic clock |
//! | takeover after a kill: the lease and 1 s | a server that starts later counts from when it first sees the lock. Where each call of a candidate goes to another server, each of them sees the last renewal when it is asked: 1 s later for each server |
//! | takeover after a resignation: 0.5 s | servers look for it five times a second while a candidate waits |
//!
//! Fences also grow over the deletion of locks, restarts, and a move to another store.

mod api;
mod leadership;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;

use crate::{
    Access, Bound, Campaign, Coordinator, CoordinatorError, Leader, Leadership, Withdrawal,
    address::Address,
    candidate,
    http::{Http, PATIENCE_MAX},
};
use api::Api;
use leadership::WindlassLeadership;

/// The port of a URL without one, as everywhere with HTTP.
const PORT: u16 = 80;

/// The same with TLS.
const PORT_OF_TLS: u16 = 443;

/// The longest name, in characters, of which a dot and a slash count as two.
const NAME_LENGTH_MAX: usize = 120;

/// How long a call of a candidate waits at most. Behind a balancer the next one goes to another server, which must see the
/// renewals too.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// How often a watcher asks.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Windlass servers on one store.
#[derive(Debug)]
pub struct Windlass {
    address: Address,
    api: Arc<Api>,
}

impl Windlass {
    /// Makes the coordinator of `http://HOST[:PORT][,…][/PATH]`. All addresses must be of servers on one store. Does not
    /// connect yet.
    ///
    /// # Errors
    /// When the URL is invalid.
    pub fn new(url: &str) -> Result<Self, CoordinatorError> {
        Self::with(url, &Access::default())
    }

    /// The same for servers with TLS (`https://`) or with access tokens. A token needs the role operator to campaign.
    ///
    /// # Errors
    /// When the URL is invalid, the token has characters that a header cannot have, or a file for TLS cannot be used.
    pub fn with(url: &str, access: &Access) -> Result<Self, CoordinatorError> {
        let is_encrypted = url.starts_with("https://");
        let address = match is_encrypted {
            true => Address::read(url, "https", PORT_OF_TLS)?,
            false => Address::read(url, "http", PORT)?,
        };
        if address.user.is_some() {
            let why = "the URL of a server has no user: use http://HOST[:PORT][,HOST[:PORT]...][/PATH]";
            return Err(CoordinatorError::Invalid(why.to_owned()));
        }
        let http = match is_encrypted {
            true => Http::with_tls(address.hosts.clone(), &access.tls)?,
            false => Http::new(address.hosts.clone())?,
        };
        Ok(Self { api: Arc::new(Api::new(http, &address, access.token.as_deref())?), address })
    }
}

#[async_trait]
impl Coordinator for Windlass {
    fn name(&self) -> &str {
        &self.address.name
    }

    fn check(&self, campaign: &Campaign) -> Result<(), CoordinatorError> {
        campaign.check()?;
        let doubled = campaign.name.matches(['.', '/']).count();
        if campaign.name.len() + doubled > NAME_LENGTH_MAX {
            return Err(CoordinatorError::Invalid(format!(
                "invalid name {:?}: a Windlass server elects leaders of names of up to {NAME_LENGTH_MAX} characters, of which . and / count as two",
                campaign.name
            )));
        }
        Ok(())
    }

    async fn campaign_until(
        &self,
        campaign: &Campaign,
        withdrawn: Withdrawal<'_>,
    ) -> Result<Option<Box<dyn Leadership>>, CoordinatorError> {
        self.check(campaign)?;
        let candidate =
            Candidate { api: Arc::clone(&self.api), campaign: campaign.clone(), number: api::number() };
        candidate::until_elected(candidate, campaign.lease, withdrawn).await
    }

    async fn leader(&self, name: &str) -> Result<Option<Leader>, CoordinatorError> {
        self.api.leader(name, PATIENCE_MAX).await
    }

    async fn watch(
        &self,
        name: &str,
        seen: Option<u64>,
        wait: Duration,
    ) -> Result<Option<Leader>, CoordinatorError> {
        let until = Instant::now() + wait;
        loop {
            let leader = self.leader(name).await?;
            let left = until.saturating_duration_since(Instant::now());
            if leader.as_ref().map(|leader| leader.fence) != seen || left.is_zero() {
                return Ok(leader);
            }
            tokio::time::sleep(left.min(LOOK_EVERY)).await;
        }
    }
}

/// A candidate. A call that it has abandoned may still elect it: then the name has a leader that does not act, for one
/// lease.
struct Candidate {
    api: Arc<Api>,
    campaign: Campaign,
    number: String,
}

#[async_trait]
impl candidate::Candidate for Candidate {
    async fn step(&mut self) -> Result<Option<Box<dyn Leadership>>, CoordinatorError> {
        let sent = Instant::now();
        let wait = self.campaign.renew_every().min(WAIT_MAX);
        let patience = self.api.patience(self.campaign.lease) + wait;
        let fence = self.api.campaign(&self.campaign, &self.number, None, wait, patience).await?;
        let Some(fence) = fence else { return Ok(None) };
        Ok(Some(Box::new(WindlassLeadership {
            api: Arc::clone(&self.api),
            campaign: self.campaign.clone(),
            number: self.number.clone(),
            fence,
            bound: Bound::new(self.campaign.lease, sent),
        })))
    }

    fn forget(&mut self) {
        self.number = api::number();
    }

    async fn withdraw(&mut self) -> Result<(), CoordinatorError> {
        // A call that was abandoned may have elected it.
        self.api.resign(&self.campaign.name, &self.number, self.api.patience(self.campaign.lease)).await
    }
}
