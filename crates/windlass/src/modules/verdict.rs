//! Maps the end of a command to an outcome: success, failure, or retry later.

use std::os::unix::process::ExitStatusExt;

use windlass_api::Payload;
use windlass_client::{Failure, Outcome};
use windlass_core::Json;

use super::output::{RESULT_BYTES_MAX, STDOUT_BYTES_MAX};
use super::process::Ended;

/// EX_DATAERR of sysexits.h: a retry cannot help.
const EXIT_DATA_ERROR: i32 = 65;

/// EX_TEMPFAIL of sysexits.h: retry later.
const EXIT_TEMPORARY_FAILURE: i32 = 75;

/// The most characters of an invalid result in the message about it.
const EXCERPT_CHARS: usize = 120;

/// Maps the end of a command to an outcome.
pub(super) fn judge(ended: &Ended) -> Outcome {
    if ended.output.is_flooded() {
        let limit = STDOUT_BYTES_MAX / (1024 * 1024);
        return too_long(format!("the command printed more than {limit} MiB on stdout and was stopped"));
    }
    let last_line = ended.last_line.as_deref();
    match (ended.status.code(), ended.status.signal()) {
        (Some(0), _) => judge_result(ended),
        (Some(EXIT_TEMPORARY_FAILURE), _) => {
            Outcome::RetryLater { delay: None, message: ended.last_line.clone() }
        }
        (Some(code), _) => {
            let message =
                last_line.map_or_else(|| format!("the command exited with code {code}"), str::to_owned);
            Outcome::Failed(Failure { message, code, retryable: code != EXIT_DATA_ERROR })
        }
        (None, signal) => {
            let signal = signal.unwrap_or_default();
            let reason = if ended.stopped { "stopped" } else { "killed" };
            let said = last_line.map(|line| format!("; its last line: {line}")).unwrap_or_default();
            let message = format!("the command was {reason} by signal {signal}{}{said}", signal_name(signal));
            Outcome::Failed(Failure { message, code: 128 + signal, retryable: true })
        }
    }
}

fn judge_result(ended: &Ended) -> Outcome {
    let Some(bytes) = ended.output.complete() else {
        return too_long(format!("the command printed {} bytes on stdout", ended.output.printed()));
    };
    let Ok(text) = std::str::from_utf8(bytes) else {
        return no_object(&String::from_utf8_lossy(bytes), "is not UTF-8");
    };
    let text = text.trim();
    if text.is_empty() {
        return Outcome::Succeeded(None);
    }
    if !text.starts_with('{') {
        return no_object(text, "is not a JSON object");
    }
    match payload(text) {
        Ok(result) => Outcome::Succeeded(Some(result)),
        Err(error) => no_object(text, &format!("is not a JSON object ({error})")),
    }
}

/// The result, if the server will accept it.
fn payload(text: &str) -> Result<Payload, String> {
    let result: Payload = serde_json::from_str(text).map_err(|error| error.to_string())?;
    Json::from_raw(&result).map_err(|error| error.to_string())?;
    Ok(result)
}

/// Final: the same command would print as much again.
fn too_long(what: String) -> Outcome {
    let limit = RESULT_BYTES_MAX / 1024;
    let message = format!("{what}: the limit of a result is {limit} KiB; write log lines to stderr");
    Outcome::Failed(Failure { message, code: 1, retryable: false })
}

fn no_object(text: &str, what: &str) -> Outcome {
    let excerpt: String = text.chars().take(EXCERPT_CHARS).collect();
    let more = if excerpt.len() < text.len() { "…" } else { "" };
    let message = format!(
        "the command's stdout {what}: {excerpt:?}{more}; print the result there and log lines on stderr"
    );
    Outcome::Failed(Failure { message, code: 1, retryable: true })
}

/// Names of common signals; other signals only have their number.
fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => " (SIGHUP)",
        2 => " (SIGINT)",
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        13 => " (SIGPIPE)",
        15 => " (SIGTERM)",
        _ => "",
    }
}
