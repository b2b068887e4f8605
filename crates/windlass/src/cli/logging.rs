//! The log of long-running processes: the server and the worker.

use std::io::{self, IsTerminal as _};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::{
    Layer as _, filter::Targets, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

/// The log filter: `debug`, `windlass=trace`, …
const FILTER_VARIABLE: &str = "WINDLASS_LOG";

/// The default filter: lines of level `info` and above.
const DEFAULT: LevelFilter = LevelFilter::INFO;

/// Starts logging to standard error, filtered by `WINDLASS_LOG`. An invalid filter is reported there.
pub(crate) fn start() {
    let wanted = std::env::var(FILTER_VARIABLE).ok().filter(|text| !text.is_empty());
    let parsed = wanted.as_deref().map(str::parse::<Targets>).transpose();
    let filter = match &parsed {
        Ok(Some(filter)) => filter.clone(),
        Ok(None) | Err(_) => Targets::new().with_default(DEFAULT),
    };
    let color =
        io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(color).with_filter(without_payloads(filter));
    tracing_subscriber::registry().with(lines).init();
    if let Err(error) = parsed {
        tracing::warn!(%error, "{FILTER_VARIABLE} is ignored: write LEVEL or TARGET=LEVEL, separated by commas");
    }
}

/// Turns off a library that logs whole messages.
fn without_payloads(filter: Targets) -> Targets {
    filter.with_target("lapin", LevelFilter::OFF)
}
