//! The output of commands: tables, or one JSON document.

pub(super) mod table;
pub(super) mod time;

use std::io::{self, IsTerminal as _, Write as _};

use clap::ValueEnum;
use serde::Serialize;

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables, for reading.
    Table,
    /// One JSON document, as the API returns it.
    Json,
}

/// The capabilities of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Style {
    /// Whether to use colours.
    pub(crate) color: bool,
    /// Columns of the terminal. None when the output is not a terminal: then nothing is cut.
    pub(crate) width: Option<usize>,
}

impl Style {
    /// No colours, no width limit: for files and pipes.
    pub(crate) const PLAIN: Self = Self { color: false, width: None };

    /// The capabilities of standard output.
    fn of_stdout() -> Self {
        let stdout = io::stdout();
        if !stdout.is_terminal() {
            return Self::PLAIN;
        }
        // https://no-color.org: any value but the empty one.
        let color = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self { color, width: Some(terminal_size().0) }
    }

    /// Whether the output is a terminal.
    #[must_use]
    pub(crate) fn is_terminal(self) -> bool {
        self.width.is_some()
    }
}

/// Columns and rows of the terminal on standard output; 80 × 24 when unknown.
#[must_use]
pub(crate) fn terminal_size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    }
}

/// Standard output, in the format the user chose.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    /// The output format.
    pub(crate) format: Format,
    /// The style of tables.
    pub(crate) style: Style,
}

impl Output {
    /// Standard output of the process.
    #[must_use]
    pub(crate) fn new(format: Format) -> Self {
        Self { format, style: Style::of_stdout() }
    }

    /// Prints `document` as JSON, or as the table that `render` makes.
    pub(crate) fn show<T: Serialize>(
        &self,
        document: &T,
        render: impl FnOnce(&T, Style) -> String,
    ) -> anyhow::Result<()> {
        let text = match self.format {
            Format::Table => render(document, self.style),
            Format::Json => serde_json::to_string_pretty(document)? + "\n",
        };
        write(&text)
    }

    /// Prints one document of a stream, on one line.
    pub(crate) fn show_line<T: Serialize>(
        &self,
        document: &T,
        render: impl FnOnce(&T, Style) -> String,
    ) -> anyhow::Result<()> {
        let line = match self.format {
            Format::Table => render(document, self.style),
            Format::Json => serde_json::to_string(document)?,
        };
        write(&(line + "\n"))
    }
}

/// Writes `text` to standard output and flushes it.
pub(crate) fn write(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()?;
    Ok(())
}

/// `text` on one line without control characters, so that a module's message cannot control the terminal.
#[must_use]
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn text_of_modules_cannot_steer_the_terminal() {
        assert_eq!(one_line("no space\n  left \u{1b}[2J on\tdevice\r\n"), "no space left [2J on device");
        assert_eq!(one_line(""), "");
    }
}
