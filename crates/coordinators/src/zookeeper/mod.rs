//! ZooKeeper, in the layout of Apache Curator's leader latch: each candidate has an ephemeral sequential node
//! `_c_<UUID>-latch-<NUMBER>` below the name. The lowest number leads, and the fence is the czxid of its node.
//! Candidates of Curator may compete.
//!
//! | bound | why |
//! |---|---|
//! | the leader acts for 2/3 of the lease | that is the timeout of the session, see `touches.rs` for what a renewal proves |
//! | takeover after a kill: the lease | a server ends a session up to one and a half ticks late, and a tick is 2 s by default |
//! | takeover after a resignation: at once | the node is deleted, which the next candidate watches |
//!
//! A server refuses a timeout of less than two ticks by default, so the lease is at least three ticks.
//!
//! A zxid is a counter of the whole ensemble: it also grows when nodes are deleted.

mod connection;
mod latch;
mod leadership;
mod session;
mod standing;
mod touches;
mod wire;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use tokio::sync::Mutex;

use crate::{
    Campaign, Coordinator, CoordinatorError, Leader, Leadership, Withdrawal, address::Address, candidate,
};
use latch::Latch;
use session::{Session, Target};
use standing::Standing;

/// The port of clients.
const PORT: u16 = 2181;

/// The timeout of the session of those who only look. It may end: they get another one.
const OBSERVER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long one address may take for the request of an observer.
const OBSERVER_PATIENCE: Duration = Duration::from_secs(5);

/// A ZooKeeper server or ensemble.
#[derive(Debug)]
pub struct ZooKeeper {
    target: Arc<Target>,
    address: Address,
    observer: Mutex<Option<Arc<Session>>>,
}

impl ZooKeeper {
    /// Makes the coordinator of `zookeeper://[USER:PASSWORD@]HOST[:PORT][,…][/PREFIX]`, or of `zookeepers://…` for TLS, perhaps
    /// with `?cacert=FILE&cert=FILE&key=FILE` behind. With a user it logs in with the scheme `digest`, and only this user may
    /// change the nodes that it creates. Does not connect yet.
    ///
    /// # Errors
    /// When the URL is invalid, or a file cannot be used.
    pub fn new(url: &str) -> Result<Self, CoordinatorError> {
        let address = Address::read_with_tls(url, "zookeeper", PORT)?;
        let password = || address.password.clone().unwrap_or_default();
        let login = address.user.as_ref().map(|user| format!("{user}:{}", password()));
        let tls = address.tls.as_ref().map(windlass_tls::client_config).transpose();
        let tls = tls.map_err(|error| CoordinatorError::Invalid(error.to_string()))?;
        let target = Arc::new(Target { hosts: address.hosts.clone(), tls, login });
        Ok(Self { target, address, observer: Mutex::default() })
    }

    fn folder(&self, name: &str) -> String {
        format!("/{}", self.address.key(name))
    }

    /// The session of those who only look.
    async fn observer(&self) -> Result<Arc<Session>, CoordinatorError> {
        let mut observer = self.observer.lock().await;
        if let Some(session) = &*observer {
            return Ok(Arc::clone(session));
        }
        let opened = Session::open(&self.target, OBSERVER_TIMEOUT, OBSERVER_PATIENCE).await?;
        let session = Arc::new(opened);
        *observer = Some(Arc::clone(&session));
        Ok(session)
    }

    /// Looks with the session of observers, and again with another one if it has ended.
    async fn look(&self, folder: &str, seen: Option<Seen>) -> Result<Option<Leader>, CoordinatorError> {
        let observer = self.observer().await?;
        match Latch::new(&observer, folder).observe(seen).await {
            Err(CoordinatorError::Lost(_)) => {
                *self.observer.lock().await = None;
                Latch::new(&*self.observer().await?, folder).observe(seen).await
            }
            other => other,
        }
    }
}

/// What an observer has seen, and how long it waits for something else.
#[derive(Debug, Clone, Copy)]
struct Seen {
    fence: Option<u64>,
    wait: Duration,
}

#[async_trait]
impl Coordinator for ZooKeeper {
    fn name(&self) -> &str {
        &self.address.name
    }

    fn check(&self, campaign: &Campaign) -> Result<(), CoordinatorError> {
        campaign.check()
    }

    async fn campaign_until(
        &self,
        campaign: &Campaign,
        withdrawn: Withdrawal<'_>,
    ) -> Result<Option<Box<dyn Leadership>>, CoordinatorError> {
        self.check(campaign)?;
        let standing = Standing::new(Arc::clone(&self.target), self.folder(&campaign.name), campaign);
        candidate::until_elected(standing, campaign.lease, withdrawn).await
    }

    async fn leader(&self, name: &str) -> Result<Option<Leader>, CoordinatorError> {
        self.look(&self.folder(name), None).await
    }

    async fn watch(
        &self,
        name: &str,
        seen: Option<u64>,
        wait: Duration,
    ) -> Result<Option<Leader>, CoordinatorError> {
        let until = Instant::now() + wait;
        let folder = self.folder(name);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let seen = Seen { fence: seen, wait: left.min(OBSERVER_PATIENCE) };
            let leader = self.look(&folder, Some(seen)).await?;
            if leader.as_ref().map(|leader| leader.fence) != seen.fence || left.is_zero() {
                return Ok(leader);
            }
        }
    }
}
