//! What commands print: tables for people, one JSON document for programs.

pub(super) mod table;
pub(super) mod time;

use std::io::{self, IsTerminal as _, Write as _};

use clap::ValueEnum;
use serde::Serialize;

/// For whom to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Tables for people.
    Table,
    /// One JSON document, as the API gives it.
    Json,
}

/// What the place that is printed to can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Style {
    /// Whether colours are wanted.
    pub(crate) color: bool,
    /// Columns of the terminal; none when the output goes elsewhere, so that nothing is cut.
    pub(crate) width: Option<usize>,
}

impl Style {
    /// No colours, no limit: what a file or a pipe gets.
    pub(crate) const PLAIN: Self = Self { color: false, width: None };

    /// What the standard output can show.
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

    /// Whether a person looks at a terminal.
    #[must_use]
    pub(crate) fn is_terminal(self) -> bool {
        self.width.is_some()
    }
}

/// Columns and rows of the terminal at the standard output; 80 × 24 when it does not say.
#[must_use]
pub(crate) fn terminal_size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    }
}

/// The standard output, in the format the user chose.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    /// For whom to print.
    pub(crate) format: Format,
    /// What tables may use.
    pub(crate) style: Style,
}

impl Output {
    /// The standard output of the process.
    #[must_use]
    pub(crate) fn new(format: Format) -> Self {
        Self { format, style: Style::of_stdout() }
    }

    /// Prints `document` as JSON, or for people the text that `render` makes of it.
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

    /// Prints one of many documents of a stream: a line each.
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

/// Writes `text` to the standard output as it is, at once.
pub(crate) fn write(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()?;
    Ok(())
}

/// `text` on one line and without control characters, so that a module's message cannot steer the terminal.
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
