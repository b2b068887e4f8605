//! The command line: one file per family of commands.
//!
//! Commands that connect to a server use only `windlass-client`, so they can do no more than any other
//! program. Their output goes through [`output`]; [`exit`] maps their errors to exit codes.

mod about;
mod alarm;
mod audit;
mod bench;
mod calls;
mod connection;
mod coordinator;
mod dev;
mod device;
mod doctor;
mod exit;
mod flow;
mod lead;
mod limit;
mod lock;
mod logging;
pub(crate) mod malformed;
mod output;
mod params;
mod queue;
mod rollout;
mod server;
mod signals;
mod store;
mod task;
mod token;
mod trigger;
mod usage;
mod worker;

use std::{io, process::ExitCode};

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use windlass_client::Error as ClientError;

use connection::ConnectionArgs;
pub(crate) use connection::read_secret;
pub(crate) use coordinator::LEASE_DEFAULT;
use exit::{Exit, is_broken_pipe};
use logging::LogArgs;
use server::{ServerAction, ServerCommand};
pub(crate) use signals::StopSignals;

use crate::config;

/// The program.
#[derive(Debug, Parser)]
#[command(
    name = "windlass",
    version,
    about = "A durable engine for multi-step asynchronous tasks",
    after_help = "Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 conflict, 5 server unreachable; \
                  having waited for a task: 0 succeeded, 10 rolled back, failed or cancelled, 11 stuck; \
                  12 leadership lost.",
    arg_required_else_help = true,
    disable_help_subcommand = true,
    infer_subcommands = false
)]
struct Cli {
    #[command(flatten)]
    connection: ConnectionArgs,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// See it work: real steps, one task that succeeds, one that is rolled back, one that loses its worker
    Demo,
    /// Flows: check, apply and show definitions
    #[command(subcommand)]
    Flow(flow::FlowCommand),
    /// Tasks: start, watch and control them
    #[command(subcommand)]
    Task(task::TaskCommand),
    /// Queues: the work of each module
    #[command(subcommand)]
    Queue(queue::QueueCommand),
    /// Limits: how many attempts of a queue may run concurrently, or start in a span of time
    #[command(subcommand)]
    Limit(limit::LimitCommand),
    /// Run a server and a worker in one process, for development
    Dev(dev::DevArgs),
    /// Run a server, or list those on the store
    Server(ServerCommand),
    /// Run the commands of module folders, or list the connected workers
    Worker(worker::WorkerArgs),
    /// Run a command only while this process leads, one process at a time
    Lead(lead::LeadArgs),
    /// Show who leads
    Leader(lead::LeaderArgs),
    /// The earlier spelling of `worker list`
    #[command(hide = true)]
    WorkerList,
    /// The earlier spelling of `server list`
    #[command(hide = true, alias = "servers")]
    ServerList,
    /// Locks: their holders and waiters
    #[command(subcommand)]
    Lock(lock::LockCommand),
    /// Devices: declarations, presence, and the tasks that have them or wait for them
    #[command(subcommand)]
    Device(device::DeviceCommand),
    /// Rollouts: a flow for each device of a fleet, a few at a time
    #[command(subcommand)]
    Rollout(rollout::RolloutCommand),
    /// Triggers: schedules and requests that start tasks
    #[command(subcommand)]
    Trigger(trigger::TriggerCommand),
    /// Access tokens: who may do what
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// The audit log: who changed what
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Alarms: problems that need an operator
    #[command(subcommand)]
    Alarm(alarm::AlarmCommand),
    /// Measure the speed on this machine
    Bench(bench::BenchArgs),
    /// Write the whole store into a file
    Export(store::export::TransferArgs),
    /// Read an export into an empty store
    Import(store::export::TransferArgs),
    /// Bring the tables of a store to the version of this program
    Migrate(store::migrate::MigrateArgs),
    /// Read a whole store and report problems
    Doctor(doctor::DoctorArgs),
    /// Print the OpenAPI document of the HTTP interface
    Openapi,
    /// Print a completion script for a shell
    Completions(about::completions::CompletionsArgs),
    /// Write manual pages for packages
    Man(about::man::ManArgs),
}

impl Command {
    /// The options of the log, for a command that writes one.
    fn log(&self) -> Option<LogArgs> {
        match self {
            Self::Dev(args) => Some(args.log),
            Self::Server(ServerCommand { action: None, args }) => Some(args.log),
            Self::Worker(args) if args.list.is_none() => Some(args.log),
            Self::Lead(args) => Some(args.log),
            _ => None,
        }
    }
}

/// Options of the connection to a server.
const CONNECTION: &[&str] = &["server", "token", "token_file", "ca_file", "client_cert", "client_key"];

/// Commands that use only some of the global options: the options of the connection that their help leaves out, and
/// whether it has `--output`.
const NOT_FOR: &[(&str, &[&str], bool)] = &[
    ("bench", CONNECTION, true),
    ("completions", CONNECTION, false),
    ("demo", CONNECTION, false),
    ("dev", CONNECTION, false),
    ("doctor", CONNECTION, true),
    ("export", CONNECTION, false),
    ("import", CONNECTION, false),
    ("lead", &["server"], false),
    ("leader", &["server"], true),
    ("man", CONNECTION, false),
    ("migrate", CONNECTION, true),
    ("openapi", CONNECTION, false),
    ("server", CONNECTION, false),
    ("worker", &[], false),
];

/// Runs the program with the arguments of the process.
#[must_use]
pub fn run() -> ExitCode {
    let cli = match Cli::from_arg_matches(&usage::matches()) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    let log = cli.command.log();
    let ended = log.map_or(Ok(()), start_log).and_then(|()| execute(cli));
    ended.unwrap_or_else(|error| {
        match log {
            Some(log) if log.is_json() => logging::log_last_error(&describe(&error), hint(&error)),
            _ => report(&error),
        }
        Exit::of_error(&error).into()
    })
}

/// The complete command line, as clap defines it.
fn command() -> clap::Command {
    command_of(std::convert::identity)
}

/// The same with a change to the definition, before clap gives the global options to all commands.
fn command_of(change: impl FnOnce(clap::Command) -> clap::Command) -> clap::Command {
    let mut command = change(Cli::command());
    command.build();
    for (name, options, has_output) in NOT_FOR {
        let is_unused = |id: &str| options.contains(&id) || id == "format" && !has_output;
        command = command.mut_subcommand(name, |command| {
            command.mut_args(|arg| if is_unused(arg.get_id().as_str()) { arg.hide(true) } else { arg })
        });
    }
    command
}

fn execute(cli: Cli) -> anyhow::Result<ExitCode> {
    let connection = &cli.connection;
    let exit = match cli.command {
        Command::Lead(args) => return block_on(args.run(connection)),
        Command::Leader(args) => block_on(args.run(connection)),
        Command::Demo => block_on(async { crate::demo::run().await.map(|()| Exit::Done) }),
        Command::Flow(command) => block_on(command.run(connection)),
        Command::Task(command) => block_on(command.run(&connection.open()?)),
        Command::Queue(command) => block_on(command.run(&connection.open()?)),
        Command::Limit(command) => block_on(command.run(&connection.open()?)),
        Command::Dev(args) => block_on(args.run()),
        Command::Server(ServerCommand { action: None, args }) => block_on(args.run()),
        Command::Server(ServerCommand { action: Some(ServerAction::Schema), .. }) => {
            output::write(&config::schema())?;
            Ok(Exit::Done)
        }
        Command::Server(ServerCommand { action: Some(ServerAction::List), .. }) | Command::ServerList => {
            block_on(server::list::run(&connection.open()?))
        }
        Command::Worker(args) if args.list.is_none() => block_on(args.run(connection)),
        Command::Worker(_) | Command::WorkerList => block_on(worker::list::run(&connection.open()?)),
        Command::Lock(command) => block_on(command.run(&connection.open()?)),
        Command::Device(command) => block_on(command.run(&connection.open()?)),
        Command::Rollout(command) => block_on(command.run(&connection.open()?)),
        Command::Trigger(command) => block_on(command.run(&connection.open()?)),
        Command::Token(command) => block_on(command.run(&connection.open()?)),
        Command::Audit(command) => block_on(command.run(&connection.open()?)),
        Command::Alarm(command) => block_on(command.run(&connection.open()?)),
        Command::Bench(args) => block_on(args.run(&connection.output())),
        Command::Export(args) => block_on(args.export()),
        Command::Import(args) => block_on(args.import()),
        Command::Migrate(args) => block_on(args.run(connection.format)),
        Command::Doctor(args) => block_on(args.run(connection.format)),
        Command::Openapi => about::openapi::run(),
        Command::Completions(args) => args.run(),
        Command::Man(args) => args.run(),
    };
    exit.map(ExitCode::from)
}

/// Starts the log of a command that has one.
fn start_log(log: LogArgs) -> anyhow::Result<()> {
    log.start()?;
    usage::misspelt_variables().iter().for_each(|line| tracing::warn!("{line}"));
    Ok(())
}

/// Runs a client command to its end: one thread is enough.
fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future)
}

/// Prints an error and a hint to standard error.
fn report(error: &anyhow::Error) {
    if is_broken_pipe(error) {
        return;
    }
    eprintln!("windlass: {}", describe(error));
    if let Some(hint) = hint(error) {
        eprintln!("hint: {hint}");
    }
    // A misspelt variable may be why no server answers, or why the token is refused.
    let may_lack_a_setting = match error.downcast_ref::<ClientError>() {
        Some(ClientError::Unreachable { .. }) => true,
        Some(ClientError::Refused(problem)) => problem.status == 401,
        _ => false,
    };
    if may_lack_a_setting {
        usage::misspelt_variables().iter().for_each(|line| eprintln!("hint: {line}"));
    }
}

/// An error on one line: the action and the cause.
fn describe(error: &anyhow::Error) -> String {
    match error.downcast_ref::<ClientError>() {
        Some(ClientError::Refused(_)) => calls::as_commands(&chain(error)),
        _ => chain(error),
    }
}

/// An error and its causes on one line.
fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        // Some errors already contain their cause in their own text.
        if !text.ends_with(&cause) {
            text = if text.is_empty() { cause } else { format!("{text}: {cause}") };
        }
    }
    text
}

/// Advice that the program can give beyond the error itself.
fn hint(error: &anyhow::Error) -> Option<&'static str> {
    if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::AddrInUse) {
        return Some(
            "another program, perhaps a server, already listens there: stop it, or choose another address with \
             --listen; port 0 takes a free one",
        );
    }
    match error.downcast_ref::<ClientError>()? {
        // It says itself what to do.
        ClientError::Unreachable { source, .. } if source.is::<windlass_tls::Refused>() => None,
        ClientError::Unreachable { .. } => {
            Some("start a server with `windlass dev`, or name another with --server or WINDLASS_SERVER")
        }
        ClientError::Refused(problem) if problem.status == 401 => Some(
            "give a valid token with WINDLASS_TOKEN, --token or --token-file; an admin creates one with `windlass token create`",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;
    use insta::assert_snapshot;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        let matches = command().try_get_matches_from(line.split_whitespace())?;
        Cli::from_arg_matches(&matches)
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_says_what_it_does() {
        fn check(command: &clap::Command) {
            assert!(command.get_about().is_some(), "{} has no text", command.get_name());
            command.get_subcommands().for_each(check);
            for arg in command.get_arguments() {
                assert!(arg.get_help().is_some(), "{} of {} has no text", arg.get_id(), command.get_name());
            }
        }
        check(&command());
    }

    #[test]
    fn help_lists_the_commands() {
        let help = parse("windlass task --help").unwrap_err().to_string();
        let commands = help.split("\n\n").find(|part| part.starts_with("Commands:")).unwrap();
        assert_snapshot!(commands, @"
        Commands:
          start    Start a task; prints its id
          list     List tasks, newest first
          show     Show a task and its steps, or the items of one step
          watch    Show the steps of a task live, or its events on a pipe, until it ends or is stuck
          wait     Wait until each of the tasks has ended or is stuck; the exit code reports the result
          events   Print the events of a task
          logs     Print the log lines of a task's attempts
          why      Explain why a task is in its current state
          cancel   Cancel tasks, by id or filter: steps that may have had effects are rolled back
          pause    Pause tasks, by id or filter: no step starts, running steps finish or are stopped
          resume   Resume paused tasks, by id or filter
          rerun    Run an ended task again, from one of its steps; prints the id of the new task
          resolve  Decide how a stuck or held step continues
          signal   Send a signal that a step waits for
        ");
    }

    #[test]
    fn errors_say_each_thing_once() {
        let cause = std::io::Error::other("no such folder");
        let error = anyhow::Error::from(cause).context("cannot read it: no such folder").context("worker");
        assert_eq!(describe(&error), "worker: cannot read it: no such folder");
        let unreachable =
            ClientError::Unreachable { server: "http://h".to_owned(), source: "refused".into() };
        let error = anyhow::Error::from(unreachable);
        assert_eq!(describe(&error), "no server answers at http://h: refused");
        assert!(hint(&error).unwrap().contains("windlass dev"));
    }

    #[test]
    fn help_of_a_local_command_names_no_server() {
        for (name, options, has_output) in NOT_FOR {
            let help = parse(&format!("windlass {name} --help")).unwrap_err().to_string();
            for option in *options {
                let flag = format!("--{} ", option.replace('_', "-"));
                assert!(!help.contains(&flag), "{help}");
            }
            assert_eq!(help.contains("--output "), *has_output, "{help}");
            // A text about an option that the help leaves out.
            assert!(help.contains("--token ") || !help.contains("--token"), "{help}");
        }
        assert!(parse("windlass task list --help").unwrap_err().to_string().contains("--server "));
    }

    #[test]
    fn a_token_in_the_environment_is_never_printed() {
        let help = command().find_subcommand_mut("queue").unwrap().render_long_help().to_string();
        assert!(help.contains("[env: WINDLASS_TOKEN]"), "{help}");
    }

    #[test]
    fn options_of_the_server_go_anywhere() {
        for line in [
            "windlass --server http://10.0.0.1:80 -o json task show 1",
            "windlass task --server http://10.0.0.1:80 -o json show 1",
            "windlass task show 1 --server http://10.0.0.1:80 -o json",
        ] {
            let cli = parse(line).unwrap();
            assert_eq!(cli.connection.server.as_deref(), Some("http://10.0.0.1:80"));
            assert_eq!(cli.connection.format, output::Format::Json);
        }
    }

    #[test]
    fn command_lines_that_are_understood() {
        for line in [
            "windlass task start create -p a=1 -p b=x --params - --key k --at +15m --priority -3 --label a=b --wait",
            "windlass task list --status rolled_back --flow f --label a=b --since 15m --until 1m --limit 5 --cursor c",
            "windlass task list --idempotency-key k --unique-key u -p size=3 --param a.b=c --all",
            "windlass task list --status stuck --count",
            "windlass task resolve ID step done --params {\"a\":1}",
            "windlass task resolve ID step retry -p size=3",
            "windlass task signal ID approved -p by=me --now",
            "windlass task start create --deadline 2h",
            "windlass task wait a b",
            "windlass task show ID --items resize",
            "windlass task rerun ID --from init -p size=2 --key k",
            "windlass task cancel a b c",
            "windlass task events ID -f",
            "windlass flow show create@3",
            "windlass flow apply a.yaml b.toml",
            "windlass alarm list --all",
            "windlass device apply a.yaml b.json",
            "windlass device list --label site=nord --label model= --offline",
            "windlass device log press-1 --limit 5",
            "windlass device remove press-1 --force",
            "windlass rollout start fleet.yaml",
            "windlass rollout start valves --flow f --label site=nord --per-minute 5 --max-running 9 --rollback -p v=2",
            "windlass rollout abort valves --reason broken",
            "windlass trigger apply a.yaml b.toml",
            "windlass trigger fire nightly -p a=1",
            "windlass trigger history nightly --limit 5",
            "windlass worker --modules DIR --module a --module b --concurrency 4 --name w --server http://h",
            "windlass worker --modules DIR --broker redis://h --results done --queue mysql=db --queue-kind list",
            "windlass worker list",
            "windlass worker list --server http://h -o json",
            "windlass server list -o json",
            // Earlier spellings.
            "windlass worker-list",
            "windlass server-list",
            "windlass servers -o json",
            "windlass export --store sqlite:a.db a.export",
            "windlass import --store postgres://h/d -",
            "windlass migrate --store sqlite:a.db --check",
            "windlass completions bash",
        ] {
            parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }

    #[test]
    fn command_lines_that_are_refused() {
        for (line, kind) in [
            ("windlass task start", ErrorKind::MissingRequiredArgument),
            ("windlass task start f -p novalue", ErrorKind::ValueValidation),
            ("windlass task start f --at 15m", ErrorKind::ValueValidation),
            ("windlass task start f --priority 11", ErrorKind::ValueValidation),
            ("windlass task list --status done", ErrorKind::InvalidValue),
            ("windlass task resolve id step", ErrorKind::TooFewValues),
            ("windlass task resolve id step done --params [1]", ErrorKind::ValueValidation),
            ("windlass task wait", ErrorKind::MissingRequiredArgument),
            ("windlass task start f --deadline soon", ErrorKind::ValueValidation),
            ("windlass flow show f@x", ErrorKind::ValueValidation),
            ("windlass worker", ErrorKind::MissingRequiredArgument),
            ("windlass worker --modules d --concurrency 0", ErrorKind::ValueValidation),
            ("windlass worker --modules d --results r", ErrorKind::MissingRequiredArgument),
            ("windlass worker --modules d --broker redis://h --queue mysql", ErrorKind::ValueValidation),
            ("windlass devices list", ErrorKind::InvalidSubcommand),
            ("windlass device list --label site", ErrorKind::ValueValidation),
            ("windlass device list --online --offline", ErrorKind::ArgumentConflict),
            ("windlass device unlock press-1", ErrorKind::MissingRequiredArgument),
            ("windlass rollout start valves --label site=nord", ErrorKind::MissingRequiredArgument),
        ] {
            let error = parse(line).expect_err(line);
            assert_eq!(error.kind(), kind, "{line}: {error}");
            assert_eq!(error.exit_code(), 2);
        }
    }
}
