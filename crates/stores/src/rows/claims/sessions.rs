//! Sessions, their claims, and claims that are lost.

use std::collections::{BTreeSet, HashMap};

use windlass_core::{Millis, TaskId, Timestamp};
use windlass_store::{
    Adoption, AttemptId, Claimed, Leadership, Now, SessionId, SessionRenewal, SessionState, WorkerState,
};

use crate::rows::{
    Columns as _, Fault, Link, act_code, claims::claimed, from_integer, is_poll_open, name, poll_code,
    poll_number, small, to_integer,
};

/// The row of a session that is renewed. `None` leaves a column as it is.
pub(crate) struct Renewal<'r> {
    pub(crate) id: SessionId,
    pub(crate) lease_until: i64,
    pub(crate) lease: i64,
    pub(crate) lease_unpolled: i64,
    /// The greatest number reported counts, whatever the order.
    pub(crate) poll: i64,
    pub(crate) worker: Option<&'r WorkerState>,
}

impl Renewal<'_> {
    /// The modules of the worker, in one column.
    pub(crate) fn modules(&self) -> Option<String> {
        let names: Vec<&str> = self.worker?.modules.iter().map(|module| module.as_str()).collect();
        Some(names.join(" "))
    }
}

/// A claim that a session takes over.
pub(crate) struct Adopted {
    pub(crate) task: TaskId,
    pub(crate) act: i64,
    #[cfg_attr(not(feature = "mysql"), expect(dead_code, reason = "only MySQL's upsert writes it again"))]
    pub(crate) attempt: u32,
    pub(crate) claim: i64,
    pub(crate) timeout_at: i64,
}

/// Statements about sessions. Claims have the columns of [`claimed`].
pub(crate) trait SessionSql: Link {
    /// Writes renewals, which are in the order of their sessions.
    fn renew<'r>(renewals: &[Renewal<'r>], now: Now) -> Self::Script<'r>;

    /// Extends every lease once more, unless it was extended too often.
    fn forgive(now: Now) -> Self::Script<'static>;

    /// Sessions whose lease has not ended: `id, last_seen_at, attached, name, host, program, modules`, and the number of
    /// claims.
    fn sessions(now: Now) -> Self::Script<'static>;

    /// Claims of a session.
    fn held(session: SessionId) -> Self::Script<'static>;

    /// Claims of these sessions whose attempts must stop.
    fn to_stop(sessions: &[SessionId]) -> Self::Script<'_>;

    /// Claims of sessions whose lease has ended; then the `id` of sessions without a lease and claims, unless the script
    /// deletes them itself.
    fn lost(now: Now, limit: usize) -> Self::Script<'static>;

    /// Deletes these sessions, except those that were renewed meanwhile.
    fn forget(sessions: &[u128], now: Now) -> Self::Script<'static>;

    /// Begins a transaction, then returns whether the session is attached: `attached`; and reads and locks ready attempts:
    /// `task, act, attempt, claim, session, timeout`.
    fn lock_ready(session: SessionId, attempts: &BTreeSet<(TaskId, i64)>) -> Self::Script<'static>;

    /// Writes claims that a session takes over, and commits.
    fn adopt(session: SessionId, adopted: &[Adopted], now: Now) -> Self::Script<'static>;

    /// Gives a claim back, with what counts of it under limits.
    fn release(session: SessionId, attempt: AttemptId, led: Option<Leadership>) -> Self::Script<'static>;
}

/// Renews sessions.
pub(crate) async fn renew<D: SessionSql>(
    link: &mut D,
    sessions: &[SessionRenewal],
    now: Now,
) -> Result<(), Fault> {
    let mono = to_integer(now.mono.0);
    let row = |renewal: &'_ SessionRenewal| {
        let (lease, unpolled) = (to_integer(renewal.lease.0), to_integer(renewal.lease_unpolled.0));
        let poll = poll_code(renewal.poll);
        let lasts = if is_poll_open(poll) { lease } else { unpolled };
        (lease, unpolled, poll, mono.saturating_add(lasts))
    };
    let mut renewals = Vec::with_capacity(sessions.len());
    for renewal in sessions {
        let (lease, lease_unpolled, poll, lease_until) = row(renewal);
        let (id, worker) = (renewal.session, renewal.worker.as_deref());
        renewals.push(Renewal { id, lease_until, lease, lease_unpolled, poll, worker });
    }
    renewals.sort_unstable_by_key(|renewal| renewal.id);
    let script = D::renew(&renewals, now);
    link.send(script).await?;
    Ok(())
}

/// The sessions whose lease has not ended.
pub(crate) async fn sessions<D: SessionSql>(link: &mut D, now: Now) -> Result<Vec<SessionState>, Fault> {
    let mut states = Vec::new();
    for row in link.rows(D::sessions(now)).await? {
        let modules = row.any_text(6);
        let worker = WorkerState {
            name: row.any_text(3).into(),
            host: row.any_text(4).into(),
            version: row.any_text(5).into(),
            attached: row.flag(2)?,
            modules: modules.split_whitespace().map(name).collect::<Result<_, _>>()?,
        };
        states.push(SessionState {
            session: SessionId(row.id(0)?),
            worker,
            running: small(row.number(7)?),
            last_seen_at: Timestamp(row.number(1)?),
            poll: poll_number(row.number(8)?),
        });
    }
    Ok(states)
}

/// The claims that a script reads.
pub(crate) async fn claims<D: SessionSql>(
    link: &mut D,
    script: D::Script<'_>,
) -> Result<Vec<Claimed>, Fault> {
    link.rows(script).await?.iter().map(claimed).collect()
}

/// Claims of sessions whose lease has ended. Sessions without a lease and claims are forgotten.
pub(crate) async fn lost<D: SessionSql>(link: &mut D, now: Now, limit: usize) -> Result<Vec<Claimed>, Fault> {
    let mut answers = link.send(D::lost(now, limit)).await?.into_iter();
    let (lost, forgotten) = (answers.next().unwrap_or_default(), answers.next().unwrap_or_default());
    if !forgotten.is_empty() {
        let ids = forgotten.iter().map(|row| row.id(0)).collect::<Result<Vec<_>, _>>()?;
        link.send(D::forget(&ids, now)).await?;
    }
    lost.iter().map(claimed).collect()
}

/// Whether a session is attached, from the first row; `None` where the session is unknown.
pub(crate) fn grace(session: SessionId, rows: &[impl crate::rows::Columns]) -> Result<Option<Millis>, Fault> {
    let attached = rows.first().map(|row| row.flag(0)).transpose()?;
    Ok(attached.map(|attached| session.timeout_grace(attached)))
}

/// A ready attempt: its number, its claim with the session that has it, and its timeout.
type Ready = (u32, Option<(u64, SessionId)>, i64);

/// A session says that it has claimed these attempts.
pub(crate) async fn adopt<D: SessionSql>(
    link: &mut D,
    session: SessionId,
    attempts: &[AttemptId],
    now: Now,
) -> Result<Vec<Adoption>, Fault> {
    if attempts.is_empty() {
        return Ok(Vec::new());
    }
    let keys: BTreeSet<(TaskId, i64)> = attempts.iter().map(|id| (id.task, act_code(id.key))).collect();
    let answers = link.send(D::lock_ready(session, &keys)).await?;
    let [attached, rows] = &answers[..] else { return Err(crate::rows::damaged("an answer is missing")) };
    // The grace of an unknown session is that of one that is not attached.
    let grace = grace(session, attached)?.unwrap_or_else(|| session.timeout_grace(false));
    let mut ready: HashMap<(TaskId, i64), Ready> = HashMap::new();
    for row in rows {
        let claim = row.optional_number(3)?.map(from_integer).zip(row.optional_id(4)?.map(SessionId));
        let timeout = row.optional_number(5)?.unwrap_or(0);
        ready.insert((row.task(0)?, row.number(1)?), (small(row.number(2)?), claim, timeout));
    }
    let (mut adopted, mut adoptions) = (Vec::new(), Vec::with_capacity(attempts.len()));
    for id in attempts {
        let key = (id.task, act_code(id.key));
        let current = ready.get_mut(&key).filter(|(number, ..)| *number == id.attempt);
        adoptions.push(match current {
            Some((_, Some(claim), _)) if *claim == (id.claim, session) => Adoption::Held,
            Some((_, claim, timeout)) if claim.is_none_or(|(_, holder)| session.takes_from(holder)) => {
                *claim = Some((id.claim, session));
                let timeout_at = to_integer(now.mono.0.saturating_add(grace.0)).saturating_add(*timeout);
                let ((task, act), claim) = (key, to_integer(id.claim));
                adopted.push(Adopted { task, act, attempt: id.attempt, claim, timeout_at });
                Adoption::Held
            }
            _ => Adoption::Gone,
        });
    }
    if adopted.is_empty() {
        link.roll_back().await?;
    } else {
        link.send(D::adopt(session, &adopted, now)).await?;
    }
    Ok(adoptions)
}
