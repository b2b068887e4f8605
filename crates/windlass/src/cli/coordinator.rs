//! How to reach a coordinator, and what to campaign for.

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use windlass_api::Span;
use windlass_client::coordinators::{Access, Campaign, Coordinator, connect_with};

use super::connection::{ConnectionArgs, read_given_secret};
use crate::modules::default_name;

/// The lease of a campaign when none is given.
pub(crate) const LEASE_DEFAULT: &str = "15s";

/// Options of every command that needs a coordinator.
#[derive(Debug, Args)]
pub(crate) struct CoordinatorArgs {
    /// URL of the coordinator, with one or more addresses: consul://HOST, etcd://HOST, zookeeper://HOST, or http://HOST for
    /// a Windlass server [default: the server]
    #[arg(long, value_name = "URL", env = "WINDLASS_COORDINATOR", hide_env_values = true)]
    coordinator: Option<String>,

    /// File with the URL of the coordinator, in place of --coordinator: other users cannot read its password
    #[arg(long, value_name = "FILE", env = "WINDLASS_COORDINATOR_FILE", conflicts_with = "coordinator")]
    coordinator_file: Option<PathBuf>,
}

/// The variables of these options. They may have a password, so that commands do not inherit them.
pub(crate) const VARIABLES: [&str; 2] = ["WINDLASS_COORDINATOR", "WINDLASS_COORDINATOR_FILE"];

/// Options of every command that campaigns.
#[derive(Debug, Args)]
pub(crate) struct CampaignArgs {
    /// A leader that is killed is replaced after at most this time and 1 s, 2 s to 1 h
    #[arg(long, value_name = "DURATION", default_value = LEASE_DEFAULT)]
    lease: Span,

    /// Id of this candidate, for others that ask who leads [default: the machine's name and the process id]
    #[arg(long, value_name = "ID")]
    id: Option<String>,

    /// Anything else that others should know of the leader, such as its address
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    value: String,
}

impl CoordinatorArgs {
    /// Whether there is a URL.
    pub(crate) fn is_given(&self) -> bool {
        self.coordinator.is_some() || self.coordinator_file.is_some()
    }

    /// Makes the coordinator; connects later. Without one, the server is it.
    ///
    /// # Errors
    /// When the URL is invalid.
    pub(crate) fn open(&self, connection: &ConnectionArgs) -> anyhow::Result<Arc<dyn Coordinator>> {
        Ok(connect_with(&self.url(connection)?, &access(connection)?)?)
    }

    /// The same with the server confirming who is elected elsewhere, so that the fence is the one of its store.
    ///
    /// # Errors
    /// When the URL is invalid.
    pub(crate) fn open_confirmed(&self, connection: &ConnectionArgs) -> anyhow::Result<Arc<dyn Coordinator>> {
        let (url, access) = (self.url(connection)?, access(connection)?);
        if url.starts_with("http://") || url.starts_with("https://") || url.trim().contains(' ') {
            return Ok(connect_with(&url, &access)?);
        }
        Ok(connect_with(&format!("{} {}", url.trim(), connection.client()?.server()), &access)?)
    }

    fn url(&self, connection: &ConnectionArgs) -> anyhow::Result<String> {
        Ok(match (&self.coordinator_file, &self.coordinator) {
            (Some(file), _) => read_given_secret(file, "URL of the coordinator")?,
            (None, Some(url)) => url.clone(),
            (None, None) => connection.client()?.server().to_owned(),
        })
    }
}

/// What a Windlass server is called with.
fn access(connection: &ConnectionArgs) -> anyhow::Result<Access> {
    Ok(Access { token: connection.token()?, tls: connection.tls() })
}

impl CampaignArgs {
    /// A campaign for that name.
    pub(crate) fn campaign(self, name: String) -> Campaign {
        let id = self.id.unwrap_or_else(default_name);
        Campaign { name, id, value: self.value, lease: Duration::from_millis(self.lease.ms) }
    }
}

/// A campaign with the default lease, or another one.
pub(crate) fn campaign(name: String, id: Option<String>, lease: Span) -> Campaign {
    CampaignArgs { lease, id, value: String::new() }.campaign(name)
}
