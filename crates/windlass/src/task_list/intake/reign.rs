//! Whether a server of our store leads a list, and what follows for tasks of the list that are under way.
//!
//! Consumers of the first design cannot see our leases: as soon as no server of our store leads, workers must stop what
//! they run of the list. The tasks go on when one leads again. The pause is the server's own (`Command::Suspend`): it
//! survives restarts, every server of the store can end it, and none ends the pause of an operator.

use std::{future::pending, sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use tokio::{sync::watch, time::sleep};
use windlass_client::{Pacing, Term};
use windlass_coordinators::{Consul, Coordinator as _, Leader};
use windlass_core::{Actor, Command, EventKind, Pause, Rejection, TaskId};
use windlass_engine::{EngineError, Notice};

use super::{FAILED_PAUSE_MAX, TaskList};

/// How long one query waits for another leader. What a broken connection hides is seen after it.
const WAIT: Duration = Duration::from_secs(30);

/// Who leads a list, as far as this server knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reign {
    /// This server leads, or the list has no leader key: tasks go on.
    Here,
    /// Another server of this store leads, and sees to the tasks. Also before anything is known.
    Elsewhere,
    /// No server of this store leads for sure: nothing may run.
    Nowhere,
}

impl Reign {
    /// `own` is the leadership of this server, if it was elected. `seen` is what Consul said last, if it has said anything.
    fn of(own: Option<&Own>, seen: Option<&Option<Leader>>, store: &str) -> Self {
        if own.is_some_and(|own| own.is_sure) {
            return Self::Here;
        }
        let Some(seen) = seen else { return if own.is_some() { Self::Nowhere } else { Self::Elsewhere } };
        let is_other = |leader: &&Leader| own.is_none_or(|own| leader.fence > own.fence);
        match seen.as_ref().filter(is_other) {
            Some(leader) if leader.value == store => Self::Elsewhere,
            _ => Self::Nowhere,
        }
    }
}

/// The last leadership of this server.
#[derive(Debug, Clone, Copy)]
struct Own {
    fence: u64,
    /// It has not ended, and no renewal is late.
    is_sure: bool,
}

/// Finds out who leads, for ever.
pub(super) async fn run(list: Arc<TaskList>, consul: Consul, key: String, reigns: watch::Sender<Reign>) {
    let (leaders, mut seen) = watch::channel(None);
    let judging = async {
        let mut terms = list.term.clone();
        let (mut term, mut own): (Option<Term>, Option<Own>) = (None, None);
        loop {
            own = match &term {
                Some(term) => Some(Own { fence: term.fence(), is_sure: !term.is_at_risk() }),
                None => own.map(|own| Own { is_sure: false, ..own }),
            };
            let reign = Reign::of(own.as_ref(), seen.borrow_and_update().as_ref(), &list.store);
            reigns.send_if_modified(|last| std::mem::replace(last, reign) != reign);
            tokio::select! {
                Ok(()) = terms.changed() => term = terms.borrow_and_update().clone(),
                Ok(()) = seen.changed() => {}
                () = turns(term.as_mut()) => {}
            }
        }
    };
    tokio::join!(judging, watch_leader(&consul, &key, leaders));
}

/// Waits until a leadership is at risk, or, if it is, until it was renewed or has ended.
async fn turns(term: Option<&mut Term>) {
    match term {
        None => pending().await,
        Some(term) if !term.is_at_risk() => term.at_risk().await,
        Some(term) if term.is_lost() => pending().await,
        Some(term) => {
            term.changed().await;
        }
    }
}

/// Watches the leader key, for ever. While Consul does not answer, what it said last stands.
async fn watch_leader(consul: &Consul, key: &str, leaders: watch::Sender<Option<Option<Leader>>>) {
    let mut pacing = Pacing::up_to(FAILED_PAUSE_MAX);
    loop {
        let fence = leaders.borrow().as_ref().map(|seen| seen.as_ref().map(|leader| leader.fence));
        let read = match fence {
            None => consul.leader(key).await,
            Some(fence) => consul.watch(key, fence, WAIT).await,
        };
        match read {
            Ok(leader) => {
                pacing.succeeded();
                leaders.send_if_modified(|last| last.replace(leader.clone()) != Some(leader));
            }
            Err(error) => {
                tracing::debug!(%error, key, "cannot see who leads a task list; retrying");
                sleep(pacing.failed()).await;
            }
        }
    }
}

/// Suspends a task of the list while no server of the store leads, and lets it go on when this one leads. For ever.
pub(super) async fn see_to(list: &TaskList, task: TaskId) {
    let mut reigns = list.reign.clone();
    let mut pacing = Pacing::up_to(FAILED_PAUSE_MAX);
    loop {
        let mut notices = list.app.engine.feed().watch(task);
        let reign = *reigns.borrow_and_update();
        let failed = match settle(list, task, reign).await {
            Ok(()) => None,
            // Its end is noticed elsewhere.
            Err(EngineError::UnknownTask(_) | EngineError::Rejected(Rejection::Ended)) => {
                return pending().await;
            }
            Err(error) => {
                tracing::debug!(%error, %task, "cannot suspend or continue a task of a list; retrying");
                Some(pacing.failed())
            }
        };
        if failed.is_none() {
            pacing.succeeded();
        }
        tokio::select! {
            Ok(()) = reigns.changed() => {}
            () = is_paused_or_resumed(&mut notices) => {}
            () = sleep(failed.unwrap_or_default()), if failed.is_some() => {}
        }
    }
}

async fn settle(list: &TaskList, task: TaskId, reign: Reign) -> Result<(), EngineError> {
    let engine = &list.app.engine;
    let pause = || async { Ok::<_, EngineError>(engine.task(task).await?.task.state.pause) };
    let by = Some(Actor { name: list.by().into(), claimed: false });
    match reign {
        Reign::Here if pause().await? == Pause::Suspended => {
            engine.tell(task, Command::Continue { by }).await?;
            tracing::info!(%task, prefix = list.settings.prefix, "a task of a list goes on");
        }
        // What an operator has paused may still run.
        Reign::Nowhere if !pause().await?.stops() => {
            let stopped = engine.tell(task, Command::Suspend { by }).await?;
            if stopped.task.state.pause == Pause::Suspended {
                tracing::warn!(%task, prefix = list.settings.prefix, "no server of this store leads: a task of a list is suspended");
            }
        }
        Reign::Here | Reign::Elsewhere | Reign::Nowhere => {}
    }
    Ok(())
}

/// Waits until somebody pauses or resumes the task, or the watch falls behind.
async fn is_paused_or_resumed(notices: &mut windlass_engine::Watch) {
    while let Some(notice) = notices.next().await {
        if let Notice::Event { event, .. } = notice
            && matches!(
                event.kind,
                EventKind::TaskPaused { .. }
                    | EventKind::TaskSuspended { .. }
                    | EventKind::TaskResumed { .. }
            )
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leader(value: &str, fence: u64) -> Option<Option<Leader>> {
        Some(Some(Leader { id: "a".to_owned(), value: value.to_owned(), fence }))
    }

    #[test]
    fn tasks_run_while_a_server_of_the_store_leads_for_sure() {
        let of = |own, seen: Option<Option<Leader>>| Reign::of(own, seen.as_ref(), "s");
        let sure = Some(&Own { fence: 7, is_sure: true });
        let unsure = Some(&Own { fence: 7, is_sure: false });
        assert_eq!(of(sure, leader("classic", 6)), Reign::Here, "what Consul said before the election");
        assert_eq!(of(None, None), Reign::Elsewhere, "nothing is known yet");
        assert_eq!(of(None, leader("s", 5)), Reign::Elsewhere);
        for seen in [leader("classic", 5), leader("", 5), leader("another store", 5), Some(None)] {
            assert_eq!(of(None, seen), Reign::Nowhere);
        }
        // This server was the leader that Consul named last.
        assert_eq!(of(unsure, leader("s", 7)), Reign::Nowhere);
        assert_eq!(of(unsure, None), Reign::Nowhere);
        assert_eq!(of(unsure, leader("s", 8)), Reign::Elsewhere);
    }
}
