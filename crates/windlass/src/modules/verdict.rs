//! What the end of a command means: success, failure, or another time.

use std::os::unix::process::ExitStatusExt;

use windlass_api::Payload;
use windlass_client::{Failure, Outcome};
use windlass_core::Json;

use super::output::{RESULT_BYTES_MAX, STDOUT_BYTES_MAX};
use super::process::Ended;

/// EX_DATAERR of sysexits.h: trying again cannot help.
const EXIT_DATA_ERROR: i32 = 65;

/// EX_TEMPFAIL of sysexits.h: not now.
const EXIT_TEMPORARY_FAILURE: i32 = 75;

/// How much of what is no result is shown in the message about it.
const EXCERPT_CHARS: usize = 120;

/// Judges how a command ended.
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
            let said = last_line.map(|line| format!("; it said last: {line}")).unwrap_or_default();
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

/// The result, if it is one that the server will take.
fn payload(text: &str) -> Result<Payload, String> {
    let result: Payload = serde_json::from_str(text).map_err(|error| error.to_string())?;
    Json::from_raw(&result).map_err(|error| error.to_string())?;
    Ok(result)
}

/// The same command will print as much again, so this is final.
fn too_long(what: String) -> Outcome {
    let limit = RESULT_BYTES_MAX / 1024;
    let message = format!("{what}: a result has {limit} KiB at most; write log lines to stderr");
    Outcome::Failed(Failure { message, code: 1, retryable: false })
}

fn no_object(text: &str, what: &str) -> Outcome {
    let excerpt: String = text.chars().take(EXCERPT_CHARS).collect();
    let more = if excerpt.len() < text.len() { "…" } else { "" };
    let message = format!(
        "what the command printed on stdout {what}: {excerpt:?}{more}; print the result there and log lines on stderr"
    );
    Outcome::Failed(Failure { message, code: 1, retryable: true })
}

/// The signals that people meet; the number says the rest.
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
