//! `windlass lead`: runs a command only while this process leads.
//!
//! The command runs in its own process group, below the stub and beside the guard of [`crate::modules`]. The
//! guard gets each new deadline of the leadership, and ends the command when the next one does not come in
//! time. So the command ends in time even when this process is stopped, hangs or is killed.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use rustix::process::Signal;
use tokio::process::Child;
use windlass_client::Leader;
use windlass_client::coordinators::{Campaign, Coordinator};

use crate::cli::StopSignals;
use crate::modules::{CommandLine, Deadline, Group, Spawner, hide_from_commands, this_program};

/// The settings of `windlass lead`.
pub(crate) struct Lead {
    pub(crate) coordinator: Arc<dyn Coordinator>,
    pub(crate) campaign: Campaign,
    /// The executable of the command; without a slash it is looked up in `PATH`.
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    /// Variables of this process that the command does not inherit.
    pub(crate) withheld: Vec<OsString>,
    /// Whether to campaign again when leadership is lost.
    pub(crate) restarts: bool,
}

/// How it ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The command ended by itself, or after a signal that was passed on.
    Exited(ExitStatus),
    /// Leadership was lost, and the command ended because of that. A signal that was passed on before, if one came.
    Lost(Option<Signal>),
    /// A signal came while no command ran.
    Signalled(Signal),
}

impl Lead {
    /// Campaigns, and runs the command when elected.
    ///
    /// # Errors
    /// When the coordinator permanently refuses the campaign, or processes cannot be started.
    pub(crate) async fn run(self, mut signals: StopSignals) -> anyhow::Result<End> {
        hide_from_commands();
        let spawner = Spawner::start(this_program()?).context("cannot start the guard of the command")?;
        loop {
            let mut signal = None;
            let withdrawn = async { signal = Some(signals.next().await) };
            let elected = Leader::campaign_until(&*self.coordinator, &self.campaign, withdrawn).await?;
            if let Some(signal) = signal {
                // It may have been elected at the same time.
                if let Some(leader) = elected {
                    self.resign(leader).await;
                }
                return Ok(End::Signalled(signal));
            }
            let Some(leader) = elected else { continue };
            let (end, is_gone) = self.run_command(&spawner, &leader, &mut signals).await;
            if is_gone {
                self.resign(leader).await;
            } else {
                tracing::warn!(
                    "processes of the command are still there: the next candidate leads when the lease is over"
                );
            }
            match end.context("cannot run the command")? {
                End::Lost(None) if self.restarts => tracing::info!("standing by"),
                end => return Ok(end),
            }
        }
    }

    /// Runs the command until it has ended. Returns how, and whether all of its processes have gone.
    async fn run_command(
        &self,
        spawner: &Spawner,
        leader: &Leader,
        signals: &mut StopSignals,
    ) -> (io::Result<End>, bool) {
        spawner.set_deadline(Deadline::of(leader.term()));
        let (child, group) = match spawner.spawn(self.command_line(leader.fence())).await {
            Ok(started) => started,
            Err(error) => return (Err(error), true),
        };
        let end = self.see_through(spawner, leader, signals, child, &group).await;
        // What the command left behind must not outlive leadership, whatever its group.
        group.kill_all();
        (end, group.is_gone().await)
    }

    /// Lets a started command run, and waits for its end.
    async fn see_through(
        &self,
        spawner: &Spawner,
        leader: &Leader,
        signals: &mut StopSignals,
        mut child: Child,
        group: &Group,
    ) -> io::Result<End> {
        let mut term = leader.term().clone();
        let mut guarded_until = Deadline::term_at(&term);
        // This process may have been stopped since it was elected.
        if term.is_at_risk() {
            return Ok(End::Lost(None));
        }
        // The guard has been given the group: the command may start. Its input is empty.
        drop(child.stdin.take());
        let (mut stops, mut is_killed, mut asked) = (false, false, None);
        let status = loop {
            tokio::select! {
                status = child.wait() => break status?,
                () = leader.lost(), if !is_killed => {
                    tracing::warn!("leadership is lost: killing the command");
                    (stops, is_killed) = (true, true);
                    group.kill_all();
                }
                // The guard sends both signals if this process is stopped.
                () = leader.at_risk(), if !stops => {
                    tracing::warn!("no renewal succeeded for two thirds of the time: the command gets SIGTERM");
                    stops = true;
                    spawner.set_deadline(Deadline::last_of(&term));
                    group.signal(Signal::TERM);
                }
                _ = term.changed(), if !stops => {
                    // After that time the guard has sent SIGTERM.
                    stops = Instant::now() >= guarded_until;
                    if !stops {
                        guarded_until = Deadline::term_at(&term);
                        spawner.set_deadline(Deadline::of(&term));
                    }
                }
                signal = signals.next() => {
                    let sent = if asked.is_some() { Signal::KILL } else { signal };
                    tracing::info!(signal = sent.as_raw(), "passing a signal on to the command");
                    asked.get_or_insert(signal);
                    group.signal(sent);
                }
            }
        };
        if stops || Instant::now() >= guarded_until {
            tracing::warn!(%status, "the command ended because leadership was lost");
            return Ok(End::Lost(asked));
        }
        Ok(End::Exited(status))
    }

    fn command_line(&self, fence: u64) -> CommandLine {
        CommandLine {
            path: self.program.clone(),
            arguments: self.arguments.clone(),
            folder: None,
            is_read: false,
            unset: self.withheld.clone(),
            set: vec![
                ("WINDLASS_FENCE", fence.to_string()),
                ("WINDLASS_LEADER_NAME", self.campaign.name.clone()),
            ],
        }
    }

    /// Lets the next candidate lead at once.
    async fn resign(&self, leader: Leader) {
        if let Err(error) = leader.resign().await {
            tracing::warn!(%error, "cannot resign: the next candidate leads when the lease is over");
        }
    }
}
