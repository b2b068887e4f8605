//! Leaders: processes outside of the servers, of which one at a time holds a name under a lease.
//!
//! A leader is the holder of a lock ([`windlass_core::Leader`]). Each renewal changes the lock's version. A server lets
//! another candidate take the lock when it has seen the same version for a whole lease on its own monotonic clock, and
//! the commit of that checks the version once more. So no two clocks are compared, and a server that has just started
//! waits for a whole lease.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use windlass_core::{
    Candidacy, Leader, Lock, LockCommand, LockName, LockOwner, Millis, before_leader_locks, is_leader_lock,
    leader_lock,
    planted::{Bug, is_planted},
};

use windlass_store::Cluster;

use super::only;
use crate::{
    Engine, EngineError,
    deciding::inbox::{Item, Reply},
};

/// The most names whose leaders a server watches. Beyond it, the name that no candidate has asked for the longest is
/// forgotten: its leader is given another whole lease.
const WATCHED_MAX: usize = 10_000;

/// How long the lock of a leader stays after its lease, if no candidate takes it: long enough for an operator to see who
/// died.
pub(crate) const DEAD_LEADER_KEPT: Millis = Millis::from_secs(600);

/// The longest lease.
const LEASE_MAX: Millis = Millis::from_secs(3600);

/// The monotonic time of this process. The time of a shared store would not do: it jumps when the clock of its machine
/// is set.
pub type Uptime<'u> = &'u (dyn Fn() -> Millis + Sync);

/// What a candidate asks for.
#[derive(Debug, Clone)]
pub struct Campaign {
    /// Its number: another one for each.
    pub number: u128,
    /// The candidate, and the name.
    pub leader: Leader,
    /// The fence of the leadership to renew; `None` = it does not lead yet.
    pub renews: Option<u64>,
}

/// The result of a campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    /// The lock of the name, if somebody has it.
    pub lock: Option<Lock>,
    /// The fence of the candidate, if it leads.
    pub fence: Option<u64>,
}

/// The versions of locks of leaders as this server has seen them first.
#[derive(Debug, Default)]
pub(crate) struct Watched(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    locks: BTreeMap<LockName, SeenLock>,
    /// The state of the store in which they were seen, by [`Engine::versions_come_once_in`].
    state: u64,
}

#[derive(Debug, Clone, Copy)]
struct SeenLock {
    version: u64,
    since: Millis,
    /// When somebody asked for the name last.
    asked: Millis,
}

impl Watched {
    /// The version at which this lock's leader has not renewed for its lease and `more`. `now` is a time after the lock was
    /// read, and `state` the state of the store before it was read.
    fn over(&self, lock: &Lock, more: Millis, now: Millis, state: u64) -> Option<u64> {
        let lease = lock.leader.as_ref()?.lease.min(LEASE_MAX);
        let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.state != state {
            *watched = Seen { state, ..Seen::default() };
        }
        let first = SeenLock { version: lock.version, since: now, asked: now };
        let seen = watched.locks.entry(lock.name.clone()).or_insert(first);
        if seen.version != lock.version && !is_planted(Bug::RenewalNotSeen) {
            *seen = first;
        }
        seen.asked = now;
        let is_over = now.0 >= seen.since.0.saturating_add(lease.0).saturating_add(more.0);
        if watched.locks.len() > WATCHED_MAX {
            let idle = watched.locks.iter().min_by_key(|(_, seen)| seen.asked).map(|(name, _)| name.clone());
            idle.map(|name| watched.locks.remove(&name));
        }
        is_over.then_some(lock.version)
    }
}

impl Engine {
    /// A candidate campaigns, or its leader renews. The answer is on disk. It does not wait: a candidate that is not
    /// elected asks again.
    ///
    /// # Errors
    /// When the name is too long, or the store fails.
    pub async fn campaign(&self, campaign: &Campaign, uptime: Uptime<'_>) -> Result<Election, EngineError> {
        let Campaign { number, leader, renews } = campaign;
        let name = leader_lock(&leader.name).ok_or(EngineError::InvalidLeaderName)?;
        let state = self.versions_come_once_in();
        let found = self.lock_in_use(&name).await?;
        let over = found.as_ref().and_then(|lock| self.watched.over(lock, Millis(0), uptime(), state));
        let leads = found.as_ref().is_some_and(|lock| lock.fence_of(*number).is_some());
        if found.is_some() && !leads && over.is_none() {
            return Ok(Election { lock: found, fence: None });
        }
        let candidacy =
            Candidacy { campaign: *number, leader: Arc::new(leader.clone()), renews: *renews, over };
        let lock = self.change_lock(name, LockCommand::Lead(candidacy)).await?;
        let is_its = lock.leader.as_ref().is_some_and(|found| found.id == leader.id);
        let fence = lock.fence_of(*number).filter(|_| is_its);
        let fence = fence.filter(|fence| renews.is_none_or(|renews| renews == *fence));
        Ok(Election { lock: Some(lock), fence })
    }

    /// A leader resigns: the next candidate that asks is elected. Has no effect if it does not lead.
    ///
    /// # Errors
    /// When the name is too long, or the store fails.
    pub async fn resign(&self, name: &str, campaign: u128) -> Result<(), EngineError> {
        let name = leader_lock(name).ok_or(EngineError::InvalidLeaderName)?;
        self.change_lock(name, LockCommand::Release { owner: LockOwner::leader(campaign) }).await.map(drop)
    }

    /// The lock of a name and its leader, unless that one's lease is over.
    ///
    /// # Errors
    /// When the name is too long, or the store fails.
    pub async fn leader(
        &self,
        name: &str,
        uptime: Uptime<'_>,
    ) -> Result<Option<(Lock, Arc<Leader>)>, EngineError> {
        let name = leader_lock(name).ok_or(EngineError::InvalidLeaderName)?;
        let state = self.versions_come_once_in();
        let Some(lock) = self.lock_in_use(&name).await? else { return Ok(None) };
        let is_over = self.watched.over(&lock, Millis(0), uptime(), state).is_some();
        Ok(lock.leader.clone().filter(|_| !is_over).map(|leader| (lock, leader)))
    }

    /// The state of the store in which each version of a lock comes once: after a failed write, or after a failover to a
    /// replica that was behind, a version may come a second time.
    fn versions_come_once_in(&self) -> u64 {
        self.store.cluster().map_or_else(|| self.store.generation(), Cluster::connected)
    }

    /// Frees locks of leaders that have not renewed for their lease and [`DEAD_LEADER_KEPT`], at most `limit` of those
    /// after `after`. Returns how many, and where to go on; `None` = at the first lock.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn depose_dead_leaders(
        &self,
        after: Option<LockName>,
        limit: usize,
        uptime: Uptime<'_>,
    ) -> Result<(u64, Option<LockName>), EngineError> {
        let after = after.unwrap_or_else(before_leader_locks);
        let state = self.versions_come_once_in();
        let locks = self.store.locks(Some(&after), limit).await?;
        let is_last = locks.len() < limit;
        let mut deposed = 0;
        let mut place = None;
        for lock in locks {
            if !is_leader_lock(&lock.name) {
                return Ok((deposed, None));
            }
            place = Some(lock.name.clone());
            if let Some(version) = self.watched.over(&lock, DEAD_LEADER_KEPT, uptime(), state) {
                let lock = self.change_lock(lock.name, LockCommand::Depose { version }).await?;
                deposed += u64::from(lock.version > version && lock.leader.is_none());
            }
        }
        Ok((deposed, place.filter(|_| !is_last)))
    }

    async fn lock_in_use(&self, name: &LockName) -> Result<Option<Lock>, EngineError> {
        match self.lock(name).await {
            Ok(lock) => Ok(Some(lock)),
            Err(EngineError::UnknownLock(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn change_lock(&self, name: LockName, command: LockCommand) -> Result<Lock, EngineError> {
        match only(self.inbox.decide(vec![Item::Lock { name, command }]).await)? {
            Reply::Lock { lock, .. } => Ok(lock),
            Reply::LockRejected(rejection) => Err(rejection.into()),
            _ => Err(EngineError::Conflict),
        }
    }
}
