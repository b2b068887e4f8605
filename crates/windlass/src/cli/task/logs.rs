//! `windlass task logs`: what the attempts of a task wrote.

use std::{collections::HashMap, time::Duration};

use clap::Args;
use windlass_api::{Direction, List, LogLine};

use crate::cli::{
    connection::Context,
    exit::Exit,
    output::{Style, one_line},
    table::Color,
};

/// How often to ask for new lines: lines come with the reports of workers, not one by one.
const POLL: Duration = Duration::from_millis(500);

/// Which lines.
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Id of the task
    #[arg(value_name = "ID")]
    id: String,

    /// Go on with new lines until the task has ended
    #[arg(short = 'f', long)]
    follow: bool,

    /// Only those of this step
    #[arg(long, value_name = "STEP")]
    step: Option<String>,
}

impl LogsArgs {
    /// Runs the command.
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        if self.follow {
            return self.follow(context).await;
        }
        let mut lines = context.client.task_logs(&self.id).await?;
        lines.items.retain(|line| self.wants(line));
        context.output.show(&lines, |lines, style| {
            lines.items.iter().map(|line| render(line, style) + "\n").collect()
        })?;
        Ok(Exit::Done)
    }

    async fn follow(self, context: &Context) -> anyhow::Result<Exit> {
        let mut seen = Seen::default();
        let mut looked = false;
        loop {
            match self.look(context).await {
                Ok((ended, lines)) => {
                    for line in seen.news(&lines.items).into_iter().filter(|line| self.wants(line)) {
                        context.output.show_line(line, render)?;
                    }
                    if ended {
                        return Ok(Exit::Done);
                    }
                }
                // A server that was there once is waited for.
                Err(error) if error.is_temporary() && looked => {}
                Err(error) => return Err(error.into()),
            }
            looked = true;
            tokio::time::sleep(POLL).await;
        }
    }

    /// Whether the task has ended, and its lines. Asked in this order, so that its last lines are not missed.
    async fn look(&self, context: &Context) -> Result<(bool, List<LogLine>), windlass_client::Error> {
        let ended = context.client.task(&self.id).await?.status.is_ended();
        Ok((ended, context.client.task_logs(&self.id).await?))
    }

    fn wants(&self, line: &LogLine) -> bool {
        self.step.as_ref().is_none_or(|step| *step == line.step)
    }
}

/// How many lines of each attempt were printed. Lines of one attempt keep their order, those of attempts that run
/// at the same time may come between each other.
#[derive(Debug, Default)]
struct Seen(HashMap<(String, bool, u32), usize>);

impl Seen {
    /// The lines not seen before.
    fn news<'a>(&mut self, lines: &'a [LogLine]) -> Vec<&'a LogLine> {
        let mut counts: HashMap<(String, bool, u32), usize> = HashMap::new();
        let mut news = Vec::new();
        for line in lines {
            let attempt = (line.step.clone(), line.direction == Direction::Rollback, line.attempt);
            let count = counts.entry(attempt.clone()).or_default();
            *count += 1;
            if *count > self.0.get(&attempt).copied().unwrap_or_default() {
                news.push(line);
            }
        }
        self.0 = counts;
        news
    }
}

fn render(line: &LogLine, style: Style) -> String {
    let undo = if line.direction == Direction::Rollback { " undo" } else { "" };
    let origin =
        format!("{} {}{undo} {}", line.at.strftime("%H:%M:%S%.3f"), one_line(&line.step), line.attempt);
    // A pipe gets the line as it was written, a terminal without what could steer it.
    let text = if style.is_terminal() {
        line.line.replace(|c: char| c.is_control() && c != '\t', "")
    } else {
        line.line.clone()
    };
    format!("{} | {text}", Color::Faint.paint(&origin, style))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(step: &str, attempt: u32, text: &str) -> LogLine {
        LogLine {
            at: "2030-03-17T17:46:40.25Z".parse().unwrap(),
            step: step.to_owned(),
            direction: Direction::Forward,
            attempt,
            line: text.to_owned(),
        }
    }

    #[test]
    fn followed_lines_are_printed_once() {
        let texts =
            |lines: Vec<&LogLine>| lines.into_iter().map(|line| line.line.clone()).collect::<Vec<_>>();
        let mut seen = Seen::default();
        let first = [line("a", 1, "one"), line("b", 1, "x")];
        assert_eq!(texts(seen.news(&first)), ["one", "x"]);
        assert!(seen.news(&first).is_empty());
        let later = [line("a", 1, "one"), line("a", 1, "two"), line("b", 1, "x"), line("a", 2, "again")];
        assert_eq!(texts(seen.news(&later)), ["two", "again"]);
    }

    #[test]
    fn a_line_says_where_it_comes_from() {
        let undo = LogLine { direction: Direction::Rollback, ..line("init", 2, "red \u{1b}[31m") };
        assert_eq!(render(&undo, Style::PLAIN), "17:46:40.250 init undo 2 | red \u{1b}[31m");
        let terminal = Style { color: false, width: Some(80) };
        assert_eq!(render(&undo, terminal), "17:46:40.250 init undo 2 | red [31m");
    }
}
