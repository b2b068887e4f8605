//! Tables without rules: columns two spaces apart, only as wide as they must be.
//!
//! A column nobody filled is left out. Only the last column gives way when the terminal is narrow: it is the one
//! with free text, while ids and names must stay whole to be copied.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::cli::output::{Style, one_line};

/// Between two columns.
const GAP: usize = 2;

/// What the last column is wrapped at, at the least, however narrow the terminal is.
const WRAP_MIN: usize = 24;

/// Colours, by what they mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Color {
    /// It went well.
    Good,
    /// It is under way.
    Active,
    /// Worth a look.
    Warning,
    /// It went wrong.
    Bad,
    /// Beside the point.
    Faint,
    /// Column heads.
    Head,
}

impl Color {
    /// `text` between the escape codes of the colour.
    #[must_use]
    pub(crate) fn paint(self, text: &str, style: Style) -> String {
        if !style.color || text.is_empty() {
            return text.to_owned();
        }
        let code = match self {
            Self::Good => "32",
            Self::Active => "36",
            Self::Warning => "33",
            Self::Bad => "31",
            Self::Faint => "2",
            Self::Head => "1",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// One cell.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cell {
    text: String,
    color: Option<Color>,
}

impl Cell {
    /// A cell in a colour.
    pub(crate) fn colored(text: impl AsRef<str>, color: Option<Color>) -> Self {
        Self { text: one_line(text.as_ref()), color }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::colored(text, None)
    }
}

/// What becomes of a last column that is too wide for the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overflow {
    /// It goes on in the next line, below itself.
    Wrap,
    /// It ends in `…`, and no line is wider than the terminal.
    Cut,
}

/// Rows of cells.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<Cell>>,
    headed: bool,
}

impl Table {
    /// A table with column heads.
    #[must_use]
    pub(crate) fn new<const N: usize>(heads: [&str; N]) -> Self {
        let heads = heads.into_iter().map(|head| Cell::colored(head, Some(Color::Head))).collect();
        Self { rows: vec![heads], headed: true }
    }

    /// A table of names and values.
    #[must_use]
    pub(crate) fn headless() -> Self {
        Self::default()
    }

    /// Adds a row.
    pub(crate) fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        debug_assert!(self.rows.first().is_none_or(|row| row.len() == N), "all rows have the same columns");
        self.rows.push(cells.into());
    }

    /// The whole table as text, wrapped where it is too wide.
    #[must_use]
    pub(crate) fn text(&self, style: Style) -> String {
        let mut text = String::new();
        for line in self.lines(style, Overflow::Wrap) {
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    /// The table, line by line.
    #[must_use]
    pub(crate) fn lines(&self, style: Style, overflow: Overflow) -> Vec<String> {
        let columns = self.filled_columns();
        let Some((&last, before)) = columns.split_last() else {
            return Vec::new();
        };
        let widths: Vec<usize> = before.iter().map(|&column| self.column_width(column)).collect();
        let indent: usize = widths.iter().map(|width| width + GAP).sum();

        let mut lines = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            let mut line = Line::new(style, overflow);
            for (&column, &width) in before.iter().zip(&widths) {
                line.push(&row[column], width + GAP);
            }
            let mut pieces = match (overflow, style.width) {
                (Overflow::Wrap, Some(width)) => {
                    wrap(&row[last].text, width.saturating_sub(indent).max(WRAP_MIN))
                }
                _ => vec![row[last].text.clone()],
            }
            .into_iter();
            line.push(&Cell { text: pieces.next().unwrap_or_default(), color: row[last].color }, 0);
            lines.push(line.finish());
            lines.extend(pieces.map(|piece| format!("{:indent$}{piece}", "")));
        }
        lines
    }

    /// The columns in which some row, heads aside, has something to say.
    fn filled_columns(&self) -> Vec<usize> {
        let body = &self.rows[usize::from(self.headed)..];
        let count = self.rows.first().map_or(0, Vec::len);
        (0..count)
            .filter(|&column| body.is_empty() || body.iter().any(|row| !row[column].text.is_empty()))
            .collect()
    }

    fn column_width(&self, column: usize) -> usize {
        self.rows.iter().map(|row| row[column].text.width()).max().unwrap_or(0)
    }
}

/// One line while it is put together.
struct Line {
    text: String,
    style: Style,
    /// Columns left, where lines are cut.
    left: Option<usize>,
    /// Spaces owed to the last cell; never written at the end of a line.
    owed: usize,
}

impl Line {
    fn new(style: Style, overflow: Overflow) -> Self {
        let left = if overflow == Overflow::Cut { style.width } else { None };
        Self { text: String::new(), style, left, owed: 0 }
    }

    /// Adds a cell padded to `width` columns.
    fn push(&mut self, cell: &Cell, width: usize) {
        if !cell.text.is_empty() {
            let text = match self.left {
                Some(left) => cut(&cell.text, left.saturating_sub(self.owed)),
                None => cell.text.clone(),
            };
            if text.is_empty() {
                return;
            }
            self.text.extend(std::iter::repeat_n(' ', self.owed));
            let used = text.width();
            self.left = self.left.map(|left| left.saturating_sub(self.owed + used));
            self.owed = width.saturating_sub(used);
            match cell.color {
                Some(color) => self.text.push_str(&color.paint(&text, self.style)),
                None => self.text.push_str(&text),
            }
        } else {
            self.owed += width;
        }
    }

    fn finish(self) -> String {
        self.text
    }
}

/// `text`, ending in `…` where it is wider than `width`.
#[must_use]
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let Some(room) = width.checked_sub(1) else {
        return String::new();
    };
    let mut short = String::new();
    let mut used = 0;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > room {
            break;
        }
        short.push(c);
    }
    short.push('…');
    short
}

/// `text` in lines of at most `width` columns. A longer word stays whole, so that it can be copied.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && line.width() + 1 + word.width() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::{Cell, Color, Overflow, Style, Table, cut};

    fn table() -> Table {
        let mut table = Table::new(["NAME", "STATUS", "UNUSED", "MESSAGE"]);
        table.row(["check".into(), Cell::colored("succeeded", Some(Color::Good)), "".into(), "".into()]);
        table.row([
            "日本".into(),
            Cell::colored("failed", Some(Color::Bad)),
            "".into(),
            "no space left on the device, and none to come".into(),
        ]);
        table
    }

    #[test]
    fn columns_nobody_filled_are_left_out() {
        assert_snapshot!(table().text(Style::PLAIN), @"
        NAME   STATUS     MESSAGE
        check  succeeded
        日本   failed     no space left on the device, and none to come
        ");
    }

    #[test]
    fn only_the_last_column_wraps() {
        assert_snapshot!(table().text(Style { color: false, width: Some(44) }), @"
        NAME   STATUS     MESSAGE
        check  succeeded
        日本   failed     no space left on the
                          device, and none to come
        ");
    }

    #[test]
    fn cut_lines_fit_the_terminal() {
        for width in [0, 5, 12, 20, 44] {
            let style = Style { color: false, width: Some(width) };
            for line in table().lines(style, Overflow::Cut) {
                assert!(unicode_width::UnicodeWidthStr::width(line.as_str()) <= width, "{width}: {line:?}");
            }
        }
        assert_eq!(cut("abcdef", 4), "abc…");
    }

    #[test]
    fn colours_do_not_move_columns() {
        let plain = table().text(Style::PLAIN);
        let colored = table().text(Style { color: true, width: None });
        assert!(colored.contains("\x1b[31mfailed\x1b[0m"));
        let mut stripped = colored;
        for code in ["0", "1", "31", "32"] {
            stripped = stripped.replace(&format!("\x1b[{code}m"), "");
        }
        assert_eq!(stripped, plain);
    }

    #[test]
    fn heads_alone_stay() {
        assert_eq!(Table::new(["NAME", "VERSION"]).text(Style::PLAIN), "NAME  VERSION\n");
        assert_eq!(Table::headless().text(Style::PLAIN), "");
    }
}
