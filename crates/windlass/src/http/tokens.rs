//! `/v1/tokens`: access tokens, who may do what.

use std::{collections::BTreeSet, sync::Arc};

use axum::{extract::State, http::StatusCode, response::Response};
use utoipa_axum::{router::OpenApiRouter, routes};
use windlass_api as api;
use windlass_core::{Millis, Name};
use windlass_engine::{ACCESS_RANDOM_BYTES, AccessRole, AccessScope, AccessSecret, AccessToken};

use crate::http::{
    App,
    answer::{json_response, ok, problem::Refused},
    request::{self, By, ByName, JsonBody, Path, Query},
    tasks::view,
};

/// The largest document of a token, in bytes: 200 names of 128 bytes.
const TOKEN_BYTES_MAX: usize = 64 << 10;

/// Its routes.
pub(super) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(revoke))
}

/// The access tokens, by name, without their secrets.
#[utoipa::path(
    get,
    path = "/v1/tokens", operation_id = "list_tokens",
    tag = "tokens",
    params(
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000, description = "1 to 1000; 100 when left out"),
    ),
    responses((status = 200, description = "The page", body = api::List<api::AccessToken>))
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Query(ByName { after, limit }): Query<ByName>,
) -> Result<Response, Refused> {
    let tokens = app.engine.access_tokens().await?;
    let mut rest = tokens.iter().filter(|token| after.as_ref().is_none_or(|after| token.name > *after));
    let items: Vec<api::AccessToken> = rest.by_ref().take(limit).map(document).collect();
    let next = rest.next().and(items.last()).map(|token| token.name.clone());
    Ok(ok(&api::List { items, next }))
}

/// Creates an access token. Only this answer has its secret: the server stores a hash.
#[utoipa::path(
    post,
    path = "/v1/tokens", operation_id = "create_token",
    tag = "tokens",
    request_body = api::CreateAccessToken,
    responses(
        (status = 201, description = "The token with its secret", body = api::AccessTokenCreated),
        (status = 400, description = "Malformed", body = api::Problem, content_type = "application/problem+json"),
        (status = 409, description = "There is a token of this name, or there are too many", body = api::Problem, content_type = "application/problem+json"),
        (status = 422, description = "It cannot work: the role cannot be limited, for example", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    By(by): By,
    JsonBody(text): JsonBody<TOKEN_BYTES_MAX>,
) -> Result<Response, Refused> {
    let document: api::CreateAccessToken = text.parse()?;
    let now = app.now();
    let secret = new_secret().map_err(|error| Refused::fault(error.to_string()))?;
    let role = match document.role {
        api::AccessRole::Viewer => AccessRole::Viewer,
        api::AccessRole::Operator => AccessRole::Operator,
        api::AccessRole::Admin => AccessRole::Admin,
        api::AccessRole::Worker => AccessRole::Worker,
    };
    let token = AccessToken {
        scope: AccessScope {
            queues: names("`queues`", &document.queues)?,
            flows: names("`flows`", &document.flows)?,
        },
        created_by: by,
        expires_at: document.expires_in.map(|span| now.wall + Millis(span.ms)),
        ..AccessToken::new(request::name("`name`", &document.name)?, &secret, role, now.wall)
    };
    let token = app.engine.create_access_token(token, now).await?;
    app.forget_tokens();
    app.metrics.command("create_token");
    tracing::info!(token = %token.name, role = token.role.as_str(), by = token.created_by.as_ref().map(ToString::to_string), "an access token was created");
    let created = api::AccessTokenCreated { secret: secret.text().to_owned(), token: self::document(&token) };
    Ok(json_response(StatusCode::CREATED, &created))
}

/// Revokes an access token. Servers refuse it within two seconds, and end its open streams and polls within four.
#[utoipa::path(
    delete,
    path = "/v1/tokens/{name}", operation_id = "revoke_token",
    tag = "tokens",
    params(("name" = String, Path, description = "Name of the token")),
    responses(
        (status = 200, description = "The token as it was", body = api::AccessToken),
        (status = 404, description = "Unknown token", body = api::Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is the token of the server's file, and would be valid again after a restart", body = api::Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn revoke(
    State(app): State<Arc<App>>,
    Path(name): Path<Name>,
    By(by): By,
) -> Result<Response, Refused> {
    if let Some(access) = &app.access {
        access.may_revoke(&app.engine, &name).await?;
    }
    let revoked = app.engine.revoke_access_token(&name).await;
    app.forget_tokens();
    let token = revoked?;
    app.metrics.command("revoke_token");
    tracing::info!(token = %name, by = by.map(|by| by.to_string()), "an access token was revoked");
    Ok(ok(&document(&token)))
}

/// A new secret, of random bytes of the operating system.
///
/// # Errors
/// When it gives none.
pub(crate) fn new_secret() -> anyhow::Result<AccessSecret> {
    let mut random = [0; ACCESS_RANDOM_BYTES];
    getrandom::fill(&mut random)
        .map_err(|error| anyhow::anyhow!("the operating system gives no random bytes: {error}"))?;
    Ok(AccessSecret::new(&random))
}

fn names(what: &str, texts: &[String]) -> Result<BTreeSet<Name>, Refused> {
    texts.iter().map(|text| request::name(what, text)).collect()
}

fn document(token: &AccessToken) -> api::AccessToken {
    let names = |names: &BTreeSet<Name>| names.iter().map(ToString::to_string).collect();
    api::AccessToken {
        name: token.name.to_string(),
        id: token.id.to_string(),
        role: match token.role {
            AccessRole::Viewer => api::AccessRole::Viewer,
            AccessRole::Operator => api::AccessRole::Operator,
            AccessRole::Admin => api::AccessRole::Admin,
            AccessRole::Worker => api::AccessRole::Worker,
        },
        queues: names(&token.scope.queues),
        flows: names(&token.scope.flows),
        created_at: view::time(token.created_at),
        created_by: token.created_by.as_ref().map(ToString::to_string),
        expires_at: token.expires_at.map(view::time),
        last_used_at: token.used_at.map(view::time),
    }
}
