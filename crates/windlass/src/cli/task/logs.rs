//! `windlass task logs`: prints the log lines of a task's attempts.

use clap::Args;
use futures_util::StreamExt as _;
use windlass_api::{Direction, LogLine};

use crate::cli::{
    connection::Context,
    exit::Exit,
    output::{Style, one_line, table::Color},
};

/// The lines to print.
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Id of the task
    #[arg(value_name = "ID")]
    id: String,

    /// Continue with new lines until the task has ended
    #[arg(short = 'f', long)]
    follow: bool,

    /// Only lines of this step, or of one item of it: `resize[3]`
    #[arg(long, value_name = "STEP")]
    step: Option<String>,
}

impl LogsArgs {
    /// Runs the command.
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        if self.follow {
            return self.follow(context).await;
        }
        let lines = context.client.task_logs(&self.id, self.step.as_deref()).await?;
        context.output.show(&lines, |lines, style| {
            lines.items.iter().map(|line| render(line, style) + "\n").collect()
        })?;
        Ok(Exit::Done)
    }

    async fn follow(self, context: &Context) -> anyhow::Result<Exit> {
        let mut lines = context.client.follow_logs(&self.id, self.step.as_deref(), 0).await?;
        while let Some(line) = lines.next().await {
            context.output.show_line(&line?, render)?;
        }
        Ok(Exit::Done)
    }
}

/// The step, with the index of an `each` item: `resize[3]`.
fn place(line: &LogLine) -> String {
    let member = line.member.map(|member| format!("[{member}]")).unwrap_or_default();
    format!("{}{member}", line.step)
}

fn render(line: &LogLine, style: Style) -> String {
    let rollback = if line.direction == Direction::Rollback { " rollback" } else { "" };
    let origin =
        format!("{} {}{rollback} {}", line.at.strftime("%H:%M:%S%.3f"), one_line(&place(line)), line.attempt);
    // A pipe gets the raw line; a terminal gets it without control characters.
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
            number: 1,
            at: "2030-03-17T17:46:40.25Z".parse().unwrap(),
            step: step.to_owned(),
            member: None,
            direction: Direction::Forward,
            attempt,
            line: text.to_owned(),
        }
    }

    #[test]
    fn a_line_says_where_it_comes_from() {
        let rollback = LogLine { direction: Direction::Rollback, ..line("init", 2, "red \u{1b}[31m") };
        assert_eq!(render(&rollback, Style::PLAIN), "17:46:40.250 init rollback 2 | red \u{1b}[31m");
        let member = LogLine { member: Some(3), ..line("resize", 1, "x") };
        assert_eq!(render(&member, Style::PLAIN), "17:46:40.250 resize[3] 1 | x");
        let terminal = Style { color: false, width: Some(80) };
        assert_eq!(render(&rollback, terminal), "17:46:40.250 init rollback 2 | red [31m");
    }
}
