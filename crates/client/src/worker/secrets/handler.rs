//! The handler around every handler: it gets parameters with values, and reports without them.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use serde_json::value::RawValue;
use windlass_api::Payload;

use super::{Hidden, Secrets, sources::REFERENCE, tokens::replace_values};
use crate::worker::{Failure, Handler, Job, Outcome, handler::run_caught};

/// A handler that gets the values of secrets in place of their references.
pub(in crate::worker) struct WithSecrets {
    handler: Arc<dyn Handler>,
    secrets: Arc<Secrets>,
}

impl WithSecrets {
    pub(in crate::worker) fn new(handler: Arc<dyn Handler>, secrets: Arc<Secrets>) -> Self {
        Self { handler, secrets }
    }
}

#[async_trait]
impl Handler for WithSecrets {
    async fn run(&self, mut job: Job) -> Outcome {
        let payloads =
            || [Some(&job.attempt.params), job.attempt.results.as_ref(), job.attempt.result.as_ref()];
        let names: BTreeSet<String> = payloads().into_iter().flatten().flat_map(references).collect();
        if names.is_empty() {
            return self.handler.run(job).await;
        }
        let mut values = Vec::with_capacity(names.len());
        let mut hidden = Hidden::default();
        for name in names {
            let value = tokio::select! {
                value = self.secrets.value(&name) => value,
                () = job.cancelled() => Err(Failure::new("stopped before it was started")),
            };
            let value = match value {
                Ok(value) => value,
                Err(failure) => return Outcome::Failed(failure),
            };
            let reference = format!("{REFERENCE}{name}");
            hidden.add(&value, &reference);
            values.push((reference, value));
        }
        job.hide(&hidden);
        let attempt = &mut job.attempt;
        resolve(&mut attempt.params, &values);
        attempt.results.iter_mut().chain(&mut attempt.result).for_each(|payload| resolve(payload, &values));
        // The message of a panic may have a value in it.
        hidden.in_outcome(run_caught(&*self.handler, job).await)
    }
}

/// The name in a reference, if this JSON value is one.
fn name_in(value: &str) -> Option<String> {
    // Most values are none, and need not be read.
    if !value.starts_with("\"secret:") {
        return None;
    }
    let text: String = serde_json::from_str(value).ok()?;
    text.strip_prefix(REFERENCE).map(ToOwned::to_owned)
}

/// The names of the secrets that a payload refers to.
fn references(payload: &Payload) -> Vec<String> {
    let mut names = Vec::new();
    if payload.get().contains("\"secret:") {
        replace_values(payload.get(), false, |value| {
            names.extend(name_in(value));
            None
        });
    }
    names
}

/// Puts the values in the place of their references.
fn resolve(payload: &mut Payload, values: &[(String, String)]) {
    let resolved = replace_values(payload.get(), false, |value| {
        let reference = format!("{REFERENCE}{}", name_in(value)?);
        let (_, value) = values.iter().find(|(known, _)| *known == reference)?;
        serde_json::to_string(value).ok()
    });
    if let Ok(resolved) = RawValue::from_string(resolved) {
        *payload = resolved;
    }
}
