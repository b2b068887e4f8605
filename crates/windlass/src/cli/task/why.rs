//! `windlass task why`: explains why a task is in its current state.

use crate::cli::{connection::Context, exit::Exit, output::table::Table};

/// Explains why a task is in its current state.
pub(crate) async fn run(id: &str, context: &Context) -> anyhow::Result<Exit> {
    let why = context.client.why(id).await?;
    context.output.show(&why, |why, style| {
        let mut line = Table::headless();
        line.row([(&why.sentence).into()]);
        line.text(style)
    })?;
    Ok(Exit::Done)
}
