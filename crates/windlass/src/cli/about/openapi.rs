//! `windlass openapi`: prints the contract of the HTTP interface.

use crate::cli::{exit::Exit, output};
use crate::http;

/// Prints the OpenAPI document of this version, without a server.
pub(crate) fn run() -> anyhow::Result<Exit> {
    output::write(&http::document())?;
    Ok(Exit::Done)
}
