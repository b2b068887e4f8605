//! A candidate's session and node.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use super::{
    latch::{Latch, Node, fence},
    leadership::ZooKeeperLeadership,
    session::{Session, Target},
};
use crate::{
    Campaign, CoordinatorError, Leadership,
    candidate::{Candidate, PAUSE},
    stored,
};

/// How long one address may take for an answer: a part of the lease.
const PATIENCE_PART: u32 = 8;

/// A candidate.
pub(super) struct Standing {
    target: Arc<Target>,
    folder: String,
    stored: String,
    lease: Duration,
    renew_every: Duration,
    entry: Option<Entry>,
}

/// What a candidate has in ZooKeeper.
struct Entry {
    session: Session,
    /// The beginning of the name of its node, by which it is found again.
    mark: String,
    node: Option<(Node, u64)>,
}

impl Standing {
    pub(super) fn new(target: Arc<Target>, folder: String, campaign: &Campaign) -> Self {
        Self {
            target,
            folder,
            stored: stored::encode(campaign),
            lease: campaign.lease,
            renew_every: campaign.renew_every(),
            entry: None,
        }
    }

    async fn enter(&self) -> Result<Entry, CoordinatorError> {
        let wanted = self.lease * 2 / 3;
        let session = Session::open(&self.target, wanted, self.lease / PATIENCE_PART).await?;
        if session.timeout() > wanted {
            // It ends by itself if this fails.
            let _ = session.close().await;
            return Err(CoordinatorError::Invalid(format!(
                "the lease of {:?} is too short for this ZooKeeper: its minimum session timeout is {:?}, so use {:?} or more",
                self.lease,
                session.timeout(),
                session.timeout() * 3 / 2
            )));
        }
        let [a, b, c] = [fastrand::u32(..), fastrand::u32(..), fastrand::u32(..)];
        let (b1, b2, c1, c2) = (b >> 16, b & 0xffff, c >> 16, c & 0xffff);
        let mark = format!("_c_{a:08x}-{b1:04x}-{b2:04x}-{c1:04x}-{c2:04x}{:08x}-", fastrand::u32(..));
        Ok(Entry { session, mark, node: None })
    }
}

#[async_trait]
impl Candidate for Standing {
    async fn step(&mut self) -> Result<Option<Box<dyn Leadership>>, CoordinatorError> {
        if self.entry.is_none() {
            self.entry = Some(self.enter().await?);
        }
        let Some(entry) = &mut self.entry else { return Ok(None) };
        let latch = Latch::new(&entry.session, &self.folder);
        let (node, fence) = match &entry.node {
            Some(node) => node.clone(),
            None => {
                let (node, czxid) = latch.enter(&entry.mark, &self.stored).await?;
                entry.node.insert((node, fence(czxid))).clone()
            }
        };
        let nodes = latch.nodes().await?;
        let Some(place) = nodes.iter().position(|other| other.name == node.name) else {
            return Err(CoordinatorError::Lost("the node of the candidate was deleted".to_owned()));
        };
        if let Some(before) = place.checked_sub(1).map(|before| &nodes[before]) {
            latch.change(&before.name, self.renew_every).await?;
            return Ok(None);
        }
        latch.confirm(&node.name).await?;
        if entry.session.bound().is_over() {
            // What the last requests were proves too little.
            tokio::time::sleep(PAUSE).await;
            return Ok(None);
        }
        let Some(entry) = self.entry.take() else { return Ok(None) };
        let (session, folder, node) = (entry.session, self.folder.clone(), node.name);
        Ok(Some(Box::new(ZooKeeperLeadership {
            session,
            folder,
            node,
            fence,
            renew_every: self.renew_every,
        })))
    }

    fn forget(&mut self) {
        self.entry = None;
    }

    async fn withdraw(&mut self) -> Result<(), CoordinatorError> {
        // The end of its session deletes its node, also one whose creation was not answered.
        let Some(entry) = self.entry.take() else { return Ok(()) };
        entry.session.close().await
    }
}
