//! How to reach the server, and what to print its answers as.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::Args;
use windlass_client::Client;

use super::output::{Format, Output};

/// Where a server is when nothing else is said.
pub(crate) const SERVER_DEFAULT: &str = "http://127.0.0.1:7700";

/// Options of every command that speaks to a server.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server and output")]
pub(crate) struct ConnectionArgs {
    /// The server to speak to [default: http://127.0.0.1:7700]
    #[arg(long, global = true, value_name = "URL", env = "WINDLASS_SERVER")]
    pub(crate) server: Option<String>,

    /// The token to show it
    #[arg(long, global = true, value_name = "TOKEN", env = "WINDLASS_TOKEN", hide_env_values = true)]
    token: Option<String>,

    /// File with the token to show it, in place of --token
    #[arg(long, global = true, value_name = "FILE", env = "WINDLASS_TOKEN_FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,

    /// Tables for people, or one JSON document for programs
    #[arg(short = 'o', long = "output", global = true, value_name = "FORMAT", default_value = "table")]
    pub(crate) format: Format,
}

/// What a client command works with.
pub(crate) struct Context {
    /// The way to the server.
    pub(crate) client: Client,
    /// The way to the user.
    pub(crate) output: Output,
}

impl ConnectionArgs {
    /// Makes ready to speak to the server; nothing is sent yet.
    pub(crate) fn open(&self) -> anyhow::Result<Context> {
        let mut client = Client::new(self.server.as_deref().unwrap_or(SERVER_DEFAULT))?;
        if let Some(token) = self.token()? {
            client = client.with_token(token);
        }
        if let Some(user) = system_user() {
            client = client.with_actor(user);
        }
        Ok(Context { client, output: self.output() })
    }

    /// The token, from the option, the variable or the file.
    ///
    /// # Errors
    /// When the file cannot be read, or holds nothing.
    pub(crate) fn token(&self) -> anyhow::Result<Option<String>> {
        match &self.token_file {
            Some(file) => read_secret(file, "token").map(Some),
            None => Ok(self.token.clone()),
        }
    }

    /// The way to the user, where no server is needed.
    #[must_use]
    pub(crate) fn output(&self) -> Output {
        Output::new(self.format)
    }
}

/// Reads a secret from a file that holds nothing else; white space around it does not count. `what` names it in errors.
///
/// # Errors
/// When the file cannot be read, or holds nothing.
pub(crate) fn read_secret(file: &Path, what: &str) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the {what} from {}", file.display()))?;
    let secret = text.trim();
    ensure!(!secret.is_empty(), "the file {} is empty: write the {what} into it", file.display());
    Ok(secret.to_owned())
}

/// The name under which the user is logged in: the server notes it as who did something.
fn system_user() -> Option<String> {
    ["USER", "LOGNAME"].into_iter().filter_map(|name| std::env::var(name).ok()).find(|user| !user.is_empty())
}
