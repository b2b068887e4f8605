//! The long search: every drill in its long form, then the simulator for an hour. For people, before a release or
//! after a change to what all the rest stands on; it takes hours and wants the machine for itself.

use clap::Args;

use crate::{
    drill::{self, Length},
    sim,
    tally::Tally,
    workspace::Workspace,
};

/// How long a soak is.
#[derive(Debug, Clone, Args)]
pub(crate) struct SoakArgs {
    /// For how many minutes the simulator runs; 0 = not at all
    #[arg(long, default_value_t = 60)]
    minutes: u32,
    /// The drills in their short form
    #[arg(long)]
    short: bool,
    /// Without this drill; may be given again
    #[arg(long, value_name = "DRILL", value_parser = clap::builder::PossibleValuesParser::new(drill::names()))]
    skip: Vec<String>,
}

/// Runs all of it. What fails does not stop the rest.
pub(crate) fn run(workspace: &Workspace, args: &SoakArgs) -> anyhow::Result<()> {
    let length = if args.short { Length::Short } else { Length::Long };
    let mut tally = Tally::default();
    for name in drill::names().into_iter().filter(|name| !args.skip.iter().any(|skipped| skipped == name)) {
        tally.run(name, || drill::run(workspace, name, length));
    }
    if args.minutes > 0 {
        tally.run("simulation", || {
            sim::run(workspace, &["--fresh".to_owned(), "--minutes".to_owned(), args.minutes.to_string()])
        });
    }
    tally.into_result()
}
