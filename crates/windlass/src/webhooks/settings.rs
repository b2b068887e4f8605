//! The sections `[[webhook]]` of the configuration.

use std::{fmt, ops::RangeInclusive, path::PathBuf};
use utoipa::ToSchema;

use anyhow::{Context as _, bail, ensure};
use reqwest::Url;
use serde::{Deserialize, Serialize};
use windlass_core::{AlarmKind, Name, Secret};

use super::{
    address::{NotPermitted, Reach},
    message::Kind,
};
use crate::{http::webhook_secret, outgoing::address_of};

/// What the modules of deliveries begin with.
const MODULE_PREFIX: &str = "webhook-";

/// The default of `in_flight`.
const IN_FLIGHT_DEFAULT: u32 = 8;

/// The range of `in_flight`.
const IN_FLIGHT: RangeInclusive<u32> = 1..=100;

/// Bytes of a secret, as Standard Webhooks asks for.
const SECRET_BYTES: RangeInclusive<usize> = 24..=64;

/// Secrets of one webhook: two while a new one replaces the old one.
const SECRETS_MAX: usize = 4;

/// A section `[[webhook]]`: requests to one URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebhookSection {
    /// Its name.
    name: String,
    /// Where requests go.
    url: String,
    /// What requests are signed with: `whsec_` and base64. Several have spaces between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    /// The kinds of messages. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    events: Vec<Kind>,
    /// The flows whose tasks are reported. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    flows: Vec<String>,
    /// The kinds of alarms that are reported. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    alarms: Vec<String>,
    /// Networks that it may reach beside the public internet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    networks: Vec<String>,
    /// File with the CA certificates to trust, in place of the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    ca_file: Option<PathBuf>,
    /// Requests at once. Default: 8.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_flight: Option<u32>,
}

/// Requests to one URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WebhookSettings {
    pub(super) name: Name,
    /// The module of its deliveries.
    pub(super) module: Name,
    pub(super) url: WebhookUrl,
    pub(super) secrets: Vec<Secret>,
    pub(super) kinds: Vec<Kind>,
    /// The flows whose tasks are reported; empty = all.
    pub(super) flows: Vec<Name>,
    /// The kinds of alarms that are reported; empty = all.
    pub(super) alarms: Vec<AlarmKind>,
    pub(super) reach: Reach,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) in_flight: u32,
}

/// The URL of a webhook. Any part behind the host may be a secret: `Display` and `Debug` show scheme and host.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct WebhookUrl(pub(super) Url);

impl fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host) = (self.0.scheme(), self.0.host_str().unwrap_or_default());
        match self.0.port() {
            Some(port) => write!(f, "{scheme}://{host}:{port}/…"),
            None => write!(f, "{scheme}://{host}/…"),
        }
    }
}

impl fmt::Debug for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl WebhookSettings {
    /// Whether it is to hear of any alarms.
    pub(super) fn wants_alarms(&self) -> bool {
        self.kinds.contains(&Kind::AlarmRaised)
    }

    /// Whether it is to hear of alarms of this kind.
    pub(super) fn wants_alarm(&self, kind: AlarmKind) -> bool {
        self.wants_alarms() && (self.alarms.is_empty() || self.alarms.contains(&kind))
    }

    /// The settings as a section of a configuration file, without what may be secret.
    pub(crate) fn section(&self) -> WebhookSection {
        WebhookSection {
            name: self.name.to_string(),
            url: self.url.to_string(),
            secret: None,
            events: self.kinds.clone(),
            flows: self.flows.iter().map(Name::to_string).collect(),
            alarms: self.alarms.iter().map(|kind| kind.as_str().to_owned()).collect(),
            networks: self.reach.networks.iter().map(ToString::to_string).collect(),
            ca_file: self.ca_file.clone(),
            in_flight: Some(self.in_flight),
        }
    }
}

/// Reads the sections of a configuration file.
///
/// # Errors
/// When a value is invalid, or two sections have the same name.
pub(crate) fn read(sections: Vec<WebhookSection>) -> anyhow::Result<Vec<WebhookSettings>> {
    let mut webhooks: Vec<WebhookSettings> = Vec::new();
    for section in sections {
        let place = place(&section.name);
        let webhook = read_one(section).with_context(|| place.clone())?;
        ensure!(
            webhooks.iter().all(|other| other.name != webhook.name),
            "{place}: there are two with this name: deliveries of one would go to the other"
        );
        webhooks.push(webhook);
    }
    Ok(webhooks)
}

/// Where a webhook is configured, for error messages.
pub(super) fn place(name: &(impl fmt::Display + ?Sized)) -> String {
    format!("[[webhook]] with the name {name}")
}

fn read_one(section: WebhookSection) -> anyhow::Result<WebhookSettings> {
    let WebhookSection { name, url, secret, events, flows, alarms, networks, ca_file, in_flight } = section;
    let module = Name::new(&format!("{MODULE_PREFIX}{name}")).context("`name`")?;
    let name = Name::new(&name).context("`name`")?;
    let networks = networks.iter().map(|network| network.parse().map_err(anyhow::Error::msg));
    let reach = Reach { networks: networks.collect::<Result<_, _>>().context("`networks`")? };
    let url = url_of(&url, &reach).context("`url`")?;
    let in_flight = in_flight.unwrap_or(IN_FLIGHT_DEFAULT);
    ensure!(
        IN_FLIGHT.contains(&in_flight),
        "`in_flight` is {in_flight}: use {} to {}",
        IN_FLIGHT.start(),
        IN_FLIGHT.end()
    );
    Ok(WebhookSettings {
        module,
        url: WebhookUrl(url),
        secrets: secrets(secret.as_deref()).context("`secret`")?,
        kinds: if events.is_empty() { Kind::ALL.to_vec() } else { events },
        flows: flows.iter().map(|flow| Name::new(flow)).collect::<Result<_, _>>().context("`flows`")?,
        alarms: alarms.iter().map(|code| alarm_kind(code)).collect::<Result<_, _>>().context("`alarms`")?,
        reach,
        ca_file,
        in_flight,
        name,
    })
}

fn alarm_kind(code: &str) -> anyhow::Result<AlarmKind> {
    AlarmKind::of_code(code).with_context(|| {
        let known: Vec<&str> = AlarmKind::ALL.iter().map(|kind| kind.as_str()).collect();
        format!("there is no alarm {code}; alarms are {}", known.join(", "))
    })
}

/// The error messages do not contain the URL, which may be secret.
fn url_of(text: &str, reach: &Reach) -> anyhow::Result<Url> {
    let url = Url::parse(text).context("it is not a URL, such as https://example.com/hooks")?;
    let host = url.host_str().unwrap_or_default().to_owned();
    match url.scheme() {
        "https" => {}
        "http" if !reach.networks.is_empty() => {}
        "http" => bail!(
            "it is not encrypted: use https://, or http:// with `networks` for a receiver in a network of your own"
        ),
        scheme => bail!("the scheme is {scheme:?}: use https://"),
    }
    match address_of(&url) {
        Some(address) if !reach.permits(address) => Err(NotPermitted { host, address }.into()),
        _ => Ok(url),
    }
}

/// The error messages do not contain the secret.
fn secrets(text: Option<&str>) -> anyhow::Result<Vec<Secret>> {
    let Some(text) = text else {
        bail!(
            "it is missing: receivers check by it that the server has sent a request. Make one with `openssl rand -base64 32`, and write whsec_ before it"
        );
    };
    let secrets = text.split_whitespace().map(|text| {
        ensure!(text.starts_with("whsec_"), "write whsec_ and then 24 to 64 random bytes in base64");
        let secret = webhook_secret(text).context("behind whsec_ is invalid base64")?;
        ensure!(
            SECRET_BYTES.contains(&secret.0.len()),
            "behind whsec_ are {} bytes: use {} to {}",
            secret.0.len(),
            SECRET_BYTES.start(),
            SECRET_BYTES.end()
        );
        Ok(secret)
    });
    let secrets = secrets.collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(!secrets.is_empty(), "it is empty");
    ensure!(secrets.len() <= SECRETS_MAX, "there are {}: use up to {SECRETS_MAX}", secrets.len());
    Ok(secrets)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn section(url: &str) -> WebhookSection {
        WebhookSection {
            name: "orders".to_owned(),
            url: url.to_owned(),
            secret: Some(SECRET.to_owned()),
            events: Vec::new(),
            flows: Vec::new(),
            alarms: Vec::new(),
            networks: Vec::new(),
            ca_file: None,
            in_flight: None,
        }
    }

    fn error(section: WebhookSection) -> String {
        format!("{:#}", read(vec![section]).unwrap_err())
    }

    #[test]
    fn what_is_not_said_is_the_usual_and_secrets_are_not_shown() {
        let webhooks = read(vec![section("https://u:hush@example.com:8443/T0/hush?k=hush")]).unwrap();
        let webhook = &webhooks[0];
        assert_eq!((webhook.module.as_str(), webhook.in_flight), ("webhook-orders", 8));
        assert_eq!(webhook.kinds, Kind::ALL);
        let shown = format!("{webhook:?} {}", toml::to_string(&webhook.section()).unwrap());
        assert!(!shown.contains("hush") && !shown.contains("MfKQ"), "{shown}");
        assert!(shown.contains("https://example.com:8443/…"), "{shown}");
    }

    #[test]
    fn a_webhook_hears_of_the_alarms_that_it_names_if_it_hears_of_alarms() {
        let kinds = |section: WebhookSection| {
            let webhook = read(vec![section]).unwrap().remove(0);
            AlarmKind::ALL.into_iter().filter(|kind| webhook.wants_alarm(*kind)).collect::<Vec<_>>()
        };
        let named = || vec!["rollback_failed".to_owned(), "held".to_owned()];
        let plain = || section("https://example.com");
        assert_eq!(kinds(plain()), AlarmKind::ALL);
        assert_eq!(
            kinds(WebhookSection { alarms: named(), ..plain() }),
            [AlarmKind::Held, AlarmKind::RollbackFailed]
        );
        let events = vec![Kind::TaskFailed];
        assert_eq!(kinds(WebhookSection { alarms: named(), events, ..plain() }), []);
    }

    #[test]
    fn what_cannot_be_used_is_refused_and_not_repeated() {
        let with = |change: fn(&mut WebhookSection)| {
            let mut section = section("https://example.com/hush");
            change(&mut section);
            error(section)
        };
        for (error, part) in [
            (error(section("http://example.com/hush")), "not encrypted"),
            (error(section("ftp://example.com/hush")), "use https://"),
            (error(section("hush")), "it is not a URL"),
            (error(section("https://10.1.2.3/hush")), "add its network to `networks`"),
            (with(|section| section.secret = None), "it is missing"),
            (with(|section| section.secret = Some("hush".to_owned())), "write whsec_"),
            (with(|section| section.secret = Some("whsec_hush!".to_owned())), "invalid base64"),
            (with(|section| section.secret = Some("whsec_aHVzaA==".to_owned())), "are 4 bytes"),
            (with(|section| section.name = "a b".to_owned()), "`name`"),
            (with(|section| section.in_flight = Some(0)), "`in_flight` is 0"),
            (with(|section| section.networks = vec!["10.0.0.0".to_owned()]), "invalid network"),
            (with(|section| section.alarms = vec!["held".to_owned(), "hold".to_owned()]), "no alarm hold;"),
        ] {
            assert!(error.contains(part), "{error}");
            assert!(!error.replace("behind whsec_", "").contains("hush"), "{error}");
        }
        let both = read(vec![section("https://a.example"), section("https://b.example")]);
        assert!(both.unwrap_err().to_string().contains("there are two"));
        let networks = vec!["10.0.0.0/8".to_owned()];
        assert!(read(vec![WebhookSection { networks, ..section("http://10.1.2.3/x") }]).is_ok());
    }
}
