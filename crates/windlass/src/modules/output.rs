//! Reads the output of a command within limits: the result on stdout, log lines on stderr.
//!
//! A command may print any amount, so these limits bound the memory. Past the limit of a result, stdout is
//! still read: a command that prints a little too much ends by itself and gets a message about it. A command
//! that prints without end is stopped.

use tokio::io::{AsyncRead, AsyncReadExt};

/// The largest result, in bytes: the limit of the engine.
pub(super) const RESULT_BYTES_MAX: usize = 256 * 1024;

/// A command that has printed this much on stdout is stopped.
pub(super) const STDOUT_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Log lines are cut after this many bytes.
pub(super) const LINE_BYTES_MAX: usize = 4 * 1024;

/// The size of one read: that of a pipe.
const CHUNK_BYTES: usize = 64 * 1024;

/// The stdout of a command.
#[derive(Debug, Default)]
pub(super) struct ResultBuffer {
    kept: Vec<u8>,
    printed: u64,
}

impl ResultBuffer {
    /// Reads to the end of the pipe, or until the command has printed more than [`STDOUT_BYTES_MAX`].
    pub(super) async fn read(&mut self, mut pipe: impl AsyncRead + Unpin) {
        let mut chunk = vec![0; CHUNK_BYTES];
        while !self.is_flooded() {
            match pipe.read(&mut chunk).await {
                Ok(0) | Err(_) => return,
                Ok(length) => self.push(&chunk[..length]),
            }
        }
    }

    pub(super) fn push(&mut self, chunk: &[u8]) {
        let room = RESULT_BYTES_MAX - self.kept.len();
        self.kept.extend_from_slice(&chunk[..chunk.len().min(room)]);
        self.printed += chunk.len() as u64;
    }

    /// Whether the command has printed more than [`STDOUT_BYTES_MAX`].
    #[must_use]
    pub(super) fn is_flooded(&self) -> bool {
        self.printed > STDOUT_BYTES_MAX
    }

    /// The number of bytes printed, including dropped ones.
    #[must_use]
    pub(super) fn printed(&self) -> u64 {
        self.printed
    }

    /// The whole output, unless it is larger than a result may be.
    #[must_use]
    pub(super) fn complete(&self) -> Option<&[u8]> {
        (self.printed <= RESULT_BYTES_MAX as u64).then_some(&self.kept)
    }
}

/// The stderr of a command, line by line.
#[derive(Debug, Default)]
pub(super) struct LogLines {
    line: Vec<u8>,
    cut: bool,
    last: Option<String>,
}

impl LogLines {
    /// Reads to the end of the pipe and passes each line to `log`; drops empty lines.
    pub(super) async fn read(
        &mut self,
        mut pipe: impl AsyncRead + Unpin,
        log: &mut (dyn FnMut(String) + Send),
    ) {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            match pipe.read(&mut chunk).await {
                Ok(0) | Err(_) => return self.end_line(log),
                Ok(length) => self.push(&chunk[..length], log),
            }
        }
    }

    /// The last line that was not empty. An unterminated last line counts too.
    #[must_use]
    pub(super) fn into_last(mut self, log: &mut (dyn FnMut(String) + Send)) -> Option<String> {
        self.end_line(log);
        self.last
    }

    pub(super) fn push(&mut self, chunk: &[u8], log: &mut (dyn FnMut(String) + Send)) {
        let mut pieces = chunk.split(|byte| *byte == b'\n');
        if let Some(rest_of_line) = pieces.next() {
            self.extend_line(rest_of_line);
        }
        for start_of_line in pieces {
            self.end_line(log);
            self.extend_line(start_of_line);
        }
    }

    fn extend_line(&mut self, piece: &[u8]) {
        let room = LINE_BYTES_MAX - self.line.len();
        self.line.extend_from_slice(&piece[..piece.len().min(room)]);
        self.cut |= piece.len() > room;
    }

    fn end_line(&mut self, log: &mut (dyn FnMut(String) + Send)) {
        if std::mem::take(&mut self.cut) {
            drop_partial_character(&mut self.line);
        }
        let line = String::from_utf8_lossy(&self.line).trim_end().to_owned();
        self.line.clear();
        if !line.is_empty() {
            self.last = Some(line.clone());
            log(line);
        }
    }
}

/// A character cut in half would be shown as a replacement character, which the command never printed.
fn drop_partial_character(line: &mut Vec<u8>) {
    if let Some(chunk) = line.utf8_chunks().last() {
        let partial = chunk.invalid().len();
        line.truncate(line.len() - partial);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(chunks: &[&[u8]]) -> (Vec<String>, Option<String>) {
        let mut logged = Vec::new();
        let mut lines = LogLines::default();
        let mut log = |line| logged.push(line);
        for chunk in chunks {
            lines.push(chunk, &mut log);
        }
        let last = lines.into_last(&mut log);
        (logged, last)
    }

    #[test]
    fn lines_are_put_together_from_pieces() {
        let (logged, last) = lines(&[b"one\ntw", b"o\r\n\n  \nthree", b" and more"]);
        assert_eq!(logged, ["one", "two", "three and more"]);
        assert_eq!(last.as_deref(), Some("three and more"));
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let long = "x".repeat(LINE_BYTES_MAX - 1) + "é and the rest\nnext\n";
        let (logged, _) = lines(&[long.as_bytes()]);
        assert_eq!(logged, ["x".repeat(LINE_BYTES_MAX - 1).as_str(), "next"]);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        let (logged, _) = lines(&[b"a\xffb\n"]);
        assert_eq!(logged, ["a\u{fffd}b"]);
    }

    #[test]
    fn memory_is_bounded_whatever_is_printed() {
        let mut buffer = ResultBuffer::default();
        let chunk = vec![b'x'; CHUNK_BYTES];
        for _ in 0..200 {
            buffer.push(&chunk);
        }
        assert!(buffer.is_flooded());
        assert_eq!(buffer.kept.len(), RESULT_BYTES_MAX);
        assert_eq!(buffer.printed(), 200 * CHUNK_BYTES as u64);
        assert_eq!(buffer.complete(), None);

        let mut lines = LogLines::default();
        for _ in 0..200 {
            lines.push(&chunk, &mut |_| panic!("no line has ended"));
        }
        assert_eq!(lines.line.len(), LINE_BYTES_MAX);
    }

    #[test]
    fn a_result_of_exactly_the_limit_is_complete() {
        let mut buffer = ResultBuffer::default();
        buffer.push(&vec![b'x'; RESULT_BYTES_MAX]);
        assert_eq!(buffer.complete().map(<[u8]>::len), Some(RESULT_BYTES_MAX));
        buffer.push(b"x");
        assert_eq!(buffer.complete(), None);
    }
}
