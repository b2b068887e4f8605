//! The chores of the project, as `cargo xtask CHORE`: one file per chore.
//!
//! `ci` is all of them in a row, and what `.ci/run` starts on a fresh machine. A chore that finds something prints
//! every finding, where it is and what to do, and ends with 1.

mod ci;
mod dependencies;
mod drill;
mod edges;
mod findings;
mod instructions;
mod lanes;
mod metadata;
mod package;
mod shellcheck;
mod sim;
mod site;
mod skipped;
mod soak;
mod style;
mod tally;
mod tests;
mod workspace;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use workspace::Workspace;

/// Chores of the Windlass project.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Clone, Subcommand)]
enum Chore {
    /// Everything that must pass before a change lands
    Ci {
        /// Only this part; may be given again
        #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(ci::names()))]
        part: Vec<String>,
    },
    /// Check which crate uses which
    Edges,
    /// Check sizes of files, links, the code map, lints and words
    Style {
        /// Write fewer unwanted phrases down in xtask/voice.toml instead
        #[arg(long)]
        bless: bool,
    },
    /// Build the documentation as a site of HTML pages that need no server
    Site {
        /// Folder to write to; it is replaced
        #[arg(long, value_name = "FOLDER", default_value = "target/site")]
        out: PathBuf,
        /// Address of the repository, for links to its sources, such as https://HOST/OWNER/NAME/blob/main
        #[arg(long, value_name = "URL")]
        repository: Option<String>,
    },
    /// Build the Debian package; needs dpkg-deb
    Package {
        /// Folder to write to
        #[arg(long, value_name = "FOLDER", default_value = "target/package")]
        out: PathBuf,
        /// Build an unoptimised program, install its package in a folder, start the server, and remove it again
        #[arg(long)]
        check: bool,
    },
    /// Check licences, bans and sources of the dependencies against deny.toml
    Dependencies,
    /// Check the shell scripts
    Shellcheck,
    /// Count instructions of small pieces with valgrind and compare them with bench/instructions.toml
    Instructions {
        /// Write the counts to the file instead
        #[arg(long)]
        bless: bool,
    },
    /// Run the real engine in deterministic worlds that fail; `--help` says how many and which
    #[command(disable_help_flag = true)]
    Sim {
        /// Arguments of the simulator
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Do something bad to real processes and count what came of it
    Drill {
        /// Which drill
        #[arg(value_parser = clap::builder::PossibleValuesParser::new(drill::names()))]
        name: String,
        /// The long form, some minutes, with an optimised build
        #[arg(long)]
        long: bool,
        /// `servers` and `database-away` on this database only; without it, on each
        #[arg(long, value_enum)]
        store: Option<drill::Database>,
        /// `broker-kill`, `broker-wipe` and `broker-server-kill` on this broker only
        #[arg(long, value_enum)]
        broker: Option<drill::Broker>,
        /// `leader-kill` on this coordinator only
        #[arg(long, value_enum)]
        coordinator: Option<drill::Coordinator>,
        /// The program that servers and workers run (`power-cut`: `windlass-powercut`); without it, one that is built now
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
    },
    /// Run every drill in its long form, then the simulator for an hour
    Soak(soak::SoakArgs),
    /// The worker of the drills; they start it themselves
    #[command(hide = true)]
    DrillHand(drill::HandArgs),
}

fn main() -> ExitCode {
    match run(Cli::parse().chore) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(chore: Chore) -> anyhow::Result<()> {
    let workspace = Workspace::of_this_crate();
    match chore {
        Chore::Ci { part } => ci::run(workspace, &part),
        Chore::Edges => edges::check(&workspace)?.into_result(),
        Chore::Style { bless: true } => style::bless(&workspace),
        Chore::Style { bless: false } => style::check(&workspace)?.into_result(),
        Chore::Site { out, repository } => site::build(&workspace, &out, repository.as_deref()),
        Chore::Package { check: true, .. } => package::check(&workspace, &workspace.build_full(&[])?),
        Chore::Package { out, check: false } => {
            let program = workspace.build_full(&["--release"])?;
            println!("{}", package::build(&workspace, &program, &out, package::Compression::Xz)?.display());
            Ok(())
        }
        Chore::Dependencies => dependencies::check(&workspace),
        Chore::Shellcheck => shellcheck::check(&workspace)?.into_result(),
        Chore::Instructions { bless: true } => instructions::bless(&workspace),
        Chore::Instructions { bless: false } => instructions::check(&workspace)?.into_result(),
        Chore::Sim { arguments } => sim::run(&workspace, &arguments),
        Chore::Drill { name, long, store, broker, coordinator, program } => {
            let length = if long { drill::Length::Long } else { drill::Length::Short };
            let on = drill::On { database: store, broker, coordinator };
            drill::run_on(&workspace, program, &name, length, on)
        }
        Chore::Soak(args) => soak::run(&workspace, &args),
        Chore::DrillHand(args) => drill::run_hand(&args),
    }
}
