//! Properties of every output of a command, for fuzzing: see [`crate::malformed`].

use std::{os::unix::process::ExitStatusExt as _, process::ExitStatus};

use windlass_client::Outcome;
use windlass_core::Json;

use super::{
    output::{LINE_BYTES_MAX, LogLines, ResultBuffer},
    process::Ended,
    verdict::judge,
};

/// A byte that is not UTF-8 becomes a character of three bytes.
const SHOWN_BYTES: usize = 3;

/// Treats the bytes as the stdout, and as the stderr, of a command. The first two bytes give its exit status
/// and the sizes of the pieces in which the output arrives.
pub fn module_output(bytes: &[u8]) {
    let (&[status, piece], printed) = bytes.split_first_chunk().unwrap_or((&[0, 0], bytes));
    let piece = usize::from(piece) + 1;
    let last_line = check_lines(printed, piece);
    let mut output = ResultBuffer::default();
    printed.chunks(piece).for_each(|chunk| output.push(chunk));
    // Half of all commands succeed; the others end with any code or signal.
    let status = if status < 128 { 0 } else { i32::from(status & 0x7f) << 8 | i32::from(piece as u8 & 0x7f) };
    let ended =
        Ended { status: ExitStatus::from_raw(status), output, last_line, stopped: piece.is_multiple_of(2) };
    match judge(&ended) {
        Outcome::Succeeded(None) => assert!(String::from_utf8_lossy(printed).trim().is_empty()),
        Outcome::Succeeded(Some(result)) => {
            assert_eq!(std::str::from_utf8(printed).map(str::trim), Ok(result.get()), "not what was printed");
            let taken = Json::parse(result.get());
            assert!(taken.is_ok(), "the server will not take it: {taken:?}");
        }
        Outcome::Failed(failure) => {
            let length = failure.message.len();
            assert!(
                (1..=SHOWN_BYTES * LINE_BYTES_MAX + 2_000).contains(&length),
                "a message of {length} bytes"
            );
        }
        Outcome::RetryLater { .. } | Outcome::Declined => {}
    }
}

/// Lines are the same for all sizes of pieces, are never empty, and have a bounded length.
fn check_lines(printed: &[u8], piece: usize) -> Option<String> {
    let read = |piece: usize| {
        let (mut lines, mut logged) = (LogLines::default(), Vec::new());
        printed.chunks(piece).for_each(|chunk| lines.push(chunk, &mut |line| logged.push(line)));
        let last = lines.into_last(&mut |line| logged.push(line));
        (logged, last)
    };
    let in_pieces = read(piece);
    assert_eq!(in_pieces, read(printed.len().max(1)), "the pieces make a difference");
    let (logged, last) = in_pieces;
    for line in &logged {
        assert!(
            !line.trim().is_empty() && !line.contains('\n') && line.len() <= SHOWN_BYTES * LINE_BYTES_MAX
        );
    }
    assert_eq!(logged.last(), last.as_ref());
    last
}
