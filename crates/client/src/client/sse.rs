//! Reads an event stream (the `text/event-stream` format of the HTML standard, section 9.2.6).
//!
//! Only the `data` of each event matters: events of Windlass contain their number and kind in the document.

/// Converts bytes to events, however the network has split them.
#[derive(Debug, Default)]
pub(super) struct SseReader {
    buffer: Vec<u8>,
    /// The number of buffer bytes already read.
    read: usize,
    /// The `data` lines of the current event so far.
    data: Option<String>,
}

impl SseReader {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.read);
        self.read = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The data of the next complete event, if any.
    pub(super) fn next_event(&mut self) -> Option<String> {
        loop {
            let rest = &self.buffer[self.read..];
            let end = rest.iter().position(|byte| *byte == b'\n')?;
            let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
            self.read += end + 1;
            if line.is_empty() {
                if let Some(data) = self.data.take() {
                    return Some(data);
                }
            } else if let Some(value) = line.strip_prefix(b"data:") {
                let value = String::from_utf8_lossy(value.strip_prefix(b" ").unwrap_or(value));
                match &mut self.data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(&value);
                    }
                    None => self.data = Some(value.into_owned()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SseReader;

    const STREAM: &[u8] =
        b": keep-alive\n\nid: 1\nevent: step.ready\ndata: {\"n\":1,\ndata: \"x\":\"\xc3\xa9\"}\r\n\r\ndata:{}\n\ndata: cut";

    #[test]
    fn events_are_the_same_however_they_were_cut() {
        for size in 1..STREAM.len() {
            let mut reader = SseReader::default();
            let mut events = Vec::new();
            for piece in STREAM.chunks(size) {
                reader.push(piece);
                while let Some(event) = reader.next_event() {
                    events.push(event);
                }
            }
            assert_eq!(events, ["{\"n\":1,\n\"x\":\"é\"}", "{}"], "cut every {size} bytes");
        }
    }
}
