//! Elects the server that reads an intake.

use std::{
    future::pending,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::time;
use windlass_client::{
    Leader,
    coordinators::{Campaign, Coordinator, CoordinatorError, connect},
};
use windlass_core::Millis;
use windlass_engine::{Engine, services::HEARTBEAT_EVERY};
use windlass_store::Clock;

use super::leader::LeaderSettings;
use crate::{http::App, modules::default_name};

/// How often a server looks whether it has the lease of the store. It is renewed with each heartbeat.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The time before the end of the store's lease at which the reader must begin to stop.
const STOPS_BEFORE: Millis = HEARTBEAT_EVERY;

/// How often the coordinator is asked who leads, to find out whether it answers.
const ASK_EVERY: Duration = Duration::from_secs(5);

/// The pause after a coordinator has refused a campaign: an operator may change that.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// An election in which this server is a candidate.
pub(super) enum Election {
    /// By the lease of the store.
    Store { engine: Arc<Engine>, clock: Arc<dyn Clock + Send + Sync> },
    /// By a coordinator.
    Coordinator(Candidate),
}

/// This server as a candidate at a coordinator.
pub(super) struct Candidate {
    coordinator: Arc<dyn Coordinator>,
    campaign: Campaign,
}

/// The time in which this server is elected. Dropping it ends it too, but the next server may have to wait for the end
/// of the lease.
pub(super) enum Term<'e> {
    Store { engine: &'e Engine, clock: &'e (dyn Clock + Send + Sync) },
    Leader(Leader),
}

/// Makes the coordinator and the campaign of these settings, without connecting. `None` = the store elects.
///
/// # Errors
/// When the coordinator is not in this build, or does not support the name or the lease.
pub(super) fn candidate(settings: &LeaderSettings) -> Result<Option<Candidate>, CoordinatorError> {
    let LeaderSettings::Coordinator { url, name, lease } = settings else { return Ok(None) };
    let coordinator = connect(url.as_str())?;
    let campaign = Campaign::new(name, default_name(), Duration::from_millis(lease.ms));
    coordinator.check(&campaign)?;
    Ok(Some(Candidate { coordinator, campaign }))
}

impl Election {
    /// The election of these settings. If the store elects, this server is a candidate from now on.
    ///
    /// # Errors
    /// As [`candidate`].
    pub(super) fn new(settings: &LeaderSettings, app: &App) -> Result<Self, CoordinatorError> {
        Ok(match candidate(settings)? {
            Some(candidate) => Self::Coordinator(candidate),
            None => {
                app.engine.request_intake();
                Self::Store { engine: app.engine.clone(), clock: app.clock.clone() }
            }
        })
    }

    /// Waits until this server is elected. Dropping the future ends the campaign.
    pub(super) async fn won(&self) -> Term<'_> {
        match self {
            Self::Store { engine, clock } => {
                let term = Term::Store { engine, clock: &**clock };
                while term.is_at_risk() {
                    time::sleep(LOOK_EVERY).await;
                }
                tracing::info!("elected by the store");
                term
            }
            Self::Coordinator(candidate) => Term::Leader(candidate.elected().await),
        }
    }

    /// Waits for the next answer of the coordinator, or its failure. Waits for ever if the store elects: an alarm about the
    /// store could not be stored.
    pub(super) async fn answer(&self) -> Result<(), CoordinatorError> {
        let Self::Coordinator(Candidate { coordinator, campaign }) = self else { return pending().await };
        time::sleep(ASK_EVERY).await;
        coordinator.leader(&campaign.name).await.map(drop)
    }

    /// The name of the coordinator.
    pub(super) fn by(&self) -> &str {
        match self {
            Self::Store { .. } => "the store",
            Self::Coordinator(candidate) => candidate.coordinator.name(),
        }
    }
}

impl Candidate {
    async fn elected(&self) -> Leader {
        let Self { coordinator, campaign } = self;
        loop {
            match Leader::campaign(&**coordinator, campaign).await {
                Ok(leader) => return leader,
                Err(error) => {
                    let (coordinator, name) = (coordinator.name(), &campaign.name);
                    tracing::error!(coordinator, name, %error, "cannot campaign; retrying");
                    time::sleep(REFUSED_PAUSE).await;
                }
            }
        }
    }
}

impl Term<'_> {
    /// Waits until the reader must begin to stop: no renewal has succeeded for too long, or the term has ended.
    pub(super) async fn at_risk(&self) {
        match self {
            Self::Store { .. } => {
                while !self.is_at_risk() {
                    time::sleep(LOOK_EVERY).await;
                }
            }
            Self::Leader(leader) => leader.at_risk().await,
        }
    }

    fn is_at_risk(&self) -> bool {
        match self {
            Self::Store { engine, clock } => {
                let now = clock.now();
                let until = engine.leads_intake_until(now);
                until.is_none_or(|until| now.mono.0 + STOPS_BEFORE.0 >= until.0)
            }
            Self::Leader(leader) => leader.term().is_at_risk(),
        }
    }

    /// When the reader must have stopped. Nobody else is elected before.
    pub(super) fn stops_at(&self) -> Instant {
        match self {
            Self::Store { engine, clock } => {
                let now = clock.now();
                let until = engine.leads_intake_until(now).unwrap_or(now.mono);
                Instant::now() + Duration::from_millis(until.0.saturating_sub(now.mono.0))
            }
            Self::Leader(leader) => leader.term().ends_work_at(),
        }
    }

    /// Ends the term, so that the next server is elected at once. The lease of the store stays with this server until it
    /// ends or renews no longer: it gives its leases back when it ends.
    pub(super) async fn resign(self) {
        let Self::Leader(leader) = self else { return };
        if let Err(error) = leader.resign().await {
            tracing::warn!(%error, "cannot resign: the next server is elected when the lease is over");
        }
    }
}
