//! The section `[traces]` of the configuration.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context as _, bail, ensure};
use reqwest::{
    Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass_engine::Sampling;

use crate::outgoing::address_of;

/// The default of `service`.
const SERVICE_DEFAULT: &str = "windlass";

/// The section `[traces]`: spans for a collector of OpenTelemetry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TracesSection {
    /// Base URL of the collector, for OTLP over HTTP. `/v1/traces` is added to it.
    endpoint: String,
    /// The share of tasks that are recorded if their submit does not say so, from 0 to 1. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    sample: Option<f64>,
    /// The `service.name` of the spans. Default: windlass.
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<String>,
    /// Headers of each request, such as an API key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    /// File with the CA certificates to trust, in place of the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    ca_file: Option<PathBuf>,
    /// Allows `http://` to another machine. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    insecure: Option<bool>,
}

/// Where spans go, and which ones.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TracesSettings {
    endpoint: Url,
    pub(super) sampling: Sampling,
    sample: f64,
    pub(super) service: String,
    pub(super) headers: HeaderMap,
    pub(super) ca_file: Option<PathBuf>,
    insecure: bool,
}

impl TracesSettings {
    /// The URL to which spans are posted.
    pub(super) fn url(&self) -> Url {
        let mut url = self.endpoint.clone();
        url.set_path(&format!("{}/v1/traces", url.path().trim_end_matches('/')));
        url
    }

    /// The settings as a section of a configuration file, without what may be secret.
    pub(crate) fn section(&self) -> TracesSection {
        TracesSection {
            endpoint: self.endpoint.to_string(),
            sample: Some(self.sample),
            service: Some(self.service.clone()),
            headers: BTreeMap::new(),
            ca_file: self.ca_file.clone(),
            insecure: Some(self.insecure),
        }
    }
}

/// Reads the section.
///
/// # Errors
/// When a value is invalid.
pub(crate) fn read(section: TracesSection) -> anyhow::Result<TracesSettings> {
    let TracesSection { endpoint, sample, service, headers, ca_file, insecure } = section;
    let insecure = insecure.unwrap_or(false);
    let endpoint = url_of(&endpoint, insecure).context("[traces]: `endpoint`")?;
    let sample = sample.unwrap_or(1.0);
    ensure!((0.0..=1.0).contains(&sample), "[traces]: `sample` is {sample}: use 0 to 1, such as 0.1");
    let service = service.unwrap_or_else(|| SERVICE_DEFAULT.to_owned());
    ensure!(!service.is_empty(), "[traces]: `service` is empty");
    let headers = headers.iter().map(|(name, value)| header(name, value)).collect::<anyhow::Result<_>>()?;
    let sampling = Sampling::new(sample);
    Ok(TracesSettings { endpoint, sampling, sample, service, headers, ca_file, insecure })
}

fn url_of(text: &str, insecure: bool) -> anyhow::Result<Url> {
    let url = Url::parse(text).context("it is not a URL, such as http://127.0.0.1:4318")?;
    ensure!(
        url.username().is_empty() && url.password().is_none() && url.query().is_none(),
        "it has a user, a password or a query, which would be shown in logs: give secrets in `headers`"
    );
    let is_local =
        url.host_str() == Some("localhost") || address_of(&url).is_some_and(|address| address.is_loopback());
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_local || insecure => Ok(url),
        "http" => bail!(
            "it is not encrypted: use https://, or set `insecure` if the network itself keeps strangers out"
        ),
        scheme => bail!(
            "the scheme is {scheme:?}: use http:// or https:// (OTLP over HTTP; gRPC is not supported, collectors \
             listen for HTTP at port 4318)"
        ),
    }
}

/// The error messages do not contain the value, which may be secret.
fn header(name: &str, value: &str) -> anyhow::Result<(HeaderName, HeaderValue)> {
    let place = || format!("[traces]: `headers`: {name:?}");
    let header = HeaderName::try_from(name).with_context(place)?;
    let mut value = HeaderValue::try_from(value).with_context(place)?;
    value.set_sensitive(true);
    Ok((header, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(text: &str) -> anyhow::Result<TracesSettings> {
        read(toml::from_str(text)?)
    }

    #[test]
    fn what_is_not_given_is_the_usual_and_headers_are_not_shown() {
        let settings = section(r#"endpoint = "http://127.0.0.1:4318""#).unwrap();
        assert_eq!(settings.url().as_str(), "http://127.0.0.1:4318/v1/traces");
        assert_eq!((settings.sample, settings.service.as_str()), (1.0, "windlass"));
        let text = "endpoint = \"https://otlp.example/base/\"\n[headers]\nApi-Key = \"hush\"";
        let settings = section(text).unwrap();
        assert_eq!(settings.url().as_str(), "https://otlp.example/base/v1/traces");
        assert_eq!(settings.headers["api-key"], "hush");
        let shown = format!("{settings:?} {}", toml::to_string(&settings.section()).unwrap());
        assert!(!shown.contains("hush"), "{shown}");
    }

    #[test]
    fn what_cannot_be_used_is_refused_and_not_repeated() {
        for (text, part) in [
            (r#"endpoint = "collector:4317""#, "OTLP over HTTP"),
            (r#"endpoint = "http://collector.example:4318""#, "not encrypted"),
            (r#"endpoint = "https://u:hush@collector.example""#, "give secrets in `headers`"),
            ("endpoint = \"http://[::1]:4318\"\nsample = 1.5", "`sample` is 1.5"),
            ("endpoint = \"http://[::1]:4318\"\nservice = \"\"", "`service` is empty"),
            ("endpoint = \"http://[::1]:4318\"\nheaders = { \"a b\" = \"hush\" }", "`headers`: \"a b\""),
            ("endpoint = \"http://[::1]:4318\"\nheaders = { a = \"hush\\n\" }", "`headers`: \"a\""),
        ] {
            let error = format!("{:#}", section(text).unwrap_err());
            assert!(error.contains(part) && !error.contains("hush"), "{error}");
        }
        let text = "endpoint = \"http://collector.example:4318\"\ninsecure = true";
        assert!(section(text).is_ok());
    }
}
