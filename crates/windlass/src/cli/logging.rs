//! The log of processes that stay: the server and the worker.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;

/// Which lines are written: `debug`, `windlass=trace`, …
const FILTER_VARIABLE: &str = "WINDLASS_LOG";

/// Starts to write the log to the standard error, from `info` on unless `WINDLASS_LOG` says otherwise.
pub(crate) fn start() {
    let filter = EnvFilter::try_from_env(FILTER_VARIABLE).unwrap_or_else(|_| EnvFilter::new("info"));
    let filter = without_payloads(filter);
    let color =
        io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(color).init();
}

/// Without the lines of a library that writes whole messages into them.
fn without_payloads(filter: EnvFilter) -> EnvFilter {
    match "lapin=off".parse() {
        Ok(directive) => filter.add_directive(directive),
        Err(_) => filter,
    }
}
