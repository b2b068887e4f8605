//! How to reach the server, and the output format.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::Args;
use windlass_client::Client;
use windlass_tls::{ClientFiles, Identity};

use super::{
    exit::UsageError,
    output::{Format, Output},
};

/// The server's URL when none is configured.
pub(crate) const SERVER_DEFAULT: &str = "http://127.0.0.1:7700";

/// Options of every command that connects to a server.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server and output")]
pub(crate) struct ConnectionArgs {
    /// URL of the server [default: http://127.0.0.1:7700]
    #[arg(long, global = true, value_name = "URL", env = "WINDLASS_SERVER")]
    pub(super) server: Option<String>,

    /// Token for the server
    #[arg(long, global = true, value_name = "TOKEN", env = "WINDLASS_TOKEN", hide_env_values = true)]
    token: Option<String>,

    /// File with the token for the server, in place of --token
    #[arg(long, global = true, value_name = "FILE", env = "WINDLASS_TOKEN_FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,

    /// File with the CA certificates to trust for https://, in place of the system's
    #[arg(long, global = true, value_name = "FILE", env = "WINDLASS_CA_FILE")]
    ca_file: Option<PathBuf>,

    /// File with the certificate of this client, for servers that ask for one
    #[arg(long, global = true, value_name = "FILE", env = "WINDLASS_CLIENT_CERT", requires = "client_key")]
    client_cert: Option<PathBuf>,

    /// File with the private key of the certificate of this client
    #[arg(long, global = true, value_name = "FILE", env = "WINDLASS_CLIENT_KEY", requires = "client_cert")]
    client_key: Option<PathBuf>,

    /// Tables, or one JSON document
    #[arg(short = 'o', long = "output", global = true, value_name = "FORMAT", default_value = "table")]
    pub(crate) format: Format,
}

/// What a client command needs.
pub(crate) struct Context {
    /// The connection to the server.
    pub(crate) client: Client,
    /// The output of the command.
    pub(crate) output: Output,
}

impl ConnectionArgs {
    /// Makes the client; sends nothing yet.
    pub(crate) fn open(&self) -> anyhow::Result<Context> {
        let mut client = self.client_with_token()?;
        if let Some(user) = system_user() {
            client = client.with_actor(user);
        }
        Ok(Context { client, output: self.output() })
    }

    /// A client of the server, without the token.
    ///
    /// # Errors
    /// When the URL is invalid, or a file for TLS cannot be used.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::with_tls(self.server()?.unwrap_or(SERVER_DEFAULT), &self.tls())?)
    }

    /// The URL of the server, if there is one.
    ///
    /// # Errors
    /// When it is empty: a default in its place could be another server than the one that was meant.
    pub(crate) fn server(&self) -> anyhow::Result<Option<&str>> {
        match self.server.as_deref() {
            Some("") => Err(UsageError(format!(
                "--server or the variable WINDLASS_SERVER is empty: give the URL of a server, such as {SERVER_DEFAULT}, or \
                 unset the variable"
            ))
            .into()),
            server => Ok(server),
        }
    }

    /// A client of the server, with the token.
    ///
    /// # Errors
    /// As [`client`](Self::client), and when the file with the token cannot be read or is empty.
    pub(crate) fn client_with_token(&self) -> anyhow::Result<Client> {
        let client = self.client()?;
        match (&self.token_file, self.given_token()) {
            // Read once: the file may be a pipe.
            (Some(file), _) => {
                client.with_token_file(file).map_err(|error| UsageError(error.to_string()).into())
            }
            (None, Some(token)) => Ok(client.with_token(token)),
            (None, None) => Ok(client),
        }
    }

    /// The files for TLS.
    pub(crate) fn tls(&self) -> ClientFiles {
        let identity = self.client_cert.clone().zip(self.client_key.clone());
        ClientFiles {
            authorities: self.ca_file.clone(),
            identity: identity.map(|(certificate, key)| Identity { certificate, key }),
        }
    }

    /// The token, from the option, the environment variable or the file. An empty variable counts as none.
    ///
    /// # Errors
    /// When the file cannot be read or is empty.
    pub(crate) fn token(&self) -> anyhow::Result<Option<String>> {
        match &self.token_file {
            Some(file) => read_given_secret(file, "token").map(Some),
            None => Ok(self.given_token()),
        }
    }

    /// The token from the option or the variable.
    fn given_token(&self) -> Option<String> {
        self.token.clone().filter(|token| !token.is_empty())
    }

    /// The output, for commands that need no server.
    #[must_use]
    pub(crate) fn output(&self) -> Output {
        Output::new(self.format)
    }
}

/// Reads a secret from a file that contains nothing else. Surrounding white space is ignored. `what` names
/// the secret in errors.
///
/// # Errors
/// When the file cannot be read or is empty.
pub(crate) fn read_secret(file: &Path, what: &str) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the {what} from {}", file.display()))?;
    let secret = text.trim();
    ensure!(!secret.is_empty(), "the file {} is empty: write the {what} into it", file.display());
    Ok(secret.to_owned())
}

/// The same for a file that an option of the command line names.
///
/// # Errors
/// When the file cannot be read or is empty: a usage error.
pub(super) fn read_given_secret(file: &Path, what: &str) -> anyhow::Result<String> {
    read_secret(file, what).map_err(|error| UsageError(format!("{error:#}")).into())
}

/// The login name of the user. The server records it as the actor.
fn system_user() -> Option<String> {
    ["USER", "LOGNAME"].into_iter().filter_map(|name| std::env::var(name).ok()).find(|user| !user.is_empty())
}
