//! `windlass task watch`: a live view of the steps on a terminal, a line per event elsewhere.
//!
//! Events only trigger a refresh; the view always shows the task itself. So it is correct even if events were
//! missed.

use std::time::Duration;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use tokio::time::{MissedTickBehavior, interval};
use windlass_api::{Event, Task, TaskStatus};

use super::{
    events,
    hints::{self, About},
    live::{self, LiveView},
    show,
};
use crate::cli::{
    connection::Context,
    exit::Exit,
    output::{
        self, Format, Style,
        table::{Color, cut},
        terminal_size,
    },
};

/// The shortest time between two frames.
const FRAME: Duration = Duration::from_millis(100);

/// The view is redrawn after this number of frames without an event, to update the times in it: one second.
/// The task is read again too, because unnumbered notices, such as progress, are lost when the stream
/// reconnects.
const FRAMES_IDLE_MAX: u32 = 10;

/// Watches a task until it has ended or is stuck.
pub(crate) async fn run(id: &str, context: &Context) -> anyhow::Result<Exit> {
    let task = match (context.output.format, context.output.style.is_terminal()) {
        (Format::Json, _) => {
            let waiting = context.client.wait(id);
            let task = hints::while_waiting(&context.client, id, About::ServerAndTask, waiting).await?;
            context.output.show(&task, |_, _| String::new())?;
            task
        }
        (Format::Table, true) => watch_live(id, context).await?,
        (Format::Table, false) => {
            hints::while_waiting(&context.client, id, About::Server, watch_lines(id, context)).await?
        }
    };
    Ok(Exit::of_task(&task))
}

/// Whether an event is the last one of a task.
pub(crate) fn is_end(event: &Event) -> bool {
    event.kind == "task.ended"
}

/// Whether the task cannot continue without an operator.
fn is_over(task: &Task) -> bool {
    task.status.is_ended() || task.status == TaskStatus::Stuck
}

async fn watch_live(id: &str, context: &Context) -> anyhow::Result<Task> {
    let client = &context.client;
    let mut screen = Screen { view: LiveView::default(), style: context.output.style };
    let mut task = client.task(id).await?;
    screen.draw(&task, ServerState::Answers)?;

    let mut events = client.follow_events(id, 0).await?;
    let mut frames = interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut news, mut frames_idle) = (false, 0);
    while !is_over(&task) {
        tokio::select! {
            event = events.next() => match event {
                Some(event) => { event?; news = true; }
                // The task has ended.
                None => { task = client.wait(id).await?; screen.draw(&task, ServerState::Answers)?; }
            },
            _ = frames.tick() => {
                frames_idle += 1;
                if !news && frames_idle < FRAMES_IDLE_MAX {
                    continue;
                }
                let mut server = ServerState::Answers;
                match client.task(id).await {
                    Ok(changed) => { task = changed; news = false; }
                    Err(error) if error.is_temporary() => server = ServerState::Away,
                    Err(error) => return Err(error.into()),
                }
                screen.draw(&task, server)?;
                frames_idle = 0;
            }
        }
    }
    output::write(&format!("\n{}", show::verdict(&task, context.output.style)))?;
    Ok(task)
}

/// The terminal with the live view.
struct Screen {
    view: LiveView,
    style: Style,
}

/// Whether the shown task is current.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ServerState {
    Answers,
    Away,
}

impl Screen {
    fn draw(&mut self, task: &Task, server: ServerState) -> anyhow::Result<()> {
        // The window may have been resized.
        let (columns, rows) = terminal_size();
        let style = Style { width: Some(columns), ..self.style };
        let mut lines = live::picture(task, Timestamp::now(), style, rows.saturating_sub(1));
        if server == ServerState::Away {
            lines
                .push(Color::Warning.paint(&cut("the server does not answer; trying again", columns), style));
        }
        output::write(&self.view.draw(&lines))
    }
}

async fn watch_lines(id: &str, context: &Context) -> anyhow::Result<Task> {
    let client = &context.client;
    let mut events = client.follow_events(id, 0).await?;
    let mut starts = events::Starts::default();
    while let Some(event) = events.next().await {
        let event = event?;
        if starts.is_repeated(&event) {
            continue;
        }
        context.output.show_line(&event, events::line)?;
        if is_end(&event) || event.kind == "task.stuck" {
            // The task may have been stuck earlier and have continued since.
            let task = client.task(id).await?;
            if is_end(&event) || task.status == TaskStatus::Stuck {
                return Ok(task);
            }
        }
    }
    Ok(client.wait(id).await?)
}
