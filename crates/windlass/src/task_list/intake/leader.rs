//! Holds the key that consumers of the list lock while they lead.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, watch},
    time::sleep,
};
use windlass_client::{Leader, Term};
use windlass_coordinators::{Campaign, Consul};

use super::{TaskList, trouble::Trouble};
use crate::{modules::default_name, task_list::settings::LeaderSettings};

/// The pause after a campaign that Consul refuses.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// Campaigns for a list.
pub(super) struct Lead {
    pub(super) list: Arc<TaskList>,
    pub(super) consul: Consul,
    pub(super) settings: LeaderSettings,
    /// Where the others see the leadership of this server.
    pub(super) terms: watch::Sender<Option<Term>>,
    /// True when the server ends.
    pub(super) ends: watch::Receiver<bool>,
    /// Notified when leadership was given up, or is left to its lease.
    pub(super) resigned: Arc<Notify>,
}

impl Lead {
    /// Campaigns and leads, for ever. Leadership is kept while tasks of the list are under way: it is renewed beside
    /// them, and given up only when the server ends.
    pub(super) async fn run(self) {
        let LeaderSettings { key, lease } = &self.settings;
        let mut campaign = Campaign::new(key, default_name(), *lease);
        // By this other servers of the store know that one of them leads.
        campaign.value = self.list.store.clone();
        let trouble = Trouble::new(&self.list, key, format!("cannot campaign for the leader key {key}"));
        let (mut ends, mut deposed) = (self.ends.clone(), self.list.deposed.subscribe());
        loop {
            let elected = tokio::select! {
                elected = Leader::campaign(&self.consul, &campaign) => elected,
                () = becomes(&mut ends, true) => return self.ended().await,
            };
            let leader = match elected {
                Ok(leader) => leader,
                Err(error) => {
                    trouble.goes_on(&error).await;
                    sleep(REFUSED_PAUSE).await;
                    continue;
                }
            };
            trouble.ends().await;
            self.terms.send_replace(Some(leader.term().clone()));
            let fence = leader.fence();
            tokio::select! {
                () = leader.lost() => {}
                () = becomes(&mut deposed, fence) => {
                    tracing::warn!(key, fence, "somebody has changed the leader key; campaigning again");
                }
                () = becomes(&mut ends, true) => {}
            }
            // From here on nothing is taken.
            self.terms.send_replace(None);
            self.resign(leader).await;
            if *ends.borrow() {
                return self.ended().await;
            }
        }
    }

    /// The next consumer leads at once, unless a task of ours is under way: then it leads after the lease.
    async fn resign(&self, leader: Leader) {
        if leader.term().is_lost() {
            return;
        }
        if !self.list.is_idle() {
            tracing::info!("tasks of the list are under way; leadership ends by its lease");
        } else if let Err(error) = leader.resign().await {
            tracing::warn!(%error, "cannot resign; leadership ends by its lease");
        }
    }

    /// A loop of a server must not end.
    async fn ended(&self) {
        self.resigned.notify_one();
        std::future::pending().await
    }
}

/// Waits until a value is this one.
async fn becomes<T: PartialEq>(value: &mut watch::Receiver<T>, wanted: T) {
    if value.wait_for(|value| *value == wanted).await.is_err() {
        std::future::pending().await
    }
}
