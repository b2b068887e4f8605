//! The engine's resident store over rows in memory: what a commit costs before the disk, and handing out what became
//! ready, without limits and under some that do not bind.

use std::{error::Error, sync::Arc};

use windlass_conformance::claim;
use windlass_core::{Millis, Name, Retry};
use windlass_store::{
    Change, ClaimRequest, Claims as _, Limit, LimitChange, Now, Outcome, PollState, STARTS_MAX, SessionId,
    SessionRenewal, Starts, Store as _, StoredFlow, memory::MemorySink, resident::Resident,
};

use crate::{
    Case, Part,
    line::{BATCH, NOW, batches, flow},
};

const WARM: usize = 10;
const MEASURED: usize = 40;

/// Who takes what becomes ready.
const SESSION: SessionId = SessionId(1);

/// What is ready and taken after each batch: what did not end in it.
const TAKEN: usize = BATCH / 4 * 3;

/// The cases of this file.
pub(crate) fn cases() -> Vec<Case> {
    let case = |name, run| Case { name, operations: MEASURED, run };
    vec![
        case("engine: a commit of 100 changes, memory", |part| commits(part, Claims::None)),
        case("engine: a commit of 100 changes, 75 attempts taken", |part| commits(part, Claims::Free)),
        case("engine: a commit of 100 changes, 75 attempts taken under limits", |part| {
            commits(part, Claims::Limited)
        }),
    ]
}

/// What is handed out between the commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claims {
    None,
    Free,
    /// All that is ready, under limits that count it and keep nothing back.
    Limited,
}

fn commits(part: Part, claims: Claims) -> Result<(), Box<dyn Error>> {
    tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
        let flow = flow(Retry::default())?;
        let module = flow.steps[0].run.worker().ok_or("the steps are done by workers")?.0.clone();
        let now = Now { wall: NOW, mono: Millis(0) };
        let store = Resident::open(Arc::new(MemorySink::new([7; 32])), now).await?;
        let mut batches = batches(&flow, WARM + MEASURED, store.generation())?.into_iter();
        store.commit(vec![Change::Flow(StoredFlow { flow, created_at: NOW })]).await?;
        if claims == Claims::Limited {
            let limits = limits(&module)?;
            store.commit(limits.into_iter().map(Change::Limit).collect()).await?;
        }
        // Past the grace after a start.
        let now = Now { mono: Millis::from_secs(1), ..now };
        let lease = Millis::from_secs(3600);
        let poll = PollState::Unknown;
        let renewal = SessionRenewal { session: SESSION, poll, lease, lease_unpolled: lease, worker: None };
        store.renew(vec![renewal], now).await?;
        let claim_request = [ClaimRequest { module, commands: None, free: u32::MAX }];
        for (number, batch) in batches.by_ref().take(part.rounds(WARM, MEASURED)).enumerate() {
            let outcomes = store.commit(batch).await?;
            if outcomes.iter().any(|outcome| *outcome != Outcome::Committed) {
                return Err("a change was not taken".into());
            }
            if claims == Claims::None {
                continue;
            }
            let taken = claim(&store, SESSION, &claim_request, now).await?.len();
            if taken != TAKEN.min((number + 1) * BATCH / 4) {
                return Err(format!("{taken} attempts were taken").into());
            }
        }
        Ok(())
    })
}

/// One of what is running, and one of what begins in a second: so high that nothing ever waits for them.
fn limits(module: &Name) -> Result<Vec<LimitChange>, Box<dyn Error>> {
    let limit = |name: &str, running, starts| -> Result<LimitChange, Box<dyn Error>> {
        let (name, queue) = (Name::new(name)?, module.clone());
        let limit = Limit { name: name.clone(), queue, command: None, per_key: false, running, starts };
        Ok(LimitChange { name, limit: Some(limit) })
    };
    let starts = Starts { count: STARTS_MAX, per: Millis::from_secs(1) };
    Ok(vec![limit("running", Some(1_000), None)?, limit("starts", None, Some(starts))?])
}
