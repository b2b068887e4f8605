//! What all requests share that the server makes to others: webhooks, and collectors of traces.

use std::{error::Error as _, net::IpAddr, path::Path};

use reqwest::{Client, ClientBuilder, Response, Url, header::RETRY_AFTER, redirect::Policy};
use windlass_tls::{ClientConfig, ClientFiles, client_config, config_without_roots};

/// A client for requests to this URL. It trusts the CA certificates in `ca_file`, or those of the system. It follows no
/// redirects, which name another host.
///
/// # Errors
/// When the certificates cannot be used.
pub(crate) fn client_for(url: &Url, ca_file: Option<&Path>) -> anyhow::Result<ClientBuilder> {
    let config = match url.scheme() {
        "https" => {
            client_config(&ClientFiles { authorities: ca_file.map(Path::to_path_buf), identity: None })
        }
        _ => config_without_roots(None),
    };
    Ok(Client::builder()
        .user_agent(concat!("windlass/", env!("CARGO_PKG_VERSION")))
        .redirect(Policy::none())
        .http1_only()
        .tls_backend_preconfigured(ClientConfig::clone(&*config?)))
}

/// The address that a URL has in place of a host name.
pub(crate) fn address_of(url: &Url) -> Option<IpAddr> {
    url.host_str()?.trim_matches(['[', ']']).parse().ok()
}

/// The pause that an answer asks for, in seconds.
pub(crate) fn retry_after(answer: &Response) -> Option<u64> {
    answer.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()
}

/// An error without the URL, and with its causes.
pub(crate) fn explain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        cause = error.source();
    }
    text
}
