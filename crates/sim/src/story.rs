//! The story of a run, in lines of text.

use std::cell::RefCell;

/// The most lines kept: the end of a run explains it.
const LINES_MAX: usize = 100_000;

/// The story of a run; empty unless it was requested.
pub(crate) struct Story {
    lines: Option<RefCell<Vec<String>>>,
}

impl Story {
    pub(crate) fn new(tell: bool) -> Self {
        Self { lines: tell.then(RefCell::default) }
    }

    pub(crate) fn is_told(&self) -> bool {
        self.lines.is_some()
    }

    pub(crate) fn add(&self, now: u64, line: impl FnOnce() -> String) {
        if let Some(lines) = &self.lines {
            let mut lines = lines.borrow_mut();
            if lines.len() == LINES_MAX {
                lines.drain(..LINES_MAX / 2);
            }
            lines.push(format!("{:>8}.{:03} s  {}", now / 1000, now % 1000, line()));
        }
    }

    /// All lines that were kept.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.as_ref().map(|lines| lines.borrow().clone()).unwrap_or_default()
    }
}

/// The last lines about `task` or about no task.
pub(crate) fn last<'l>(lines: &'l [String], count: usize, task: Option<&str>) -> Vec<&'l str> {
    let about = |line: &&String| task.is_none_or(|task| line.contains(task) || !line.contains("task "));
    let mut last: Vec<&str> = lines.iter().rev().filter(about).take(count).map(String::as_str).collect();
    last.reverse();
    last
}
