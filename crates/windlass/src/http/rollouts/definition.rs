//! From the document of a rollout to its definition, and back.

use windlass_api as api;
use windlass_core::{AbortLimit, AbortOf, AbortThreshold, Json, OnAbort, RolloutDefinition, RolloutRate};

use crate::http::{answer::problem::Refused, request, submit::priority};

/// Devices per minute where the document does not say.
const PER_MINUTE_DEFAULT: u32 = 60;

/// Tasks that run at the same time where the document does not say.
const MAX_RUNNING_DEFAULT: u32 = 100;

/// The factor of an exponential rate where the document does not say.
const FACTOR_DEFAULT: f64 = 2.0;

/// Reads a document.
pub(super) fn read(document: api::RolloutDocument) -> Result<RolloutDefinition, Refused> {
    let params = match document.params {
        Some(params) => Json::parse(&serde_json::Value::from(params).to_string())
            .map_err(|error| Refused::malformed(format!("`params`: {error}")))?,
        None => Json::empty(),
    };
    Ok(RolloutDefinition {
        flow: request::name("flow", &document.flow)?,
        params,
        priority: priority(document.priority)?,
        selector: document.select,
        rate: document.rate.map_or(Ok(RolloutRate::Constant { per_minute: PER_MINUTE_DEFAULT }), rate)?,
        max_running: document.max_running.unwrap_or(MAX_RUNNING_DEFAULT),
        abort: document.abort.into_iter().enumerate().map(threshold).collect::<Result<_, _>>()?,
        on_abort: match document.on_abort {
            None | Some(api::RolloutOnAbort::Stop) => OnAbort::Stop,
            Some(api::RolloutOnAbort::Rollback) => OnAbort::RollBack,
        },
        group_by: document.group_by.map(Into::into),
    })
}

fn rate(rate: api::RolloutRate) -> Result<RolloutRate, Refused> {
    let api::RolloutRate { per_minute, base, factor, per_minute_max, after } = rate;
    match (per_minute, base, per_minute_max, after) {
        (Some(per_minute), None, None, None) if factor.is_none() => Ok(RolloutRate::Constant { per_minute }),
        (None, Some(base), Some(per_minute_max), Some(after)) => {
            let percent = factor.unwrap_or(FACTOR_DEFAULT) * 100.0;
            // Numbers out of range become 0 or the largest number, and are refused with the definition.
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "rounded, and `as` saturates"
            )]
            let factor_percent = percent.round() as u32;
            Ok(RolloutRate::Exponential { base, factor_percent, per_minute_max, after })
        }
        _ => Err(Refused::malformed(
            "`rate` has `per_minute` alone, or `base`, `per_minute_max` and `after` with or without `factor`",
        )),
    }
}

fn threshold((index, threshold): (usize, api::RolloutThreshold)) -> Result<AbortThreshold, Refused> {
    let limit = match (threshold.percent, threshold.count) {
        (Some(percent), None) => AbortLimit::Percent(percent),
        (None, Some(count)) => AbortLimit::Count(count),
        _ => {
            return Err(Refused::malformed(format!(
                "the abort threshold {} needs `percent` or `count`, and not both",
                index + 1
            )));
        }
    };
    let of = match threshold.of {
        api::RolloutAbortOf::Failed => AbortOf::Failed,
        api::RolloutAbortOf::TimedOut => AbortOf::TimedOut,
        api::RolloutAbortOf::Any => AbortOf::Any,
    };
    Ok(AbortThreshold { of, limit, at_least: threshold.at_least.unwrap_or(1) })
}

/// The document of a threshold.
pub(super) fn threshold_document(threshold: &AbortThreshold) -> api::RolloutThreshold {
    let (percent, count) = match threshold.limit {
        AbortLimit::Percent(percent) => (Some(percent), None),
        AbortLimit::Count(count) => (None, Some(count)),
    };
    let of = match threshold.of {
        AbortOf::Failed => api::RolloutAbortOf::Failed,
        AbortOf::TimedOut => api::RolloutAbortOf::TimedOut,
        AbortOf::Any => api::RolloutAbortOf::Any,
    };
    api::RolloutThreshold { of, percent, count, at_least: Some(threshold.at_least) }
}

/// The document of a rollout, with everything that was left out.
pub(super) fn document(name: &str, definition: &RolloutDefinition) -> api::RolloutDocument {
    let rate = match definition.rate {
        RolloutRate::Constant { per_minute } => {
            api::RolloutRate { per_minute: Some(per_minute), ..api::RolloutRate::default() }
        }
        RolloutRate::Exponential { base, factor_percent, per_minute_max, after } => api::RolloutRate {
            per_minute: None,
            base: Some(base),
            factor: Some(f64::from(factor_percent) / 100.0),
            per_minute_max: Some(per_minute_max),
            after: Some(after),
        },
    };
    api::RolloutDocument {
        rollout: Some(name.to_owned()),
        flow: definition.flow.to_string(),
        params: serde_json::from_str(definition.params.as_str())
            .ok()
            .filter(|params: &serde_json::Map<_, _>| !params.is_empty()),
        priority: Some(definition.priority.into()).filter(|priority| *priority != 0),
        select: definition.selector.clone(),
        rate: Some(rate),
        max_running: Some(definition.max_running),
        abort: definition.abort.iter().map(threshold_document).collect(),
        on_abort: Some(match definition.on_abort {
            OnAbort::Stop => api::RolloutOnAbort::Stop,
            OnAbort::RollBack => api::RolloutOnAbort::Rollback,
        }),
        group_by: definition.group_by.as_deref().map(ToOwned::to_owned),
    }
}
