//! The live view of a task on a terminal: its steps, drawn over themselves.
//!
//! Each picture is written in one go: the cursor goes up to the first line of the picture before, every line is
//! written over and the rest of it cleared, so nothing ever goes blank in between. No line is wider and no picture
//! is higher than the terminal: the cursor could not find back else.

use jiff::Timestamp;
use windlass_api::{StepStatus, Task};

use super::steps;
use crate::cli::output::{
    Style,
    table::{Color, Overflow, cut},
    time::elapsed,
};

/// The picture on the terminal.
#[derive(Debug, Default)]
pub(crate) struct LiveView {
    /// Lines of the picture that is there now.
    drawn: usize,
}

impl LiveView {
    /// What to write so that the terminal shows `lines`.
    pub(crate) fn draw(&mut self, lines: &[String]) -> String {
        let mut codes = String::new();
        if self.drawn > 0 {
            codes.push_str(&format!("\x1b[{}A\r", self.drawn));
        }
        for line in lines {
            codes.push_str(line);
            codes.push_str("\x1b[K\n");
        }
        // What is left of a higher picture.
        codes.push_str("\x1b[J");
        self.drawn = lines.len();
        codes
    }
}

/// The lines of the picture, at most `rows - 1`: the cursor stands below them.
pub(crate) fn picture(task: &Task, now: Timestamp, style: Style, rows: usize) -> Vec<String> {
    let took = task.started_at.map(|started| format!("  {}", elapsed(started, task.ended_at.unwrap_or(now))));
    let title = format!("{}@{}  {}  ", task.flow, task.version, task.id);
    let status = format!("{}{}", task.status.as_str(), took.unwrap_or_default());
    let width = style.width.unwrap_or(usize::MAX);
    let title = cut(&title, width);
    let status = cut(&status, width.saturating_sub(title.chars().count()));
    let status = steps::task_color(task.status).map_or(status.clone(), |color| color.paint(&status, style));

    let mut lines = vec![format!("{title}{status}")];
    let mut table = steps::table(task, now).lines(style, Overflow::Cut).into_iter();
    lines.extend(table.next());
    let steps: Vec<String> = table.collect();

    let room = rows.saturating_sub(1 + lines.len()).max(1);
    if steps.len() <= room {
        lines.extend(steps);
        return lines;
    }
    // One line of the room tells how much is not shown.
    let room = room.saturating_sub(1).max(1);
    let first = focus(task).saturating_sub(room / 2).min(steps.len() - room);
    let hidden = steps.len() - room;
    lines.extend(steps.into_iter().skip(first).take(room));
    lines.push(Color::Faint.paint(&cut(&format!("… and {hidden} more steps"), width), style));
    lines
}

/// The step that matters most now: the last one that is being worked on, else the furthest touched one.
fn focus(task: &Task) -> usize {
    let active = |status| {
        matches!(
            status,
            StepStatus::Ready | StepStatus::Running | StepStatus::RollingBack | StepStatus::RollbackFailed
        )
    };
    task.steps.iter().rposition(|step| active(step.status)).unwrap_or(task.cursor)
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use windlass_api::Step;

    use super::{super::fixture, *};

    const STYLE: Style = Style { color: false, width: Some(72) };

    #[test]
    fn a_picture_fits_the_terminal() {
        let lines = picture(&fixture::running(), fixture::now(), STYLE, 24);
        assert!(lines.iter().all(|line| line.chars().count() <= 72), "{lines:?}");
        assert_snapshot!(lines.join("\n"), @"
        create_instance@2  01990a6e-0000-7000-8000-000000000001  running  3m 19s
        STEP    STATUS     TRIES  TIME   MESSAGE
        check   succeeded  1      12s
        init    running    2      3m 7s  disk busy; 40% copying; on worker-1
        deduct  pending
        ");
    }

    #[test]
    fn of_many_steps_those_around_the_active_one_are_shown() {
        let mut task = fixture::running();
        let template = task.steps[2].clone();
        task.steps = (0..50).map(|n| Step { name: format!("step-{n}"), ..template.clone() }).collect();
        task.steps[30].status = StepStatus::Running;
        for rows in [1, 4, 10, 24] {
            let lines = picture(&task, fixture::now(), STYLE, rows);
            assert!(lines.len() < rows.max(5), "{rows} rows: {lines:?}");
            assert!(lines.iter().any(|line| line.starts_with("step-30 ")), "{rows} rows: {lines:?}");
        }
        assert_eq!(picture(&task, fixture::now(), STYLE, 60).len(), 52);
    }

    #[test]
    fn a_picture_is_drawn_over_the_one_before() {
        let mut view = LiveView::default();
        let first = view.draw(&["one".to_owned(), "two".to_owned()]);
        assert_eq!(first, "one\x1b[K\ntwo\x1b[K\n\x1b[J", "nothing of others is drawn over");
        assert_eq!(view.draw(&["1".to_owned()]), "\x1b[2A\r1\x1b[K\n\x1b[J");
        assert_eq!(view.draw(&["2".to_owned()]), "\x1b[1A\r2\x1b[K\n\x1b[J");
    }
}
