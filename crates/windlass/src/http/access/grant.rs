//! What the caller of a request may do, for handlers that learn from the body or the answer what it is about.

use std::{collections::BTreeSet, sync::Arc};

use axum::{extract::FromRequestParts, http::request::Parts};
use windlass_core::{Actor, Name, is_adhoc};
use windlass_engine::HandedOut;

use super::known::KnownToken;
use crate::http::{App, answer::problem::Refused};

/// What a request may do.
#[derive(Debug, Clone)]
pub(crate) struct Grant(Caller);

#[derive(Debug, Clone)]
enum Caller {
    /// Anybody may do everything: the server asks for no tokens.
    Open,
    /// Somebody without a token, where none is needed.
    Nobody,
    /// Somebody with a token.
    Token(Arc<KnownToken>),
}

impl FromRequestParts<Arc<App>> for Grant {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refused> {
        match parts.extensions.get::<Self>() {
            Some(grant) => Ok(grant.clone()),
            None if app.access.is_none() => Ok(Self::open()),
            None => Err(Refused::fault("a request came to its handler before its token was checked")),
        }
    }
}

impl Grant {
    /// For a server that asks for no tokens, and for what the server does by itself.
    pub(crate) fn open() -> Self {
        Self(Caller::Open)
    }

    pub(super) fn none() -> Self {
        Self(Caller::Nobody)
    }

    pub(super) fn of(token: Arc<KnownToken>) -> Self {
        Self(Caller::Token(token))
    }

    /// The token.
    pub(super) fn token(&self) -> Option<&Arc<KnownToken>> {
        match &self.0 {
            Caller::Token(token) => Some(token),
            Caller::Open | Caller::Nobody => None,
        }
    }

    /// Who acts, if a token says it.
    pub(crate) fn actor(&self) -> Option<Actor> {
        let token = &self.token()?.token;
        Some(Actor { name: token.name.as_str().into(), claimed: false })
    }

    /// Waits until the token has become invalid; for ever without one.
    pub(crate) async fn revoked(&self, app: &Arc<App>) {
        match self.token() {
            Some(token) => super::revoked(app.clone(), token.clone()).await,
            None => std::future::pending().await,
        }
    }

    /// Whether the token is limited to queues or flows.
    pub(crate) fn is_limited(&self) -> bool {
        self.token().is_some_and(|known| known.token.scope.is_limited())
    }

    /// Whether a flow is in scope.
    pub(crate) fn has_flow(&self, name: &str) -> bool {
        self.token().is_none_or(|known| known.token.scope.has_flow(name))
    }

    /// Whether a queue is in scope.
    pub(crate) fn has_queue(&self, name: &str) -> bool {
        self.token().is_none_or(|known| known.token.scope.has_queue(name))
    }

    /// Refuses a flow that is out of scope.
    pub(crate) fn flow(&self, name: &str) -> Result<(), Refused> {
        match self.has_flow(name) {
            true => Ok(()),
            false if is_adhoc(name) => {
                Err(self.out_of_scope("tasks that bring their steps along are of no flow in it"))
            }
            false => Err(self.out_of_scope(&format!("the flow {name:?} is not in it"))),
        }
    }

    /// Refuses a queue that is out of scope.
    pub(crate) fn queue(&self, name: &str) -> Result<(), Refused> {
        match self.has_queue(name) {
            true => Ok(()),
            false => Err(self.out_of_scope(&format!("the queue {name:?} is not in it"))),
        }
    }

    /// Refuses a worker that offers a module whose queue is out of scope.
    pub(crate) fn offer(&self, module: &str) -> Result<(), Refused> {
        match self.has_queue(module) {
            true => Ok(()),
            false => Err(self.out_of_scope(&format!(
                "the queue {module:?} is not in it; let the worker offer only modules that are in it (`windlass worker \
                 --module NAME` for each), or give it a token for this queue too"
            ))),
        }
    }

    /// Refuses an attempt of a queue that is out of scope.
    pub(crate) fn attempt(&self, attempt: &HandedOut) -> Result<(), Refused> {
        self.queue(attempt.module().map_or("", Name::as_str))
    }

    /// Refuses a filter of tasks that finds tasks out of scope.
    pub(crate) fn flow_filter(&self, flow: Option<&str>) -> Result<(), Refused> {
        match flow {
            Some(flow) => self.flow(flow),
            None if self.is_limited() => {
                Err(self.out_of_scope("tasks of all flows are asked for: filter by one `flow` that is in it"))
            }
            None => Ok(()),
        }
    }

    /// Refuses what belongs to no queue and no flow.
    pub(super) fn server(&self) -> Result<(), Refused> {
        match self.is_limited() {
            false => Ok(()),
            true => Err(self
                .out_of_scope("this belongs to no queue and no flow, and needs a token that is not limited")),
        }
    }

    fn out_of_scope(&self, why: &str) -> Refused {
        let Some(known) = self.token() else { return Refused::fault("no token, and yet a scope") };
        let token = &known.token;
        let names = |what: &str, names: &BTreeSet<Name>| {
            let listed: Vec<&str> = names.iter().take(NAMES_SHOWN_MAX).map(Name::as_str).collect();
            let more = if names.len() > listed.len() { ", …" } else { "" };
            (!listed.is_empty()).then(|| format!("the {what} {}{more}", listed.join(", ")))
        };
        let scope = [names("queues", &token.scope.queues), names("flows", &token.scope.flows)];
        let scope: Vec<String> = scope.into_iter().flatten().collect();
        let (name, scope) = (token.name.as_str(), scope.join(" and "));
        Refused::forbidden(format!("the token {name:?} is limited to {scope}: {why}"))
    }
}

/// Names of a scope in a message.
const NAMES_SHOWN_MAX: usize = 10;
