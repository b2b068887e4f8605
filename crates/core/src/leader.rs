//! Leaders: processes that hold a lock under a lease.
//!
//! A leader renews its lease in time, or another candidate takes the lock from it. Each renewal is a change of the lock, so
//! its version shows that the leader renews. Whether a lease is over is not decided here, and not by comparing clocks: a
//! server that has seen the same version for a whole lease on its own monotonic clock says so ([`Candidacy::over`]).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    Lock, LockHolder, LockName, LockOwner, LockTransition, Millis, Name, Timestamp,
    planted::{Bug, is_planted},
};

/// A process that leads under a lease, for other candidates and for operators.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    /// The name that it campaigned for.
    pub name: Box<str>,
    /// Its id.
    pub id: Box<str>,
    /// Anything else that others should know of it. May be empty.
    pub value: Box<str>,
    /// It must renew in this time.
    pub lease: Millis,
}

/// A candidate requests a lock, or its leader renews it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidacy {
    /// The number of the campaign: another one for each.
    pub campaign: u128,
    /// The candidate.
    pub leader: Arc<Leader>,
    /// The fence of the leadership to renew; `None` = it does not lead yet.
    pub renews: Option<u64>,
    /// The version at which the leader has not renewed for its whole lease, as a server has seen.
    pub over: Option<u64>,
}

/// The names of the locks of leaders begin with this. No other rule treats them apart: a step that names such a lock
/// waits until the leader resigns.
const LEADER_PREFIX: &str = "leader..";

/// The lock of the leader of a name, which may have slashes; `None` if a leader cannot have this name. The name may have
/// 120 characters, of which a dot and a slash count as two.
#[must_use]
pub fn leader_lock(name: &str) -> Option<LockName> {
    let is_part = |part: &str| !["", ".", ".."].contains(&part);
    if !name.split('/').all(is_part) {
        return None;
    }
    // No two names have the same lock: a dot is never followed by anything else than a dot or the sign of a slash.
    Name::new(&format!("{LEADER_PREFIX}{}", name.replace('.', "..").replace('/', ".-"))).ok()
}

/// The place before all locks of leaders, in the order of names.
///
/// # Panics
/// Never: the prefix is a name.
#[must_use]
pub fn before_leader_locks() -> LockName {
    Name::new(LEADER_PREFIX).expect("the prefix is a name")
}

/// Whether this may be the lock of a leader.
#[must_use]
pub fn is_leader_lock(name: &LockName) -> bool {
    name.as_str().starts_with(LEADER_PREFIX)
}

/// What becomes of a candidate.
pub(crate) enum Standing {
    /// It leads already, and has renewed.
    Leads,
    /// It leads from now on.
    IsElected,
    /// Somebody else leads, or it was deposed.
    StandsBy,
}

impl Lock {
    /// The fence of the process that leads under this campaign.
    #[must_use]
    pub fn fence_of(&self, campaign: u128) -> Option<u64> {
        let holder = self.holder.filter(|holder| holder.owner == LockOwner::leader(campaign));
        holder.map(|holder| holder.fence)
    }

    /// What becomes of a candidate.
    pub(crate) fn standing(&self, candidacy: &Candidacy) -> Standing {
        let fence = self.fence_of(candidacy.campaign);
        let is_over = candidacy
            .over
            .is_some_and(|version| version == self.version || is_planted(Bug::RenewalOvertaken));
        let is_over = self.leader.is_some() && is_over;
        // Two candidates that use one number by mistake must not both lead.
        let is_same = self.leader.as_ref().is_some_and(|leader| leader.id == candidacy.leader.id);
        match (fence, candidacy.renews) {
            (Some(fence), renews) if is_same && renews.is_none_or(|renews| renews == fence) => {
                Standing::Leads
            }
            // A renewal never elects: the candidate believes that it leads without a break.
            (_, Some(_)) if !is_planted(Bug::ElectedByRenewal) => Standing::StandsBy,
            _ if self.is_free() || is_over => Standing::IsElected,
            _ => Standing::StandsBy,
        }
    }
}

impl LockTransition {
    pub(crate) fn elect(&mut self, candidacy: &Candidacy, now: Timestamp) {
        let owner = LockOwner::leader(candidacy.campaign);
        self.lock.holder = Some(LockHolder { owner, fence: self.lock.version, since: now });
        self.lock.leader = Some(candidacy.leader.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ActKey, LockCommand, Message, TaskId};

    fn owner(task: u128) -> LockOwner {
        LockOwner { task: TaskId(task), key: ActKey::forward(0), turn: 1 }
    }

    fn tell(lock: &mut Lock, command: &LockCommand, now: i64) -> Vec<Message> {
        let next = lock.apply(command, Timestamp(now)).expect("it applies");
        let Some(next) = next else { return Vec::new() };
        *lock = next.lock;
        next.messages.into_iter().map(|(_, message)| message).collect()
    }

    fn candidacy(campaign: u128) -> Candidacy {
        let leader = Leader {
            name: "a/b".into(),
            id: format!("host-{campaign}").into(),
            value: "".into(),
            lease: Millis(4_000),
        };
        Candidacy { campaign, leader: Arc::new(leader), renews: None, over: None }
    }

    /// Applies it, and returns the fence under which the candidate leads then.
    fn lead(lock: &mut Lock, candidacy: Candidacy) -> Option<u64> {
        let campaign = candidacy.campaign;
        tell(lock, &LockCommand::Lead(candidacy), 1);
        lock.fence_of(campaign)
    }

    #[test]
    fn a_leader_is_replaced_only_at_the_version_at_which_its_lease_is_over() {
        let mut lock = Lock::new(Name::new("leader..x").expect("a name"), 7);
        let first = lead(&mut lock, candidacy(1)).expect("it is free");
        let seen = lock.version;
        assert!(first > 7);
        assert_eq!(lead(&mut lock, candidacy(2)), None);
        assert_eq!(lead(&mut lock, Candidacy { renews: Some(first), ..candidacy(1) }), Some(first));
        assert!(lock.version > seen, "a renewal is a change");
        assert_eq!(lead(&mut lock, Candidacy { over: Some(seen), ..candidacy(2) }), None, "it has renewed");
        let over = Candidacy { over: Some(lock.version), ..candidacy(2) };
        let second = lead(&mut lock, over).expect("the lease is over");
        assert!(second > first);
        assert_eq!(lead(&mut lock, Candidacy { renews: Some(first), ..candidacy(1) }), None);
        assert_eq!(lock.fence_of(2), Some(second));
    }

    #[test]
    fn who_was_deposed_is_not_elected_by_a_renewal() {
        let mut lock = Lock::new(Name::new("leader..x").expect("a name"), 0);
        let first = lead(&mut lock, candidacy(1)).expect("it is free");
        let seize = LockCommand::Seize { reason: "it hangs".into(), by: None };
        assert_eq!(tell(&mut lock, &seize, 2), [], "no message is sent");
        assert!(lock.is_free() && lock.leader.is_none());
        assert_eq!(lead(&mut lock, Candidacy { renews: Some(first), ..candidacy(1) }), None);
        assert!(lead(&mut lock, candidacy(1)).expect("it campaigns again") > first);
        let version = lock.version;
        lead(&mut lock, Candidacy { renews: Some(first), ..candidacy(1) });
        assert_eq!(lock.version, version, "the leadership that it renews has ended");
    }

    #[test]
    fn a_lock_of_a_task_is_not_led_and_a_leader_is_not_waited_out() {
        let mut lock = Lock::new(Name::new("disk").expect("a name"), 0);
        tell(&mut lock, &LockCommand::Acquire { owner: owner(1) }, 5);
        let over = Candidacy { over: Some(lock.version), ..candidacy(2) };
        assert_eq!(lead(&mut lock, over), None);
        tell(&mut lock, &LockCommand::Release { owner: owner(1) }, 6);
        lead(&mut lock, candidacy(2)).expect("it is free");
        assert_eq!(tell(&mut lock, &LockCommand::Acquire { owner: owner(3) }, 7), []);
        let resigned = tell(&mut lock, &LockCommand::Release { owner: LockOwner::leader(2) }, 8);
        assert!(
            matches!(&resigned[..], [Message::Granted { owner, .. }] if owner.task == TaskId(3)),
            "{resigned:?}"
        );
    }

    #[test]
    fn a_leader_is_deposed_only_at_the_version_that_was_seen() {
        let mut lock = Lock::new(Name::new("leader..x").expect("a name"), 0);
        let first = lead(&mut lock, candidacy(1)).expect("it is free");
        let seen = lock.version;
        lead(&mut lock, Candidacy { renews: Some(first), ..candidacy(1) });
        tell(&mut lock, &LockCommand::Depose { version: seen }, 2);
        assert_eq!(lock.fence_of(1), Some(first), "it has renewed");
        let version = lock.version;
        assert_eq!(tell(&mut lock, &LockCommand::Depose { version }, 3), []);
        assert!(lock.is_free() && lock.leader.is_none());
        assert_eq!(lead(&mut lock, Candidacy { renews: Some(first), ..candidacy(1) }), None);
        assert!(lead(&mut lock, candidacy(2)).expect("it is free") > first);
        let mut of_a_task = Lock::new(Name::new("disk").expect("a name"), 0);
        tell(&mut of_a_task, &LockCommand::Acquire { owner: owner(1) }, 5);
        let version = of_a_task.version;
        tell(&mut of_a_task, &LockCommand::Depose { version }, 6);
        assert!(!of_a_task.is_free(), "only leaders are deposed");
    }

    #[test]
    fn locks_of_leaders_come_after_their_place() {
        let lock = leader_lock("a").expect("a name");
        assert!(is_leader_lock(&lock) && lock > before_leader_locks());
    }

    #[test]
    fn each_name_of_a_leader_has_a_lock_of_its_own() {
        let names = ["a/b", "a.b", "a.-b", "a-b", "a..b", "a./b", "a/.b", "a-/b"];
        let locks: std::collections::BTreeSet<LockName> =
            names.iter().map(|name| leader_lock(name).expect(name)).collect();
        assert_eq!(locks.len(), names.len());
        assert!(leader_lock(&"x".repeat(120)).is_some() && leader_lock(&".x".repeat(40)).is_some());
        for wrong in ["", "/a", "a/", "a//b", "a/../b", ".", "a b", &"x".repeat(121), &".x".repeat(41)] {
            assert_eq!(leader_lock(wrong), None, "{wrong}");
        }
    }
}
