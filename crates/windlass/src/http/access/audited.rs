//! Which requests the audit log records.

use std::{collections::HashMap, sync::LazyLock};

use axum::http::{Method, request::Parts};
use utoipa::openapi::OpenApi;
use windlass_engine::AuditedOperation;

use super::{client, table};
use crate::http::{
    openapi::{self, operations},
    request::actor,
};

/// The audited operations: the names that the contract gives them, by route and method.
pub(crate) struct AuditedOperations(HashMap<String, Vec<(Method, Box<str>)>>);

impl AuditedOperations {
    /// Reads the contract.
    pub(crate) fn of(contract: &OpenApi) -> Self {
        let mut all = HashMap::new();
        for (path, item) in &contract.paths.paths {
            let audited = operations(item).filter_map(|(method, operation)| {
                let name = operation.operation_id.as_deref()?;
                table::is_audited(method.as_str(), path).then(|| (method, name.into()))
            });
            all.insert(path.clone(), audited.collect());
        }
        Self(all)
    }

    /// What the audit log records about a request; `None` if nothing.
    pub(crate) fn find(&self, route: Option<&str>, parts: &Parts) -> Option<AuditedOperation> {
        let operations = self.0.get(route?)?;
        let (_, name) = operations.iter().find(|(method, _)| *method == parts.method)?;
        // The handler refuses a header that is not an actor.
        let by = actor(parts).ok().flatten();
        let address = Some(client(parts)).filter(|address| !address.is_unspecified());
        Some(AuditedOperation { operation: name.clone(), by, address })
    }
}

/// Whether the audit log records an operation of this name.
pub(crate) fn is_audited(operation: &str) -> bool {
    static ALL: LazyLock<AuditedOperations> =
        LazyLock::new(|| AuditedOperations::of(&openapi::router().into_openapi()));
    ALL.0.values().flatten().any(|(_, name)| **name == *operation)
}
