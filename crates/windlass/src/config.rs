//! Settings of the server. Flags override environment variables, which override the file, which overrides
//! defaults.

mod file;
mod source;
pub(crate) mod values;
pub(crate) mod variables;

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use windlass_api::Span;
use windlass_core::Millis;
use windlass_store::{Retention, resident::BodyPolicy};
use windlass_tls::{Identity, ServerFiles};

use crate::{
    brokers::{self, BrokerSettings, EventsSettings, MachinerySettings},
    devices::{self, DeviceSettings},
    http::ClientLimits,
    job_api::JobApiSettings,
    task_list::{self, TaskListSettings},
    traces::{self, TracesSettings},
    webhooks::{self, WebhookSettings},
    wire::StoreUrl,
};
use file::ConfigFile;
pub(crate) use file::{AccessSection, ServerSection, listen};
use variables::Variable;

/// The default address.
pub(crate) const LISTEN_DEFAULT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7700);

/// The default store.
pub(crate) const STORE_DEFAULT: &str = "sqlite:windlass.db";

/// Parses an address to listen on.
///
/// # Errors
/// When it is invalid; the message describes the format.
pub(crate) fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("invalid address \"{text}\": use an IP address and a port, such as {LISTEN_DEFAULT}")
    })
}

/// The settings of flags and environment variables.
#[derive(Debug, Clone, Default)]
pub(crate) struct Given {
    /// Those of the section `[server]`.
    pub(crate) server: ServerSection,
    /// Those of the section `[access]`.
    pub(crate) access: AccessSection,
    /// Variables that set other keys of the file.
    pub(crate) variables: Vec<Variable>,
}

impl From<ServerSection> for Given {
    fn from(server: ServerSection) -> Self {
        Self { server, ..Self::default() }
    }
}

/// The effective settings of access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AccessConfig {
    /// Whether each request needs an access token.
    pub(crate) tokens: bool,
    /// File with an access token that an admin has.
    pub(crate) admin_token_file: Option<PathBuf>,
}

impl AccessConfig {
    fn of(given: AccessSection, file: AccessSection) -> anyhow::Result<Self> {
        let config = Self {
            tokens: given.tokens.or(file.tokens).unwrap_or(false),
            admin_token_file: given.admin_token_file.or(file.admin_token_file),
        };
        if let (false, Some(file)) = (config.tokens, &config.admin_token_file) {
            anyhow::bail!(
                "there is a file with the token of an admin ({}), and the server asks for no tokens: give --require-tokens, \
                 or `tokens = true` in the section [access], or leave the file out",
                file.display()
            );
        }
        Ok(config)
    }

    fn section(&self) -> AccessSection {
        AccessSection { tokens: Some(self.tokens), admin_token_file: self.admin_token_file.clone() }
    }
}

/// The effective settings of a server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ServerConfig {
    /// Address to listen on.
    pub(crate) listen: SocketAddr,
    /// URL under which others reach the server; none = the address it listens on.
    pub(crate) advertise: Option<String>,
    /// The store of the tasks.
    pub(crate) store: StoreUrl,
    /// How long ended tasks are kept, with their history and idempotency keys.
    pub(crate) keep_tasks: Span,
    /// How long log lines are kept.
    pub(crate) keep_logs: Span,
    /// How long the audit log is kept.
    pub(crate) keep_audit: Span,
    /// Who may use the server.
    pub(crate) access: AccessConfig,
    /// The limits of one client.
    pub(crate) clients: ClientLimits,
    /// The parameters and results of active tasks that are kept in memory, over a SQLite file.
    pub(crate) resident: BodyPolicy,
    /// The files for TLS; none = connections are not encrypted.
    pub(crate) tls: Option<ServerFiles>,
    /// The brokers.
    pub(crate) brokers: BrokerSettings,
    /// The task lists.
    pub(crate) task_lists: Vec<TaskListSettings>,
    /// The webhooks.
    pub(crate) webhooks: Vec<WebhookSettings>,
    /// Where traces are sent; none = nowhere.
    pub(crate) traces: Option<TracesSettings>,
    /// The job API; none = the server does not serve it.
    pub(crate) jobs: Option<JobApiSettings>,
    /// The network of devices.
    pub(crate) devices: Option<DeviceSettings>,
}

impl ServerConfig {
    /// Combines the settings. `given` are those of flags and environment variables.
    ///
    /// # Errors
    /// When the file cannot be read or a setting is invalid.
    pub(crate) fn load(given: impl Into<Given>, file: Option<&Path>) -> anyhow::Result<Self> {
        let Given { server: given, access, variables } = given.into();
        let path = file;
        let file = ConfigFile::load(path, &variables)?;
        let place = || place_of_sections(path, &variables);
        let brokers =
            brokers::read(file.queues, file.intake, file.events, file.machinery).with_context(place)?;
        let task_lists = task_list::read(file.task_list).with_context(place)?;
        let webhooks = webhooks::read(file.webhook).with_context(place)?;
        let traces = file.traces.map(traces::read).transpose().with_context(place)?;
        let jobs = file.asyncwork.map(JobApiSettings::read).transpose().with_context(place)?;
        let devices = devices::read(file.devices).with_context(place)?;
        let access = AccessConfig::of(access, file.access)?;
        let file = file.server;
        let keep = Retention::default();
        Ok(Self {
            listen: given.listen.or(file.listen).unwrap_or(LISTEN_DEFAULT),
            advertise: given.advertise.or(file.advertise),
            store: given.store.or(file.store).as_deref().unwrap_or(STORE_DEFAULT).parse()?,
            keep_tasks: given.keep_tasks.or(file.keep_tasks).unwrap_or(Span::from_ms(keep.tasks.0)),
            keep_logs: given.keep_logs.or(file.keep_logs).unwrap_or(Span::from_ms(keep.logs.0)),
            keep_audit: given.keep_audit.or(file.keep_audit).unwrap_or(Span::from_ms(keep.audit.0)),
            access,
            clients: clients(
                given.client_connections.or(file.client_connections),
                given.client_body_mib.or(file.client_body_mib),
            ),
            resident: resident(given.resident_mib.or(file.resident_mib)),
            tls: tls(
                given.tls_cert.or(file.tls_cert),
                given.tls_key.or(file.tls_key),
                given.tls_client_ca.or(file.tls_client_ca),
            )?,
            brokers,
            task_lists,
            webhooks,
            traces,
            jobs,
            devices,
        })
    }

    /// How long rows are kept.
    pub(crate) fn retention(&self) -> Retention {
        Retention {
            tasks: Millis(self.keep_tasks.ms),
            logs: Millis(self.keep_logs.ms),
            audit: Millis(self.keep_audit.ms),
            keeps_unannounced: self.brokers.announces() || !self.webhooks.is_empty(),
            messages_until: None,
        }
    }

    /// What a server at an address that other machines can reach lacks to be safe there. Nothing at another address.
    pub(crate) fn lacks(&self) -> Option<&'static str> {
        match (self.access.tokens, self.tls.is_some()) {
            _ if !self.is_reachable() => None,
            (true, true) => None,
            (false, true) => Some("the server asks for no tokens: give --require-tokens"),
            (true, false) => Some("connections are not encrypted: give --tls-cert and --tls-key"),
            (false, false) => Some(
                "the server asks for no tokens and connections are not encrypted: give --require-tokens, --tls-cert and --tls-key",
            ),
        }
    }

    /// Refuses an address that other machines can reach, unless each request needs a token and TLS, or `insecure` allows it.
    ///
    /// # Errors
    /// When other machines can reach the address, something is missing, and `insecure` is not set.
    pub(crate) fn check_address(&self, insecure: bool) -> anyhow::Result<()> {
        match self.lacks() {
            Some(lack) if !insecure => anyhow::bail!(
                "{} can be reached by other machines, and {lack}; or listen on 127.0.0.1, or give --insecure if the network \
                 itself keeps strangers out",
                self.reachable().unwrap_or(self.listen)
            ),
            _ => Ok(()),
        }
    }

    /// Whether other machines can reach the server.
    pub(crate) fn is_reachable(&self) -> bool {
        self.reachable().is_some()
    }

    /// The first address of the server that other machines can reach.
    fn reachable(&self) -> Option<SocketAddr> {
        let of_jobs = self.jobs.as_ref().and_then(|jobs| jobs.listen);
        [Some(self.listen), of_jobs].into_iter().flatten().find(|address| !address.ip().is_loopback())
    }

    /// The settings as a configuration file.
    ///
    /// # Errors
    /// Never in practice.
    pub(crate) fn to_toml(&self) -> anyhow::Result<String> {
        let server = ServerSection {
            listen: Some(self.listen),
            advertise: self.advertise.clone(),
            store: Some(self.store.to_string()),
            keep_tasks: Some(self.keep_tasks),
            keep_logs: Some(self.keep_logs),
            keep_audit: Some(self.keep_audit),
            client_connections: Some(self.clients.connections),
            client_body_mib: Some(self.clients.body_bytes >> 20),
            resident_mib: Some(match self.resident {
                BodyPolicy::ALL => 0,
                limited => limited.bytes_max >> 20,
            }),
            tls_cert: self.tls.as_ref().map(|tls| tls.identity.certificate.clone()),
            tls_key: self.tls.as_ref().map(|tls| tls.identity.key.clone()),
            tls_client_ca: self.tls.as_ref().and_then(|tls| tls.client_authorities.clone()),
        };
        let (queues, intake) = self.brokers.sections();
        let events = self.brokers.events.as_ref().map(EventsSettings::section);
        let machinery = self.brokers.machinery.as_ref().map(MachinerySettings::section);
        let task_list = self.task_lists.iter().map(TaskListSettings::section).collect();
        let webhook = self.webhooks.iter().map(WebhookSettings::section).collect();
        let traces = self.traces.as_ref().map(TracesSettings::section);
        let devices = self.devices.as_ref().map(DeviceSettings::section);
        let access = self.access.section();
        let asyncwork = self.jobs.as_ref().map(JobApiSettings::section);
        Ok(toml::to_string(&ConfigFile {
            server,
            access,
            queues,
            intake,
            task_list,
            webhook,
            traces,
            events,
            asyncwork,
            machinery,
            devices,
        })?)
    }
}

/// The JSON Schema of the configuration file, as text.
pub(crate) fn schema() -> String {
    crate::schema::to_text(&crate::schema::of::<ConfigFile>("The configuration of a server of Windlass"))
}

/// Where sections of the configuration are, for error messages.
fn place_of_sections(file: Option<&Path>, variables: &[Variable]) -> String {
    let file = file.map(|path| format!("in the configuration file {}", path.display()));
    let in_variables = "in the variables with `__` that set keys of the configuration file".to_owned();
    match (file, variables.is_empty()) {
        (Some(file), true) => file,
        (Some(file), false) => format!("{file}, or {in_variables}"),
        (None, _) => in_variables,
    }
}

/// The files for TLS. The certificate and its key belong together.
fn tls(
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    client_authorities: Option<PathBuf>,
) -> anyhow::Result<Option<ServerFiles>> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => {
            Ok(Some(ServerFiles { identity: Identity { certificate, key }, client_authorities }))
        }
        (None, None) if client_authorities.is_none() => Ok(None),
        (Some(_), None) => {
            anyhow::bail!("there is `tls_cert` without `tls_key`: give the file of its private key")
        }
        (None, Some(_)) => {
            anyhow::bail!("there is `tls_key` without `tls_cert`: give the file of its certificate")
        }
        (None, None) => {
            anyhow::bail!(
                "there is `tls_client_ca` without `tls_cert` and `tls_key`: give the certificate of the server too"
            )
        }
    }
}

/// The limits of one client.
fn clients(connections: Option<usize>, body_mib: Option<usize>) -> ClientLimits {
    let default = ClientLimits::default();
    ClientLimits {
        connections: connections.unwrap_or(default.connections),
        body_bytes: body_mib.map_or(default.body_bytes, |mib| mib << 20),
        ..default
    }
}

/// The parameters and results of active tasks that are kept in memory, by the MiB that they may take.
fn resident(resident_mib: Option<u64>) -> BodyPolicy {
    match resident_mib {
        None => BodyPolicy::default(),
        Some(0) => BodyPolicy::ALL,
        Some(mib) => BodyPolicy::up_to(mib << 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("windlass.toml");
        std::fs::write(
            &path,
            "[server]\nlisten = \"127.0.0.1:7800\"\nstore = \"memory:\"\nkeep_tasks = \"90d\"\nkeep_logs = \"1h\"\n",
        )
        .unwrap();
        let given = ServerSection {
            store: Some("sqlite:x.db".to_owned()),
            keep_logs: Some(Span::from_ms(60_000)),
            ..ServerSection::default()
        };
        let config = ServerConfig::load(given, Some(&path)).unwrap();
        assert_eq!(
            config.to_toml().unwrap(),
            "[server]\nlisten = \"127.0.0.1:7800\"\nstore = \"sqlite:x.db\"\nkeep_tasks = \"2160h\"\nkeep_logs = \"1m\"\nkeep_audit = \"8760h\"\n\
             client_connections = 2048\nclient_body_mib = 64\nresident_mib = 256\n\n[access]\ntokens = false\n"
        );
        let retention = config.retention();
        assert_eq!((retention.tasks, retention.logs), (Millis(90 * 86_400_000), Millis(60_000)));
        let config = ServerConfig::load(ServerSection::default(), None).unwrap();
        assert_eq!((config.listen, config.store.to_string()), (LISTEN_DEFAULT, STORE_DEFAULT.to_owned()));
    }

    #[test]
    fn variables_set_what_the_file_may_set_and_mistakes_in_them_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("windlass.toml");
        std::fs::write(&path, "[queues.mysql]\nqueue = \"steps\"\n").unwrap();
        let load = |name: &str, value: &str| {
            let given = Given { variables: vec![Variable::new(name, value)], ..Given::default() };
            ServerConfig::load(given, Some(&path)).map_err(|error| format!("{error:#}"))
        };
        let config = load("WINDLASS_QUEUES__mysql__BROKER", "redis://h:1").unwrap().to_toml().unwrap();
        assert!(config.contains("[queues.mysql]") && config.contains("steps"), "{config}");
        let error = load("WINDLASS_QUEUES__mysql__BROKERS", "amqp://me:secret@h").unwrap_err();
        assert!(
            error.contains("queues.mysql") && error.contains("brokers") && !error.contains("secret"),
            "{error}"
        );
        let error = load("WINDLASS_NOWHERE__KEY", "1").unwrap_err();
        assert!(error.contains("nowhere"), "{error}");
    }

    #[test]
    fn the_limits_of_a_client_are_those_that_are_set() {
        let given = ServerSection {
            client_connections: Some(4096),
            client_body_mib: Some(128),
            ..ServerSection::default()
        };
        let limits = ClientLimits { connections: 4096, body_bytes: 128 << 20, ..ClientLimits::default() };
        assert_eq!(ServerConfig::load(given, None).unwrap().clients, limits);
    }

    #[test]
    fn the_memory_for_tasks_is_limited() {
        let load = |resident_mib| {
            ServerConfig::load(ServerSection { resident_mib, ..ServerSection::default() }, None)
        };
        assert_eq!(load(None).unwrap().resident.bytes_max, 256 << 20);
        assert_eq!(load(Some(0)).unwrap().resident, BodyPolicy::ALL);
        assert_eq!(load(Some(1)).unwrap().resident.bytes_max, 1 << 20);
        for mib in [0, 1, 256] {
            let printed = load(Some(mib)).unwrap().to_toml().unwrap();
            assert!(printed.contains(&format!("resident_mib = {mib}\n")), "{printed}");
        }
    }

    #[test]
    fn an_unknown_setting_is_named_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("windlass.toml");
        std::fs::write(&path, "[server]\nlisten_on = \"127.0.0.1:7800\"\n").unwrap();
        let error = format!("{:#}", ServerConfig::load(ServerSection::default(), Some(&path)).unwrap_err());
        assert!(error.contains("line 2") && error.contains("listen_on"), "{error}");
    }

    #[test]
    fn a_single_section_of_intake_is_told_how_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("windlass.toml");
        let load = |section: &str| {
            let text = format!("[server]\n{section}\nbroker = \"kafka://h:1\"\nqueue = \"q\"\n");
            std::fs::write(&path, text).unwrap();
            ServerConfig::load(ServerSection::default(), Some(&path))
        };
        let error = format!("{:#}", load("[intake]").unwrap_err());
        assert!(error.contains("line 2, ") && error.contains("write `[[intake]]`"), "{error}");
        assert_eq!(load("[[intake]]").unwrap().brokers.intake.len(), 1);
    }

    #[test]
    fn a_line_with_a_password_is_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("windlass.toml");
        std::fs::write(&path, "[queues.m]\nbrokers = \"amqp://me:secret@host\"\n").unwrap();
        let error = format!("{:#}", ServerConfig::load(ServerSection::default(), Some(&path)).unwrap_err());
        assert!(
            error.contains("line 2") && error.contains("brokers") && !error.contains("secret"),
            "{error}"
        );
    }

    #[test]
    fn an_address_that_is_none_gets_an_example() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("windlass.toml");
        for bad in ["foo", "localhost:7700", ":7700", "127.0.0.1"] {
            assert!(parse_listen(bad).unwrap_err().contains("such as 127.0.0.1:7700"), "{bad}");
            std::fs::write(&path, format!("[server]\nlisten = \"{bad}\"\n")).unwrap();
            let error =
                format!("{:#}", ServerConfig::load(ServerSection::default(), Some(&path)).unwrap_err());
            assert!(error.contains("line 2") && error.contains("such as 127.0.0.1:7700"), "{error}");
        }
    }

    #[test]
    fn an_address_that_others_can_reach_must_be_meant() {
        let mut config = ServerConfig::load(ServerSection::default(), None).unwrap();
        assert!(config.check_address(false).is_ok());
        config.listen = "0.0.0.0:7700".parse().unwrap();
        let refused = |config: &ServerConfig| config.check_address(false).unwrap_err().to_string();
        let error = refused(&config);
        assert!(
            ["--insecure", "--require-tokens", "--tls-cert"].iter().all(|flag| error.contains(flag)),
            "{error}"
        );
        assert!(config.check_address(true).is_ok());
        config.access.tokens = true;
        let error = refused(&config);
        assert!(error.contains("--tls-cert") && !error.contains("--require-tokens"), "{error}");
        config.tls = tls(Some("cert".into()), Some("key".into()), None).unwrap();
        assert!(config.check_address(false).is_ok());
        config.access.tokens = false;
        let error = refused(&config);
        assert!(error.contains("--require-tokens") && !error.contains("--tls-cert"), "{error}");
    }

    #[test]
    fn a_certificate_and_its_key_belong_together() {
        for (given, missing) in [
            (tls(Some("c".into()), None, None), "tls_key"),
            (tls(None, Some("k".into()), None), "tls_cert"),
            (tls(None, None, Some("a".into())), "tls_cert"),
        ] {
            let error = given.unwrap_err().to_string();
            assert!(error.contains(missing), "{error}");
        }
    }

    #[test]
    fn tokens_are_asked_for_by_flags_over_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("windlass.toml");
        let load = |flag: Option<bool>, text: &str| {
            std::fs::write(&path, text).unwrap();
            let access = AccessSection { tokens: flag, ..AccessSection::default() };
            ServerConfig::load(Given { access, ..Given::default() }, Some(&path)).map(|config| config.access)
        };
        let tokens = |flag, text| load(flag, text).unwrap().tokens;
        assert!(!tokens(None, "") && tokens(None, "[access]\ntokens = true\n") && tokens(Some(true), ""));
        assert!(!tokens(Some(false), "[access]\ntokens = true\n"));
        let file = "[access]\nadmin_token_file = \"/secret\"\n";
        assert_eq!(load(Some(true), file).unwrap().admin_token_file, Some(PathBuf::from("/secret")));
        let error = load(None, file).unwrap_err().to_string();
        assert!(error.contains("--require-tokens"), "{error}");
        let error = format!("{:#}", load(None, "[access]\ntoken = true\n").unwrap_err());
        assert!(error.contains("line 2") && error.contains("token"), "{error}");
    }
}
