//! Claims and sessions: which worker has which attempt, and for how long.

use std::{fmt, sync::Arc};

use sha2::{Digest as _, Sha256};
use windlass_core::{ActKey, Free, Millis, Name, TaskId, Timestamp, Wakeup};

/// An attempt that a session has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The act.
    pub key: ActKey,
    /// Number of the attempt.
    pub attempt: u32,
    /// Grows each time an attempt is handed out.
    pub number: u64,
    /// Who has it.
    pub session: SessionId,
    /// Since when.
    pub at: Timestamp,
}

/// A worker's session: the UUID it made. It is a secret: a client that knows it can take the worker's attempts. It is shown by its
/// [`Display`](fmt::Display) form alone, from which it cannot be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u128);

impl SessionId {
    /// The upper half of sessions that are the engine's own: no worker makes such an id before the year 6161.
    const OWN: u128 = 0x7769_6e64_6c61_7373 << 64;

    /// The session of what runs where the engine hears of it by results on a broker alone. Nobody can ask there
    /// whether an attempt is still being made, so the session never ends; its attempts end, or take too long.
    pub const AFAR: Self = Self(Self::OWN);

    /// The session of a queue publisher: it has attempts in order to offer them to others on a broker. `place` says which queue of
    /// which broker it is for which module; `chance` distinguishes it from other queue publishers there.
    #[must_use]
    pub fn publisher(place: &str, chance: u64) -> Self {
        let chance = (chance as u32).max(1);
        Self(Self::OWN | u128::from(hash(place)) << 32 | u128::from(chance))
    }

    /// Whether both are queue publishers that offer at the same place, one after the other or on different servers.
    #[must_use]
    pub fn offers_beside(self, other: Self) -> bool {
        self.is_publisher() && other.is_publisher() && self.0 >> 32 == other.0 >> 32
    }

    /// Whether it is a queue publisher's. What a queue publisher has nobody has begun, so its time does not run, and a
    /// session that says it has it takes it from the queue publisher.
    #[must_use]
    pub fn is_publisher(self) -> bool {
        self.is_own() && self != Self::AFAR
    }

    /// Whether it is the engine's own: no worker may call itself so.
    #[must_use]
    pub fn is_own(self) -> bool {
        self.0 >> 64 == Self::OWN >> 64
    }

    /// Whether this session gets what that one has by saying that it has it: anybody who runs it from a queue publisher, and a
    /// queue publisher from one that is gone.
    #[must_use]
    pub fn takes_from(self, holder: Self) -> bool {
        holder.is_publisher() && (!self.is_publisher() || self.offers_beside(holder))
    }

    /// How much longer than its timeout an attempt may be with this session.
    #[must_use]
    pub fn timeout_grace(self, attached: bool) -> Millis {
        match (self.is_publisher(), attached) {
            (true, _) => FOREVER,
            (false, true) => TIMEOUT_GRACE,
            (false, false) => Millis(0),
        }
    }
}

/// FNV-1a. The same in every version of the program: sessions outlive servers.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

impl fmt::Display for SessionId {
    /// The public id of the session: a UUID made of a hash, the same on all servers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash =
            Sha256::new().chain_update(b"windlass session").chain_update(self.0.to_be_bytes()).finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash[..16]);
        uuid::Builder::from_custom_bytes(bytes).into_uuid().hyphenated().fmt(f)
    }
}

/// One attempt, as a token names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId {
    /// The task.
    pub task: TaskId,
    /// The act.
    pub key: ActKey,
    /// Number of the attempt.
    pub attempt: u32,
    /// Number of the claim.
    pub claim: u64,
}

/// What a session can take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRequest {
    /// The module.
    pub module: Name,
    /// Only these commands; nothing = all.
    pub commands: Option<Vec<Name>>,
    /// How many at most.
    pub free: u32,
}

/// An attempt handed out, or lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// Which.
    pub id: AttemptId,
    /// Who has it.
    pub session: SessionId,
    /// Since when.
    pub at: Timestamp,
    /// Its module.
    pub module: Name,
}

/// What is claimed with a commit: for this session, as much of this as there is then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Who gets it.
    pub session: SessionId,
    /// What, and how much at most.
    pub claim_request: ClaimRequest,
}

/// What a claim leaves to other servers on the store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leave {
    /// What became ready at this time or later; nothing = nothing is left.
    pub since: Option<Timestamp>,
    /// Attempts of these tasks are claimed nevertheless.
    pub but: Vec<TaskId>,
}

/// Whose an attempt is that a session says it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Adoption {
    /// The session's.
    Held,
    /// It is not current any more, or another session has it.
    Gone,
}

/// A session was heard of, or a poll of it ended.
///
/// Of an attached session it is known by its open poll that it is there. It may talk to several servers at once, and
/// each knows only of its own calls; so the store keeps the highest poll number that was reported, and whether that
/// one is open. A report of an earlier poll changes neither.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRenewal {
    /// Which.
    pub session: SessionId,
    /// The report of its poll.
    pub poll: PollState,
    /// How long it may be silent from now while its last poll is open.
    pub lease: Millis,
    /// How long it may be silent from now while it has no poll open: `lease` again where it needs none.
    pub lease_unpolled: Millis,
    /// What it said of itself; nothing = what the store knows stands.
    pub worker: Option<Arc<WorkerState>>,
}

/// The report of a session's poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PollState {
    /// Nothing: what is known of it stands.
    Unknown,
    /// The poll with this number is open, or was answered and the next one may be at another server. One that was reported as
    /// closed stays so.
    Open(u64),
    /// The poll with this number is open no more, and no other is expected: its connection went away, or another poll would
    /// have to come to the same server.
    Closed(u64),
}

impl PollState {
    /// What a store knows by this, that knew `(number, is_open)` of the last poll before; `(0, false)` = of none.
    #[must_use]
    pub fn after(self, (number, is_open): (u64, bool)) -> (u64, bool) {
        match self {
            Self::Open(told) if told > number => (told, true),
            Self::Closed(told) if told >= number => (told, false),
            _ => (number, is_open),
        }
    }
}

/// A claim that a change takes from its session. The change is valid only if the session still has the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostClaim {
    /// The act.
    pub key: ActKey,
    /// Number of the claim.
    pub claim: u64,
    /// Who has it.
    pub session: SessionId,
    /// When the session was found to be over, if it was: its lease must have ended by then. Another server may have heard of
    /// the session since.
    pub over_at: Option<Millis>,
}

/// How often in a row a session gets a new lease because its server was unavailable, without being heard of in between. A server
/// that is unavailable again and again would otherwise keep attempts of dead workers from others for ever.
pub const EXTENSIONS_MAX: u8 = 2;

/// What a worker reports about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkerState {
    /// Its name.
    pub name: Box<str>,
    /// Its machine.
    pub host: Box<str>,
    /// Version of its program or library.
    pub version: Box<str>,
    /// Whether it keeps a poll open.
    pub attached: bool,
    /// The modules it serves.
    pub modules: Vec<Name>,
}

/// A session as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionState {
    /// Which.
    pub session: SessionId,
    /// What it reports about itself.
    pub worker: WorkerState,
    /// How many attempts it has.
    pub running: u32,
    /// When it was last heard of.
    pub last_seen_at: Timestamp,
    /// The number of the newest poll that the store knows of, on any server; 0 = of none.
    pub poll: u64,
}

/// Something that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// A start, retry or deadline of a task.
    Wake {
        /// The task.
        task: TaskId,
        /// What for.
        wakeup: Wakeup,
    },
    /// An attempt has run longer than its timeout, and its worker was given time to end it.
    TimeOut(Claimed),
    /// A session has had the first attempt of a step with a deadline for [`TAKEN_KEPT_AFTER`], and the store knows only
    /// in memory since when: that is to be written down.
    Taken(Claimed),
    /// An attempt is to stop and no session has it, so nobody would ever report its end.
    GiveUp {
        /// The task.
        task: TaskId,
        /// The act.
        key: ActKey,
        /// Number of the attempt.
        attempt: u32,
    },
    /// An attempt of a paused task is with no session, and is not handed out before the resume.
    Park {
        /// The task.
        task: TaskId,
        /// The act.
        key: ActKey,
        /// Number of the attempt.
        attempt: u32,
    },
}

impl Due {
    /// What becomes of an attempt that no session has, where it is not handed out.
    #[must_use]
    pub fn of_free(task: TaskId, key: ActKey, attempt: u32, free: Free) -> Option<Self> {
        match free {
            Free::HandOut => None,
            Free::Park => Some(Self::Park { task, key, attempt }),
            Free::GiveUp => Some(Self::GiveUp { task, key, attempt }),
        }
    }
}

/// How much longer than its timeout an attempt of an attached worker may run before the engine gives it up:
/// the worker ends it by itself (SIGTERM, 5 s, SIGKILL), and two attempts of a step should not overlap.
pub const TIMEOUT_GRACE: Millis = Millis::from_secs(10);

/// How long the first attempt of a step with a deadline runs before a store with claims in memory has it written down when
/// it was claimed. Shorter attempts cost no commit; after a crash the deadline of a running first attempt may end this
/// much later.
pub const TAKEN_KEPT_AFTER: Millis = Millis::from_secs(5);

/// Longer than anything lasts, and small enough to be added to.
pub const FOREVER: Millis = Millis(1 << 50);

/// How long attempts that were ready before a start wait for workers to come back and name what they hold.
pub const ADOPTION_GRACE: Millis = Millis(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_shown_by_a_public_id() {
        let session = SessionId(0x0191_e0a1_7c2b_7def_8123_4567_89ab_cdef);
        let secret = uuid::Uuid::from_u128(session.0).to_string();
        assert_eq!(session.to_string(), session.to_string());
        assert_ne!(session.to_string(), secret);
        assert_ne!(session.to_string(), SessionId(session.0 + 1).to_string());
    }
}
