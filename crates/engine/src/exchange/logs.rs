//! Log lines of attempts, within their limit.

use windlass_store::{AttemptId, LogLine, Now};

use super::LOG_BYTES_MAX;

/// The lines of a report that are kept.
pub(super) struct KeptLines {
    pub(super) lines: Vec<LogLine>,
    /// Their size in bytes, as counted against the limit.
    pub(super) bytes: usize,
}

impl KeptLines {
    /// The lines of an attempt that are within its limit, of which it has used `used` bytes.
    pub(super) fn of(id: AttemptId, texts: Vec<String>, used: usize, now: Now) -> Self {
        let line = |line: &str| LogLine {
            task: id.task,
            key: id.key,
            attempt: id.attempt,
            at: now.wall,
            line: line.into(),
        };
        let mut kept = Self { lines: Vec::new(), bytes: 0 };
        for text in texts {
            if used + kept.bytes > LOG_BYTES_MAX {
                break;
            }
            kept.bytes += text.len() + 1;
            kept.lines.push(if used + kept.bytes > LOG_BYTES_MAX {
                line("(more lines were dropped: an attempt keeps 64 KiB)")
            } else {
                line(&text)
            });
        }
        kept
    }
}
