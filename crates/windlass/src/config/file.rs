//! The configuration file, with the keys that variables set.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
};
use utoipa::ToSchema;

use anyhow::Context as _;
use serde::{Deserialize, Deserializer, Serialize, de};
use windlass_api::Span;

use super::{
    parse_listen,
    source::Source,
    values,
    variables::{self, Variable},
};
use crate::{
    brokers::{EventsSection, IntakeSection, MachinerySection, QueueSection},
    devices::DevicesSection,
    job_api::AsyncworkSection,
    sections,
    task_list::TaskListSection,
    traces::TracesSection,
    webhooks::WebhookSection,
};

pub(crate) fn listen<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    parse_listen(&String::deserialize(deserializer)?).map(Some).map_err(de::Error::custom)
}

/// The configuration file.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConfigFile {
    /// `[server]`
    #[serde(default)]
    pub(crate) server: ServerSection,
    /// `[access]`: who may use the server.
    #[serde(default)]
    pub(crate) access: AccessSection,
    /// `[queues.MODULE]`: modules that have their queues on a broker.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) queues: BTreeMap<String, QueueSection>,
    /// `[[intake]]`: queues of a broker whose messages start tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "sections::several")]
    pub(crate) intake: Vec<IntakeSection>,
    /// `[[task_list]]`: lists in Consul whose entries start tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "sections::several")]
    pub(crate) task_list: Vec<TaskListSection>,
    /// `[[webhook]]`: requests at ends of tasks and alarms.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "sections::several")]
    pub(crate) webhook: Vec<WebhookSection>,
    /// `[traces]`: where spans of tasks are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) traces: Option<TracesSection>,
    /// `[events]`: where events of tasks are published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) events: Option<EventsSection>,
    /// `[asyncwork]`: the job API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) asyncwork: Option<AsyncworkSection>,
    /// `[machinery]`: signatures of the Go library machinery start tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) machinery: Option<MachinerySection>,
    /// `[devices]`: the MQTT broker that devices are connected to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) devices: Option<DevicesSection>,
}

impl ConfigFile {
    /// Reads the file, if there is one, and sets the keys that variables name.
    ///
    /// # Errors
    /// When the file cannot be read, or a setting is invalid.
    pub(super) fn load(file: Option<&Path>, variables: &[Variable]) -> anyhow::Result<Self> {
        let text = match file {
            Some(path) => std::fs::read_to_string(path)
                .with_context(|| format!("cannot read the configuration file {}", path.display()))?,
            None => String::new(),
        };
        let source = Source::new(file, &text, variables);
        let mut table: toml::Table = toml::from_str(&text).map_err(|error| source.malformed(&error))?;
        variables::set(&mut table, variables)?;
        serde_path_to_error::deserialize(table).map_err(|error| source.unusable(error))
    }
}

/// The section `[server]`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerSection {
    /// Address to listen on.
    #[serde(default, deserialize_with = "listen")]
    #[schema(value_type = Option<String>)]
    pub(crate) listen: Option<SocketAddr>,
    /// URL under which others reach the server.
    #[serde(default, deserialize_with = "values::in_file::advertise")]
    pub(crate) advertise: Option<String>,
    /// The store of the tasks.
    #[serde(default, deserialize_with = "values::in_file::store")]
    pub(crate) store: Option<String>,
    /// How long ended tasks are kept.
    #[serde(default, deserialize_with = "values::in_file::keep_tasks")]
    pub(crate) keep_tasks: Option<Span>,
    /// How long log lines are kept.
    #[serde(default, deserialize_with = "values::in_file::keep_logs")]
    pub(crate) keep_logs: Option<Span>,
    /// How long the audit log is kept.
    #[serde(default, deserialize_with = "values::in_file::keep_audit")]
    pub(crate) keep_audit: Option<Span>,
    /// The most connections of one client.
    #[serde(default, deserialize_with = "values::in_file::client_connections")]
    pub(crate) client_connections: Option<usize>,
    /// The most MiB that the request bodies of one client may take at once.
    #[serde(default, deserialize_with = "values::in_file::client_body_mib")]
    pub(crate) client_body_mib: Option<usize>,
    /// MiB of parameters and results of active tasks that are kept in memory; 0 = all of them.
    #[serde(default, deserialize_with = "values::in_file::resident_mib")]
    pub(crate) resident_mib: Option<u64>,
    /// File with the certificate of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) tls_cert: Option<PathBuf>,
    /// File with the private key of the certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) tls_key: Option<PathBuf>,
    /// File with the CA certificates for client certificates. With it, each client must show one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) tls_client_ca: Option<PathBuf>,
}

/// The section `[access]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AccessSection {
    /// Whether each request needs an access token.
    pub(crate) tokens: Option<bool>,
    /// File with an access token that an admin has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) admin_token_file: Option<PathBuf>,
}
