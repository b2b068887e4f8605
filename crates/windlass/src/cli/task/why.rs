//! `windlass task why`: why a task is where it is.

use crate::cli::{connection::Context, exit::Exit, output::table::Table};

/// Tells why a task is where it is.
pub(crate) async fn run(id: &str, context: &Context) -> anyhow::Result<Exit> {
    let why = context.client.why(id).await?;
    context.output.show(&why, |why, style| {
        let mut line = Table::headless();
        line.row([(&why.sentence).into()]);
        line.text(style)
    })?;
    Ok(Exit::Done)
}
