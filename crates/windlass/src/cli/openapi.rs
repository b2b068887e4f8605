//! `windlass openapi`: the contract of the server.

use super::{connection::Context, exit::Exit, output};

/// Prints the server's OpenAPI document.
pub(crate) async fn run(context: &Context) -> anyhow::Result<Exit> {
    let document = context.client.openapi().await?;
    output::write(&(serde_json::to_string_pretty(&document)? + "\n"))?;
    Ok(Exit::Done)
}
