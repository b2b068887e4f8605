//! Access: who calls, and whether that one may. Every request passes [`admit`] before its handler.
//!
//! ```text
//! Authorization ─▶ known token? ──no──▶ 401, or 429 after many
//!                      │ yes
//!                      ▼
//!           table: role and scope enough? ──no──▶ 403
//!                      │ yes
//!                      ▼
//!           handler, with a Grant: asks it about what is in the body
//! ```

mod audited;
mod failures;
mod grant;
mod known;
mod table;

use std::{net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use axum::{
    extract::{FromRequestParts as _, RawPathParams},
    http::{HeaderMap, HeaderValue, header, request::Parts},
    response::Response,
};
use futures_util::StreamExt as _;
use hyper::body::Body as _;
use windlass_core::{Name, TaskId};
use windlass_engine::{AccessSecret, Engine, EngineError, is_same_hash};

use crate::{
    access::read_file,
    http::{App, answer::problem::Refused, jobs::JobId, request::Query, serving::connections::Connection},
};
use failures::{Failures, Verdict};
use known::{KNOWN_FOR, KnownToken, KnownTokens};
use table::{Need, Rule, Scoped};

pub(crate) use audited::{AuditedOperations, is_audited};
pub(crate) use grant::Grant;

/// How often the last uses of tokens are stored.
const STORE_USES_EVERY: Duration = Duration::from_secs(60);

/// What a server that asks for tokens knows.
#[derive(Debug, Default)]
pub(crate) struct Access {
    known: KnownTokens,
    failures: Failures,
    /// The file with the token of an admin, if the server has one.
    admin_file: Option<PathBuf>,
}

impl Access {
    pub(super) fn new(admin_file: Option<PathBuf>) -> Self {
        Self { admin_file, ..Self::default() }
    }

    /// Refuses to revoke a token that is in the file: it would be valid again when the server starts.
    pub(super) async fn may_revoke(&self, engine: &Engine, name: &Name) -> Result<(), Refused> {
        let Some((file, secret)) =
            self.admin_file.as_ref().and_then(|file| Some((file, read_file(file).ok()?)))
        else {
            return Ok(());
        };
        let hash = AccessSecret::hash_of(secret.text());
        let tokens = engine.access_tokens().await?;
        match tokens.iter().any(|token| token.name == *name && is_same_hash(&token.hash, &hash)) {
            false => Ok(()),
            true => Err(Refused::token_of_file(format!(
                "the token {:?} is in the file {} (--admin-token-file), so it would be valid again when a server starts: write \
                 another token into the file first, or stop using the file, then revoke it and restart the servers",
                name.as_str(),
                file.display()
            ))),
        }
    }

    /// Tokens were created or revoked here: the next request reads them again.
    pub(crate) fn forget(&self) {
        self.known.forget();
    }
}

/// Lets a request in, or refuses it. `route` is the route that it meets, if any.
pub(crate) async fn admit(app: &Arc<App>, route: Option<&str>, parts: &mut Parts) -> Result<Grant, Refused> {
    let Some(access) = &app.access else { return Ok(Grant::open()) };
    let rule = route.and_then(|route| table::rule(&parts.method, route));
    if let Some(Rule { need: Need::Nothing | Need::Signature, .. }) = rule {
        return Ok(Grant::none());
    }
    let token = authenticate(app, access, parts).await?;
    match (rule, route) {
        (Some(rule), _) => permit(app, token, rule, parts).await,
        // The fallback says that there is nothing.
        (None, None) => Ok(Grant::of(token)),
        (None, Some(route)) => match table::methods(route) {
            methods if methods.is_empty() => Err(Refused::forbidden(format!(
                "no rule says who may use {route}, so nobody may: this is a defect of the program"
            ))),
            methods => {
                let allow = HeaderValue::try_from(methods.join(", "));
                let refused = Refused::method_not_allowed(parts.method.as_str(), parts.uri.path());
                Err(allow.into_iter().fold(refused, |refused, allow| refused.with(header::ALLOW, allow)))
            }
        },
    }
}

/// Lets a request to a trigger in that checks no signature: it needs the token of an operator.
pub(crate) async fn admit_unsigned(app: &Arc<App>, parts: &mut Parts) -> Result<(), Refused> {
    let Some(access) = &app.access else { return Ok(()) };
    let token = authenticate(app, access, parts).await?;
    let rule = Rule { need: Need::Operator, scoped: Scoped::Server };
    permit(app, token, rule, parts).await.map(drop)
}

/// The token of a request.
async fn authenticate(app: &App, access: &Access, parts: &Parts) -> Result<Arc<KnownToken>, Refused> {
    let text = bearer(&parts.headers)?;
    let found = match AccessSecret::id_in(text) {
        None => Err("a token has the form wl_ID_SECRET".to_owned()),
        Some(id) => match access.known.find(&app.engine, id).await? {
            Some(known) if is_same_hash(&AccessSecret::hash_of(text), &known.token.hash) => Ok(known),
            _ => Err("it was revoked, or never was one of this server".to_owned()),
        },
    };
    let now = app.now().wall;
    let refused = match found {
        Ok(known) if known.token.is_expired(now) => {
            format!("the token {:?} has expired: create another one", known.token.name.as_str())
        }
        Ok(known) => {
            known.note_use(now);
            return Ok(known);
        }
        Err(why) => format!("the token is not valid: {why}"),
    };
    let client = client(parts);
    let verdict = access.failures.count(client, app.uptime());
    // The first one of an address, so that strangers do not fill the log.
    if let Verdict::First | Verdict::Wait { is_first: true, .. } = verdict {
        let must_wait = matches!(verdict, Verdict::Wait { .. });
        tracing::warn!(%client, path = parts.uri.path(), must_wait, "an access token was refused: {refused}");
    }
    match verdict {
        Verdict::First | Verdict::Refused => Err(Refused::unauthorized(refused, INVALID)),
        Verdict::Wait { seconds, .. } => Err(Refused::too_many_failures(seconds)),
    }
}

const MISSING: HeaderValue = HeaderValue::from_static("Bearer realm=\"windlass\"");
const INVALID: HeaderValue = HeaderValue::from_static("Bearer realm=\"windlass\", error=\"invalid_token\"");

/// What follows `Bearer`.
fn bearer(headers: &HeaderMap) -> Result<&str, Refused> {
    let missing = |what: &str| {
        Refused::unauthorized(
            format!(
                "{what}: send the header `Authorization: Bearer TOKEN` with an access token of this server"
            ),
            MISSING,
        )
    };
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (first, second) = (values.next(), values.next());
    let first = first.ok_or_else(|| missing("this server asks for an access token"))?;
    if second.is_some() {
        return Err(missing("the request has the header `Authorization` twice"));
    }
    let scheme_and_rest = first.to_str().ok().and_then(|text| text.split_once(' '));
    match scheme_and_rest {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("bearer") => Ok(rest.trim()),
        _ => Err(missing("the header `Authorization` has no bearer token")),
    }
}

/// The address of the client; unspecified for a request that came over no connection.
fn client(parts: &Parts) -> IpAddr {
    let connection = parts.extensions.get::<Arc<Connection>>();
    connection.map_or(IpAddr::from([0, 0, 0, 0]), |connection| connection.client())
}

/// Whether a token may do what the request asks for, as far as its head says.
async fn permit(
    app: &Arc<App>,
    token: Arc<KnownToken>,
    rule: Rule,
    parts: &mut Parts,
) -> Result<Grant, Refused> {
    let (name, role) = (&token.token.name, token.token.role);
    if !rule.need.is_met_by(role) {
        return Err(Refused::forbidden(format!(
            "the token {:?} has the role {}, and this needs the role {}",
            name.as_str(),
            role.as_str(),
            rule.need.role()
        )));
    }
    let grant = Grant::of(token);
    if grant.is_limited() {
        check_scope(app, &grant, rule.scoped, parts).await?;
    }
    Ok(grant)
}

async fn check_scope(
    app: &Arc<App>,
    grant: &Grant,
    scoped: Scoped,
    parts: &mut Parts,
) -> Result<(), Refused> {
    match scoped {
        // The handler asks.
        Scoped::Body | Scoped::Answer => Ok(()),
        Scoped::Server => grant.server(),
        Scoped::FlowInPath => grant.flow(&in_path(parts, "name").await?),
        Scoped::QueueInPath => grant.queue(&in_path(parts, "name").await?),
        Scoped::FlowInQuery => grant.flow_filter(only_flow(parts).as_deref()),
        Scoped::JobInQuery => {
            let Query(JobId(id)) = Query::from_request_parts(parts, app).await?;
            check_task(app, grant, id, || Refused::unknown_job(id)).await
        }
        Scoped::TaskInPath => {
            let text = in_path(parts, "id").await?;
            let unknown = || Refused::unknown_task(format!("there is no task {text:?}"));
            let id: TaskId = text.parse().map_err(|_| unknown())?;
            check_task(app, grant, id, unknown).await
        }
    }
}

/// Whether the flow of a task is in scope.
async fn check_task(
    app: &App,
    grant: &Grant,
    id: TaskId,
    unknown: impl FnOnce() -> Refused,
) -> Result<(), Refused> {
    match app.engine.task(id).await {
        Ok(loaded) => grant.flow(&loaded.task.flow.name),
        Err(EngineError::UnknownTask(_)) => Err(unknown()),
        Err(error) => Err(error.into()),
    }
}

/// A part of the path, decoded.
async fn in_path(parts: &mut Parts, name: &str) -> Result<String, Refused> {
    let params = RawPathParams::from_request_parts(parts, &()).await;
    let params = params.map_err(|rejection| Refused::malformed(rejection.body_text()))?;
    let found = params.iter().find(|(found, _)| *found == name).map(|(_, value)| value.to_owned());
    found.ok_or_else(|| Refused::fault(format!("the route has no part {name:?}")))
}

/// The flow that a query filters by, if it is there exactly once.
fn only_flow(parts: &Parts) -> Option<String> {
    type Pairs = Vec<(String, String)>;
    let axum::extract::Query(pairs) = axum::extract::Query::<Pairs>::try_from_uri(&parts.uri).ok()?;
    let mut flows = pairs.into_iter().filter(|(name, _)| name == "flow").map(|(_, flow)| flow);
    flows.next().filter(|_| flows.next().is_none())
}

/// An answer that goes on, a stream of events for example, ends when its token has become invalid.
pub(crate) fn until_revoked(app: &Arc<App>, grant: &Grant, response: Response) -> Response {
    let Some(token) = grant.token() else { return response };
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    let revoked = Box::pin(revoked(app.clone(), token.clone()));
    response.map(|body| axum::body::Body::from_stream(body.into_data_stream().take_until(revoked)))
}

/// Waits until a token has become invalid. While the store does not answer, it counts as valid.
pub(crate) async fn revoked(app: Arc<App>, token: Arc<KnownToken>) {
    let Some(access) = &app.access else { return };
    loop {
        tokio::time::sleep(KNOWN_FOR).await;
        match access.known.find(&app.engine, token.token.id).await {
            Ok(Some(known))
                if known.token.hash == token.token.hash && !known.token.is_expired(app.now().wall) => {}
            Ok(_) => return,
            Err(error) => tracing::debug!(%error, "cannot see whether a token is still valid"),
        }
    }
}

/// Stores when tokens were last used, from time to time. For ever.
pub(crate) async fn store_uses(app: Arc<App>) {
    loop {
        tokio::time::sleep(STORE_USES_EVERY).await;
        let Some(access) = &app.access else { continue };
        for (known, at) in access.known.uses() {
            let token = &known.token;
            if let Err(error) = app.engine.note_access_use(&token.name, token.id, at).await {
                tracing::debug!(%error, token = %token.name, "cannot store when a token was last used");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (header::AUTHORIZATION, value.parse().unwrap())).collect()
    }

    #[test]
    fn a_bearer_token_is_found_in_its_header() {
        assert_eq!(bearer(&headers(&["Bearer abc"])).unwrap(), "abc");
        assert_eq!(bearer(&headers(&["bearer  abc "])).unwrap(), "abc");
        for bad in [&[][..], &["abc"], &["Basic abc"], &["Bearer"], &["Bearer a", "Bearer b"]] {
            let problem = bearer(&headers(bad)).unwrap_err().problem();
            assert!(
                problem.status == 401 && problem.detail.contains("Authorization: Bearer TOKEN"),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn a_filter_by_flow_is_there_exactly_once() {
        let flow = |query: &str| {
            let request = axum::http::Request::get(format!("/v1/tasks?{query}")).body(()).unwrap();
            only_flow(&request.into_parts().0)
        };
        assert_eq!(flow("flow=a&limit=1").as_deref(), Some("a"));
        assert_eq!(flow("flow=a%62").as_deref(), Some("ab"));
        for none in ["", "limit=1", "flow=a&flow=b", "flow=a&flow=a", "%66low=a&flow=b"] {
            assert_eq!(flow(none), None, "{none}");
        }
    }
}
