//! The rows of workers' sessions.

use std::{collections::BTreeMap, sync::Arc};

use windlass_core::{Millis, Timestamp};

use crate::port::{EXTENSIONS_MAX, Now, SessionId, SessionRenewal, SessionState, WorkerState};

/// One row per session.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    rows: BTreeMap<SessionId, SessionRow>,
}

#[derive(Debug)]
struct SessionRow {
    lease_until: Millis,
    lease: Millis,
    /// Number of the last poll, and whether it is open.
    poll: (u64, bool),
    last_seen_at: Timestamp,
    worker: Arc<WorkerState>,
    /// How often its lease was extended since it was last heard of.
    extensions: u8,
}

impl Sessions {
    pub(super) fn renew(&mut self, renewal: SessionRenewal, now: Now) {
        let before = self.rows.remove(&renewal.session);
        let poll = renewal.poll.after(before.as_ref().map_or((0, false), |row| row.poll));
        let row = SessionRow {
            lease_until: later(now, if poll.1 { renewal.lease } else { renewal.lease_unpolled }),
            lease: renewal.lease,
            poll,
            last_seen_at: now.wall,
            worker: renewal.worker.or(before.map(|row| row.worker)).unwrap_or_default(),
            extensions: 0,
        };
        self.rows.insert(renewal.session, row);
    }

    pub(super) fn forgive(&mut self, now: Now) {
        for row in self.rows.values_mut() {
            if row.extensions < EXTENSIONS_MAX {
                row.extensions += 1;
                row.lease_until = row.lease_until.max(later(now, row.lease));
            }
        }
    }

    pub(super) fn knows(&self, session: SessionId) -> bool {
        self.rows.contains_key(&session)
    }

    pub(super) fn is_attached(&self, session: SessionId) -> bool {
        self.rows.get(&session).is_some_and(|row| row.worker.attached)
    }

    /// Whether the session has been silent for longer than its lease, or was never heard of.
    pub(super) fn is_over(&self, session: SessionId, at: Millis) -> bool {
        self.rows.get(&session).is_none_or(|row| row.lease_until <= at)
    }

    /// Forgets sessions that are over and hold nothing.
    pub(super) fn forget(&mut self, now: Now, holds: impl Fn(SessionId) -> bool) {
        self.rows.retain(|session, row| row.lease_until > now.mono || holds(*session));
    }

    /// The sessions whose lease has not ended.
    pub(super) fn states(&self, now: Now, running: impl Fn(SessionId) -> u32) -> Vec<SessionState> {
        self.rows
            .iter()
            .filter(|(_, row)| row.lease_until > now.mono)
            .map(|(session, row)| SessionState {
                session: *session,
                worker: WorkerState::clone(&row.worker),
                running: running(*session),
                last_seen_at: row.last_seen_at,
                poll: row.poll.0,
            })
            .collect()
    }
}

fn later(now: Now, length: Millis) -> Millis {
    Millis(now.mono.0.saturating_add(length.0))
}
