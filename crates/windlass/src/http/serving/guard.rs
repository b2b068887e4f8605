//! What goes around every request: pages of other sites are kept out, the caller's access is checked, and the request is
//! counted.
//!
//! A page in a browser on this machine can send requests to a loopback address. Two things keep it out. Its
//! requests name the page's own host when it was reached through DNS rebinding, so a server on loopback answers
//! only to loopback names. And they carry the page's origin when they would change something.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use axum::{
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, Method, Uri, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};

use windlass_engine::audited;

use crate::http::{
    App,
    access::{self, AuditedOperations},
    answer::problem::Refused,
};

/// What requests that meet no route are counted under.
const OTHER: &str = "other";

/// Which hosts a server answers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hosts {
    /// The names of loopback addresses: for a server that only this machine can reach.
    Loopback,
    /// Any: others know this server by names that it does not know.
    Any,
}

impl Hosts {
    /// The hosts of a server that listens on `address`.
    pub(crate) fn of_listener(address: IpAddr) -> Self {
        if address.is_loopback() { Self::Loopback } else { Self::Any }
    }
}

/// Goes around every request.
pub(crate) async fn around(
    State((app, hosts, audited)): State<(Arc<App>, Hosts, Arc<AuditedOperations>)>,
    route: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    let method = request.method().clone();
    let route = route.as_ref().map(MatchedPath::as_str);
    let response = match check(hosts, &method, request.uri(), request.headers()) {
        Ok(()) => admitted(&app, &audited, route, request, next).await,
        Err(refused) => refused.into_response(),
    };
    let route = route.unwrap_or(OTHER);
    app.metrics.request(route, &method, response.status());
    response
}

/// Lets the handler answer, if the caller may ask.
async fn admitted(
    app: &Arc<App>,
    operations: &AuditedOperations,
    route: Option<&str>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let grant = match access::admit(app, route, &mut parts).await {
        Ok(grant) => grant,
        Err(refused) => return refused.into_response(),
    };
    parts.extensions.insert(grant.clone());
    let operation = operations.find(route, &parts);
    let answering = next.run(Request::from_parts(parts, body));
    let response = match operation {
        Some(operation) => audited(operation, answering).await,
        None => answering.await,
    };
    access::until_revoked(app, &grant, response)
}

fn check(hosts: Hosts, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Refused> {
    if headers.get_all(header::HOST).iter().nth(1).is_some() {
        return Err(Refused::malformed("the request has more than one header `Host`: send one"));
    }
    let encodings = headers.get_all(header::CONTENT_ENCODING).iter();
    let mut encodings = encodings.flat_map(|value| value.to_str().unwrap_or("?").split(',').map(str::trim));
    if let Some(encoding) =
        encodings.find(|encoding| !encoding.is_empty() && !encoding.eq_ignore_ascii_case("identity"))
    {
        return Err(Refused::unsupported_media_type(format!(
            "the request has the header `Content-Encoding: {encoding}`: send the body without compression"
        )));
    }
    let host = match (uri.authority(), headers.get(header::HOST)) {
        (Some(authority), _) => Some(authority.as_str()),
        (None, Some(host)) => Some(host.to_str().unwrap_or("?")),
        (None, None) => None,
    };
    if let (Hosts::Loopback, Some(host)) = (hosts, host)
        && !is_loopback_name(host)
    {
        return Err(Refused::misdirected(format!(
            "the request is for the host {host:?}, and this server answers to localhost and loopback addresses only, such as 127.0.0.1 and [::1]"
        )));
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let is_own = origin.to_str().is_ok_and(|origin| {
        let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        authority.is_some() && authority == host
    });
    if is_own || matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return Ok(());
    }
    Err(Refused::foreign_origin(
        "the request comes from a page of another site, which may not change anything here",
    ))
}

/// Whether a `Host` names this machine, with any port.
fn is_loopback_name(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(address) => address.parse().is_ok_and(|address: Ipv6Addr| address.is_loopback()),
        None => {
            name.is_empty()
                || name.eq_ignore_ascii_case("localhost")
                || name.parse().is_ok_and(|address: Ipv4Addr| address.is_loopback())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(hosts: Hosts, method: &Method, headers: &[(&'static str, &str)]) -> bool {
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.append(*name, value.parse().unwrap());
        }
        check(hosts, method, &Uri::from_static("/v1/tasks"), &all).is_ok()
    }

    #[test]
    fn on_loopback_only_loopback_names_are_answered() {
        for host in [
            "localhost",
            "LOCALHOST:7700",
            "127.0.0.1",
            "127.0.0.1:1",
            "127.0.0.2:7700",
            "127.255.255.254",
            "[::1]",
            "[::1]:7700",
            "[0:0:0:0:0:0:0:1]",
        ] {
            assert!(passes(Hosts::Loopback, &Method::GET, &[("host", host)]), "{host}");
        }
        assert!(passes(Hosts::Loopback, &Method::GET, &[]));
        for host in [
            "evil.example",
            "evil.example:7700",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "::1:x",
            "127.0.0.1:x",
            "128.0.0.1",
            "0.0.0.0",
            "[::2]",
            "::1",
        ] {
            assert!(!passes(Hosts::Loopback, &Method::GET, &[("host", host)]), "{host}");
            assert!(passes(Hosts::Any, &Method::GET, &[("host", host)]), "{host}");
        }
    }

    #[test]
    fn a_request_is_for_one_host_and_its_body_is_not_compressed() {
        let is_refused = |headers| !passes(Hosts::Any, &Method::POST, headers);
        assert!(is_refused(&[("host", "a"), ("host", "a")]), "a proxy may have read the other one");
        assert!(is_refused(&[("host", "a"), ("content-encoding", "gzip")]));
        assert!(is_refused(&[("host", "a"), ("content-encoding", "identity"), ("content-encoding", "br")]));
        assert!(!is_refused(&[("host", "a"), ("content-encoding", "Identity, identity")]));
        assert!(!is_refused(&[("host", "a"), ("content-encoding", "")]));
    }

    #[test]
    fn pages_of_other_sites_change_nothing() {
        let from = |method: &Method, origin: &str| {
            passes(Hosts::Loopback, method, &[("host", "localhost:7700"), ("origin", origin)])
        };
        assert!(from(&Method::POST, "http://localhost:7700"));
        assert!(from(&Method::GET, "https://evil.example"), "it cannot read the answer");
        for origin in ["https://evil.example", "null", "http://localhost:8080", "localhost:7700", ""] {
            assert!(!from(&Method::POST, origin), "{origin}");
            assert!(!from(&Method::PUT, origin), "{origin}");
        }
    }
}
