//! Workers' sessions: what each has, and by when it must be heard of again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use windlass_core::{
    ActKey, Millis, TaskId, Timestamp,
    planted::{Bug, is_planted},
};

use crate::port::{EXTENSIONS_MAX, Now, SessionId, SessionRenewal, SessionState, WorkerState};

/// All sessions.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    sessions: BTreeMap<SessionId, Session>,
    /// By when each must be heard of, in order.
    ends: BTreeSet<(Millis, SessionId)>,
}

#[derive(Debug)]
struct Session {
    lease_until: Millis,
    lease: Millis,
    /// Number of the last poll, and whether it is open.
    poll: (u64, bool),
    last_seen_at: Timestamp,
    worker: Arc<WorkerState>,
    holds: BTreeSet<(TaskId, ActKey)>,
    /// How often its lease was extended since it was last heard of.
    extensions: u8,
}

/// The time that leases are counted by. No clock that may be set.
fn time(now: Now) -> Millis {
    if is_planted(Bug::LeaseByWallClock) {
        return Millis(u64::try_from(now.wall.0).unwrap_or(0));
    }
    now.mono
}

impl Sessions {
    pub(super) fn renew(&mut self, renewal: SessionRenewal, now: Now) {
        let known = self.sessions.get(&renewal.session);
        let poll = renewal.poll.after(known.map_or((0, false), |session| session.poll));
        let lease = if poll.1 { renewal.lease } else { renewal.lease_unpolled };
        let lease_until = Millis(time(now).0.saturating_add(lease.0));
        let session = self.sessions.entry(renewal.session).or_insert_with(|| Session {
            lease_until,
            lease: renewal.lease,
            poll,
            last_seen_at: now.wall,
            worker: Arc::default(),
            holds: BTreeSet::new(),
            extensions: 0,
        });
        session.extensions = 0;
        self.ends.remove(&(session.lease_until, renewal.session));
        session.lease_until = lease_until;
        session.lease = renewal.lease;
        session.poll = poll;
        session.last_seen_at = now.wall;
        if let Some(worker) = renewal.worker {
            session.worker = worker;
        }
        self.ends.insert((lease_until, renewal.session));
    }

    pub(super) fn forgive(&mut self, now: Now) {
        self.ends.clear();
        for (id, session) in &mut self.sessions {
            if session.extensions < EXTENSIONS_MAX {
                session.extensions += 1;
                let lease_until = Millis(time(now).0.saturating_add(session.lease.0));
                session.lease_until = session.lease_until.max(lease_until);
            }
            self.ends.insert((session.lease_until, *id));
        }
    }

    pub(super) fn is_attached(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|session| session.worker.attached)
    }

    pub(super) fn hold(&mut self, session: SessionId, task: TaskId, key: ActKey) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.holds.insert((task, key));
        }
    }

    /// A session has an attempt, though it was forgotten when it seemed to have nothing any more, or with everything in
    /// memory: then its lease lasts until `lease_until`.
    pub(super) fn hold_again(
        &mut self,
        session: SessionId,
        task: TaskId,
        key: ActKey,
        since: Timestamp,
        lease_until: Millis,
    ) {
        let known = self.sessions.entry(session).or_insert_with(|| {
            self.ends.insert((lease_until, session));
            Session {
                lease_until,
                lease: Millis(0),
                poll: (0, false),
                last_seen_at: since,
                worker: Arc::default(),
                holds: BTreeSet::new(),
                extensions: 0,
            }
        });
        known.holds.insert((task, key));
    }

    pub(super) fn drop_hold(&mut self, session: SessionId, task: TaskId, key: ActKey) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.holds.remove(&(task, key));
        }
    }

    /// What a session has.
    pub(super) fn holds(&self, session: SessionId) -> impl Iterator<Item = &(TaskId, ActKey)> {
        self.sessions.get(&session).into_iter().flat_map(|session| &session.holds)
    }

    /// Whether the session has been silent for longer than its lease, or was never heard of.
    pub(super) fn is_over(&self, session: SessionId, at: Millis) -> bool {
        self.sessions.get(&session).is_none_or(|session| session.lease_until <= at)
    }

    pub(super) fn knows(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// When the next lease ends.
    pub(super) fn next_end(&self) -> Option<Millis> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// What sessions hold whose lease has ended; those that hold nothing are forgotten.
    pub(super) fn ended(&mut self, now: Now, limit: usize) -> Vec<(SessionId, TaskId, ActKey)> {
        let over: Vec<(Millis, SessionId)> =
            self.ends.iter().take_while(|(end, _)| *end <= time(now)).copied().collect();
        let mut lost = Vec::new();
        for (end, id) in over {
            let holds = self.sessions.get(&id).map(|session| &session.holds);
            match holds {
                Some(holds) if !holds.is_empty() => {
                    let room = limit.saturating_sub(lost.len());
                    lost.extend(holds.iter().take(room).map(|(task, key)| (id, *task, *key)));
                }
                _ => {
                    self.sessions.remove(&id);
                    self.ends.remove(&(end, id));
                }
            }
        }
        lost
    }

    pub(super) fn states(&self, now: Now) -> Vec<SessionState> {
        self.sessions
            .iter()
            .filter(|(_, session)| session.lease_until > now.mono)
            .map(|(id, session)| SessionState {
                session: *id,
                worker: WorkerState::clone(&session.worker),
                running: u32::try_from(session.holds.len()).unwrap_or(u32::MAX),
                last_seen_at: session.last_seen_at,
                poll: session.poll.0,
            })
            .collect()
    }
}
