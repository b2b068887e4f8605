//! The log of long-running processes: the server and the worker.

use std::io::{self, IsTerminal as _};

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{
    Layer as _, filter::Targets, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

/// The log filter: `debug`, `windlass=trace`, …
pub(super) const FILTER_VARIABLE: &str = "WINDLASS_LOG";

/// The default filter: lines of level `info` and above.
const DEFAULT: LevelFilter = LevelFilter::INFO;

/// Options of the commands that write a log, which goes to standard error.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct LogArgs {
    /// Format of the log on standard error; the variable WINDLASS_LOG filters it by level
    #[arg(long, value_name = "FORMAT", env = "WINDLASS_LOG_FORMAT", default_value = "text")]
    log_format: LogFormat,
}

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object per line.
    Json,
}

impl LogArgs {
    /// Starts logging to standard error, filtered by `WINDLASS_LOG`.
    ///
    /// # Errors
    /// When the filter is invalid. The default filter then applies.
    pub(crate) fn start(self) -> anyhow::Result<()> {
        let (filter, refused) = match wanted() {
            Ok(filter) => (filter, None),
            Err(error) => (Targets::new().with_default(DEFAULT), Some(error)),
        };
        let filter = without_payloads(filter).with_target(module_path!(), LevelFilter::ERROR);
        let lines = fmt::layer().with_writer(io::stderr);
        let lines = match self.log_format {
            LogFormat::Text => lines.with_ansi(is_colored()).with_filter(filter).boxed(),
            LogFormat::Json => lines.json().flatten_event(true).with_filter(filter).boxed(),
        };
        tracing_subscriber::registry().with(lines).init();
        refused.map_or(Ok(()), Err)
    }

    /// Whether each line on standard error is a JSON object.
    pub(crate) fn is_json(self) -> bool {
        self.log_format == LogFormat::Json
    }
}

/// Logs the error that ends the process. No filter hides lines of this module.
pub(crate) fn log_last_error(error: &str, hint: Option<&str>) {
    tracing::error!(hint, "{error}");
}

/// The filter of the variable, or the default.
fn wanted() -> anyhow::Result<Targets> {
    match std::env::var(FILTER_VARIABLE).ok().filter(|text| !text.is_empty()) {
        Some(text) => filter(&text).with_context(|| {
            format!("{FILTER_VARIABLE} is \"{text}\": write LEVEL or TARGET=LEVEL, separated by commas, such as debug or info,windlass=trace")
        }),
        None => Ok(Targets::new().with_default(DEFAULT)),
    }
}

/// Reads a filter. A word that is not a level would be a target: then a misspelt level would turn off everything.
fn filter(text: &str) -> anyhow::Result<Targets> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    for part in &parts {
        let (target, level) = part.split_once('=').unwrap_or(("", part));
        let is_target = target.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-:".contains(letter));
        ensure!(
            is_target && (*part == level) == target.is_empty(),
            "\"{part}\" has no target before the equals sign"
        );
        ensure!(!level.is_empty(), "a level is missing: use error, warn, info, debug, trace or off");
        level.parse::<LevelFilter>().map_err(|_| {
            anyhow::anyhow!("\"{level}\" is not a level: use error, warn, info, debug, trace or off")
        })?;
    }
    Ok(parts.join(",").parse()?)
}

fn is_colored() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Turns off a library that logs whole messages.
fn without_payloads(filter: Targets) -> Targets {
    filter.with_target("lapin", LevelFilter::OFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_level_is_refused_and_does_not_turn_off_the_log() {
        for text in
            ["info", "WARN", "off", "info,windlass=trace", "windlass::cli=debug, hyper=off", "h2=error,warn"]
        {
            assert!(filter(text).is_ok(), "{text}");
        }
        let words = [
            "inof",
            "nonsense",
            "=,=",
            "=info",
            "info;debug",
            "[x",
            "windlass=lots",
            "info,windlas",
            "info,",
            "windlass=",
        ];
        for text in words {
            assert!(filter(text).is_err(), "{text}");
        }
        let filter = filter("windlass=debug, info").unwrap();
        assert_eq!(filter.default_level(), Some(LevelFilter::INFO), "{filter}");
    }
}
