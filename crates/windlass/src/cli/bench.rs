//! `windlass bench`: measures the speed on this machine.

use clap::{Args, ValueEnum, builder::PossibleValue};

use super::{exit::Exit, output::Output};
use crate::bench::{self, Setting, Workload};

/// The settings of a measurement.
#[derive(Debug, Clone, Args)]
pub(crate) struct BenchArgs {
    /// What kind of tasks
    #[arg(long, value_enum)]
    pub(crate) workload: Workload,

    /// How many tasks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) n: u64,

    /// The store to measure on: it must be empty, and keeps the data. Default: a temporary SQLite file
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,

    /// The number of servers on the store, each with its own worker
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16), requires = "store")]
    pub(crate) servers: u8,

    /// Connect workers and the client through HAProxy, which must be installed
    #[arg(long, requires = "store", conflicts_with = "broker")]
    pub(crate) balanced: bool,

    /// A broker that carries the steps to the workers, in queues made for this run. The queues are not
    /// removed
    #[arg(long, value_name = "URL")]
    pub(crate) broker: Option<String>,

    /// Workers send results over the broker too, and never connect to a server
    #[arg(long, requires = "broker")]
    pub(crate) one_way: bool,

    /// With TLS and access tokens; openssl must be installed
    #[arg(long, conflicts_with_all = ["balanced", "broker"])]
    pub(crate) secure: bool,
}

impl ValueEnum for Workload {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self::Noop,
            Self::Bulk,
            Self::Chain3,
            Self::Saga3,
            Self::Latency,
            Self::Chain3Latency,
            Self::Exclusive,
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self {
            Self::Noop => "One step that does nothing",
            Self::Bulk => "The same, submitted in batches of 1,000",
            Self::Chain3 => "Three steps",
            Self::Saga3 => "Three steps of which the last fails; all are rolled back",
            Self::Latency => "One task at a time: how long until its step is picked up",
            Self::Chain3Latency => "One task of three steps at a time",
            Self::Exclusive => "One step that does nothing, of tasks in one exclusive queue",
        };
        Some(PossibleValue::new(self.as_str()).help(help))
    }
}

impl BenchArgs {
    /// Measures and prints the result: as JSON on one line, so that runs can be appended to a file.
    pub(crate) async fn run(self, output: &Output) -> anyhow::Result<Exit> {
        let setting = Setting {
            store: self.store,
            servers: self.servers.into(),
            balanced: self.balanced,
            broker: self.broker,
            one_way: self.one_way,
            secure: self.secure,
        };
        let measured = bench::run(self.workload, self.n, setting).await?;
        output.show_line(&measured, |measured, _| measured.to_string())?;
        Ok(Exit::Done)
    }
}
