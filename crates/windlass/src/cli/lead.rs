//! `windlass lead` and `windlass leader`: one leader of a name.

use std::{
    env,
    ffi::OsString,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{ExitCode, ExitStatus},
};

use clap::Args;
use rustix::process::Signal;
use serde_json::json;
use windlass_client::coordinators::Campaign;

use super::{
    connection::ConnectionArgs,
    coordinator::{CampaignArgs, CoordinatorArgs, VARIABLES},
    exit::{Exit, UsageError},
    logging::LogArgs,
    output::table::Table,
    signals::StopSignals,
};
use crate::lead::{End, Lead};

/// What shells add to the number of a signal that ended a command.
const SIGNALLED: i32 = 128;

/// What to run while leading.
#[derive(Debug, Args)]
pub(crate) struct LeadArgs {
    /// Name: one of its candidates leads at a time; may have slashes, such as billing/nightly
    name: String,

    #[command(flatten)]
    coordinator: CoordinatorArgs,

    #[command(flatten)]
    campaign: CampaignArgs,

    /// When leadership is lost, stand by and run the command again when elected, in place of exiting with 12
    #[arg(long)]
    restart: bool,

    #[command(flatten)]
    pub(super) log: LogArgs,

    /// The command, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Whose leader to show.
#[derive(Debug, Args)]
pub(crate) struct LeaderArgs {
    /// Name that candidates campaign for
    name: String,

    #[command(flatten)]
    coordinator: CoordinatorArgs,
}

impl LeadArgs {
    /// Runs the command while leading. The exit code is that of the command.
    pub(crate) async fn run(self, connection: &ConnectionArgs) -> anyhow::Result<ExitCode> {
        let coordinator = self.coordinator.open(connection)?;
        let campaign = self.campaign.campaign(self.name);
        coordinator.check(&campaign)?;
        let mut words = self.command.into_iter();
        let program = words.next().unwrap_or_default();
        if !is_there(Path::new(&program)) {
            let program = program.display();
            return Err(UsageError(format!("cannot run {program}: there is no such command")).into());
        }
        let signals = StopSignals::listen()?;
        let withheld = VARIABLES.map(OsString::from).to_vec();
        let arguments = words.collect();
        let restarts = self.restart;
        let lead = Lead { coordinator, campaign, program: program.into(), arguments, withheld, restarts };
        Ok(match lead.run(signals).await? {
            End::Exited(status) => ExitCode::from(code(status)),
            End::Lost(_) => Exit::LeadershipLost.into(),
            End::Signalled(signal) => ExitCode::from(of_signal(signal)),
        })
    }
}

/// The exit code of a shell for a command that ended like this.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| SIGNALLED + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(Exit::Failed as u8)
}

fn of_signal(signal: Signal) -> u8 {
    u8::try_from(SIGNALLED + signal.as_raw()).unwrap_or(Exit::Failed as u8)
}

/// Whether there is such a file, or in a folder of `PATH` if it has no slash.
fn is_there(program: &Path) -> bool {
    if program.components().count() != 1 || program.has_root() {
        return program.is_file();
    }
    let paths = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&paths).any(|folder| folder.join(program).is_file())
}

impl LeaderArgs {
    /// Shows the leader, if there is one.
    pub(crate) async fn run(self, connection: &ConnectionArgs) -> anyhow::Result<Exit> {
        let coordinator = self.coordinator.open(connection)?;
        Campaign::check_name(&self.name)?;
        let leader = coordinator.leader(&self.name).await?;
        let Some(leader) = leader else {
            eprintln!("windlass: nobody leads {}", self.name);
            return Ok(Exit::NotFound);
        };
        let document = json!({
            "name": self.name,
            "id": leader.id,
            "fence": leader.fence,
            "value": leader.value,
        });
        connection.output().show(&document, |_, style| {
            let mut table = Table::new(["LEADER", "FENCE", "VALUE"]);
            table.row([(&leader.id).into(), (&leader.fence.to_string()).into(), (&leader.value).into()]);
            table.text(style)
        })?;
        Ok(Exit::Done)
    }
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    #[test]
    fn a_command_line_has_a_name_and_a_command() {
        let parse = |line: &str| crate::cli::command().try_get_matches_from(line.split(' ')).map(drop);
        for line in [
            "windlass lead a/b --coordinator etcd://h --lease 5s --id me --value v --restart -- sh -c true",
            "windlass leader a/b --coordinator consul://h -o json",
        ] {
            parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
        for (line, kind) in [
            ("windlass lead a --coordinator etcd://h", ErrorKind::MissingRequiredArgument),
            ("windlass lead a sh", ErrorKind::UnknownArgument),
            ("windlass lead a --lease soon -- sh", ErrorKind::ValueValidation),
        ] {
            assert_eq!(parse(line).expect_err(line).kind(), kind, "{line}");
        }
    }

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        // As the kernel reports them: the code is in the second byte, a signal in the first.
        for (raw, expected) in [(0, 0), (3 << 8, 3), (255 << 8, 255), (9, 137), (15, 143)] {
            assert_eq!(code(ExitStatus::from_raw(raw)), expected);
        }
        assert_eq!(of_signal(Signal::INT), 130);
    }

    #[test]
    fn a_command_is_looked_up_before_it_is_needed() {
        assert!(is_there(Path::new("sh")) && is_there(Path::new("/bin/sh")));
        for wrong in ["", "no-such-command-here", "/bin/no-such", "./sh", "/bin"] {
            assert!(!is_there(Path::new(wrong)), "{wrong}");
        }
    }
}
