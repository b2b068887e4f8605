//! Commits batches: one script reads and locks what a batch touches, the batch is decided here, and another script writes
//! and commits it. A batch of new tasks needs only the second.
//!
//! A connection that is lost while it commits does not report whether it did. Each product has a way to find out
//! afterwards, see [`CommitSql::fate`].

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use windlass_core::Name;
use windlass_store::{Ask, Change, Claimed, Leadership, Leave, Now, Outcome, Quarantine, StoreError};

use crate::rows::{
    Database as _, Fault, Flows, Found, Keys, Writes,
    claims::ClaimSql,
    decide,
    find::{FindSql, find},
    policy::{ASK_MAX, TRIES_MAX, pause},
};

/// Writing and committing, which each product does its own way.
pub(crate) trait CommitSql: FindSql + ClaimSql {
    /// How a transaction is recognised whose connection was lost while it committed.
    type Trace: Send + Sync;

    /// What the product remembers from one commit to the next.
    type Memory: Send + Sync;

    /// A commit can claim attempts. If not, they are claimed afterwards.
    const COMMITS_CLAIM: bool;

    /// Whether the transaction of a batch that reads nothing can be recognised. If not, [`FindSql::find`] is sent anyway.
    fn is_recognised(keys: &Keys) -> bool;

    /// How the transaction of the next write will be recognised. `found` is the last answer of [`FindSql::find`]; it is
    /// empty where nothing was read.
    fn trace(&mut self, keys: &Keys, found: &[Self::Row]) -> Result<Self::Trace, Fault>;

    /// Writes and commits. Returns for each claim request what was claimed; `None` = it must claim by itself.
    fn write(
        &mut self,
        memory: &Self::Memory,
        trace: &Self::Trace,
        write: Write<'_>,
    ) -> impl Future<Output = Result<Granted, Fault>> + Send;

    /// What became of a transaction; `None` while it is not settled.
    fn fate(&mut self, trace: &Self::Trace) -> impl Future<Output = Result<Option<Fate>, Fault>> + Send;
}

/// What became of a transaction whose connection was lost while it committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Committed,
    /// It is not committed now, but may still reach the database.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "MySQL's marks rule a late commit out"))]
    Missing,
    /// It is not committed and never will be.
    #[cfg_attr(
        not(feature = "mysql"),
        expect(dead_code, reason = "PostgreSQL cannot rule a late commit out")
    )]
    Dead,
}

/// What a transaction writes.
pub(crate) struct Write<'w> {
    /// The transaction is not open yet.
    pub(crate) begins: bool,
    pub(crate) writes: &'w Writes,
    /// The lease that must still stand when it commits.
    pub(crate) led: Option<Leadership>,
    /// Queues that are not known to be written down as used.
    pub(crate) new_queues: &'w BTreeSet<Name>,
    /// Attempts to claim behind the writes.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "commits of MySQL do not claim"))]
    pub(crate) asked: &'w Asked,
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "commits of MySQL do not claim"))]
    pub(crate) quarantine: &'w Quarantine,
}

/// Claim requests that go with a commit.
pub(crate) struct Asked {
    pub(crate) asks: Vec<Ask>,
    pub(crate) leave: Leave,
    pub(crate) now: Now,
}

/// The claims granted to each request; `None` = it must claim by itself.
pub(crate) type Granted = Vec<Option<Vec<Claimed>>>;

/// Commits batches.
pub(crate) struct Committer<D: CommitSql> {
    memory: D::Memory,
    /// Queues that are known to be written down as used.
    queues: Mutex<BTreeSet<Name>>,
}

/// How a try ended.
enum Try<T> {
    Done(Vec<Outcome>, Granted),
    /// The connection was lost while it committed.
    Unknown(T, Vec<Outcome>, Fault),
}

impl<D: CommitSql> Committer<D> {
    pub(crate) fn new(memory: D::Memory) -> Self {
        Self { memory, queues: Mutex::default() }
    }

    pub(crate) async fn commit(
        &self,
        database: &Arc<D::Database>,
        flows: &Flows,
        changes: &[Change],
        led: Option<Leadership>,
        asked: &Asked,
    ) -> Result<(Vec<Outcome>, Granted), StoreError> {
        let keys = Keys::of(changes);
        let none = vec![None; asked.asks.len()];
        // Only the first try claims: what is claimed later must not be dated before the wait for it, and where the claims
        // take too long, the batch goes without them.
        let nothing = Asked { asks: Vec::new(), leave: asked.leave.clone(), now: asked.now };
        let (mut tries, mut careful, mut missing) = (0, false, None);
        loop {
            tries += 1;
            let claims = D::COMMITS_CLAIM && tries == 1 && !asked.asks.is_empty();
            let asked = if claims { asked } else { &nothing };
            let fault = match self.attempt(database, flows, (changes, led), asked, &keys, careful).await {
                Ok(Try::Done(outcomes, granted)) => {
                    return Ok((outcomes, if claims { granted } else { none }));
                }
                Ok(Try::Unknown(trace, outcomes, fault)) => {
                    match fate::<D>(database, &trace, &fault).await? {
                        // Sessions learn what was claimed when they report what they have.
                        Fate::Committed => return Ok((outcomes, none)),
                        Fate::Missing => missing = Some((trace, outcomes)),
                        Fate::Dead => {}
                    }
                    fault
                }
                Err(fault) => fault,
            };
            // The missing transaction may have been on its way when it was queried, and be what is in the way now.
            if fault.is_taken()
                && let Some((trace, outcomes)) = missing.take()
                && fate::<D>(database, &trace, &fault).await? == Fate::Committed
            {
                return Ok((outcomes, none));
            }
            careful |= fault.is_taken();
            let again = claims || fault.is_taken() || fault.is_contention() || fault.is_lost_connection();
            if !again || fault.is_lease_lost() || tries >= TRIES_MAX {
                return Err(fault.into());
            }
            tracing::debug!(%fault, tries, "a batch is committed again");
            if !fault.is_taken() {
                pause(tries).await;
            }
        }
    }

    async fn attempt(
        &self,
        database: &Arc<D::Database>,
        flows: &Flows,
        (changes, led): (&[Change], Option<Leadership>),
        asked: &Asked,
        keys: &Keys,
        careful: bool,
    ) -> Result<Try<D::Trace>, Fault> {
        let mut link = database.connection().await?;
        let begins = keys.is_all_new() && !careful && D::is_recognised(keys);
        let (found, transaction) = match begins {
            true => (Found::default(), Vec::new()),
            false => find(&mut link, flows, keys, careful).await?,
        };
        let decided = decide(changes, found);
        if decided.writes.is_empty() {
            if !begins {
                link.roll_back().await?;
            }
            return Ok(Try::Done(decided.outcomes, vec![None; asked.asks.len()]));
        }
        let trace = link.trace(keys, &transaction)?;
        let new_queues = self.new_queues(&decided.writes);
        let (writes, quarantine) = (&decided.writes, &flows.quarantine);
        let write = Write { begins, writes, led, new_queues: &new_queues, asked, quarantine };
        match link.write(&self.memory, &trace, write).await {
            Ok(granted) => {
                if !new_queues.is_empty() {
                    self.queues.lock().unwrap_or_else(PoisonError::into_inner).extend(new_queues);
                }
                Ok(Try::Done(decided.outcomes, granted))
            }
            Err(fault) if fault.is_lost_connection() => Ok(Try::Unknown(trace, decided.outcomes, fault)),
            Err(fault) => Err(fault),
        }
    }

    fn new_queues(&self, writes: &Writes) -> BTreeSet<Name> {
        let known = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        writes.modules().into_iter().filter(|module| !known.contains(module)).collect()
    }
}

/// What became of a transaction whose connection was lost by `fault` while it committed.
async fn fate<D: CommitSql>(
    database: &Arc<D::Database>,
    trace: &D::Trace,
    fault: &Fault,
) -> Result<Fate, StoreError> {
    let began = Instant::now();
    let mut tries = 0;
    loop {
        let result = async { database.connection().await?.fate(trace).await }.await;
        let is_over = began.elapsed() >= ASK_MAX;
        let why = match result {
            Ok(Some(fate)) => return Ok(fate),
            Ok(None) => "the database has not settled what became of it".to_owned(),
            Err(error) => format!("it is unknown whether it was committed: {error}"),
        };
        if is_over {
            return Err(StoreError::Unavailable(format!("{}: {fault}; {why}", D::PRODUCT)));
        }
        tries += 1;
        pause(tries).await;
    }
}
