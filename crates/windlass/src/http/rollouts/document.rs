//! The documents of rollouts and of their histories.

use windlass_api as api;
use windlass_core::{AbortCause, Rollout, RolloutCounts, RolloutStage, Timestamp};
use windlass_engine::{RolloutEntry, RolloutEvent, RolloutReport};

use super::definition;
use crate::http::tasks::view;

/// A rollout. `with_groups`: with the progress by group, if it has groups.
pub(super) fn rollout(report: &RolloutReport, with_groups: bool) -> api::Rollout {
    let rollout = &*report.rollout;
    let with_groups = with_groups && rollout.definition.group_by.is_some();
    let group = |(index, group): (usize, &windlass_core::RolloutGroup)| api::RolloutGroup {
        value: group.value.as_deref().map(ToOwned::to_owned),
        counts: counts(&group.counts, rollout, Some(index)),
    };
    let paused = rollout.paused.as_ref().map(|note| api::RolloutNote {
        at: view::time(note.at),
        by: note.by.as_ref().map(ToString::to_string),
        reason: note.reason.as_deref().map(ToOwned::to_owned),
        threshold: None,
    });
    api::Rollout {
        name: rollout.name.to_string(),
        definition: definition::document(rollout.name.as_str(), &rollout.definition),
        flow_version: rollout.flow_version,
        status: status(rollout),
        started_by: rollout.by.as_ref().map(ToString::to_string),
        created_at: view::time(rollout.created_at),
        ended_at: rollout.ended_at.map(view::time),
        paused,
        aborted: rollout.abort.as_ref().map(aborted),
        per_minute: rollout.per_minute(),
        waiting: report.waiting,
        total: counts(&rollout.total(), rollout, None),
        groups: match with_groups {
            true => rollout.groups.iter().enumerate().map(group).collect(),
            false => Vec::new(),
        },
    }
}

fn status(rollout: &Rollout) -> api::RolloutStatus {
    match rollout.stage {
        RolloutStage::Running => api::RolloutStatus::Running,
        RolloutStage::Paused => api::RolloutStatus::Paused,
        RolloutStage::Cancelling => api::RolloutStatus::Cancelling,
        RolloutStage::RollingBack => api::RolloutStatus::RollingBack,
        RolloutStage::Ended if rollout.abort.is_some() => api::RolloutStatus::Aborted,
        RolloutStage::Ended => api::RolloutStatus::Completed,
    }
}

fn aborted(abort: &windlass_core::RolloutAbort) -> api::RolloutNote {
    let at = view::time(abort.at);
    match &abort.cause {
        AbortCause::Operator { by, reason } => api::RolloutNote {
            at,
            by: by.as_ref().map(ToString::to_string),
            reason: reason.as_deref().map(ToOwned::to_owned),
            threshold: None,
        },
        AbortCause::Threshold(threshold) => api::RolloutNote {
            at,
            by: None,
            reason: None,
            threshold: Some(definition::threshold_document(threshold)),
        },
    }
}

/// The progress of a group, or of all.
fn counts(counts: &RolloutCounts, rollout: &Rollout, group: Option<usize>) -> api::RolloutCounts {
    let is_in =
        |device: &&windlass_core::OpenDevice| group.is_none_or(|group| usize::from(device.2) == group);
    let open = rollout.open.iter().filter(is_in).count() as u64;
    let (running, rolling_back) = match rollout.stage {
        RolloutStage::RollingBack => (0, open),
        _ => (open, 0),
    };
    api::RolloutCounts {
        matched: counts.matched,
        started: counts.started,
        running,
        succeeded: counts.succeeded,
        failed: counts.failed,
        timed_out: counts.timed_out,
        cancelled: counts.cancelled,
        refused: counts.refused,
        stuck: counts.stuck,
        gone: counts.gone,
        rolling_back,
        rolled_back: counts.rolled_back,
        kept: counts.kept,
        rollback_stuck: counts.rollback_stuck,
    }
}

/// An entry of the history.
pub(super) fn entry(at: Timestamp, entry: RolloutEntry) -> api::RolloutEntry {
    let event = match entry.event {
        RolloutEvent::Started => "started",
        RolloutEvent::Paused => "paused",
        RolloutEvent::Resumed => "resumed",
        RolloutEvent::Aborted => "aborted",
        RolloutEvent::Refused => "refused",
        RolloutEvent::RollingBack => "rolling_back",
        RolloutEvent::Ended => "ended",
        RolloutEvent::Removed => "removed",
    };
    api::RolloutEntry {
        at: view::time(at),
        event: event.to_owned(),
        by: entry.by.map(|by| by.to_string()),
        device: entry.device.map(|device| device.to_string()),
        message: entry.message.map(Into::into),
    }
}
