//! Tasks, their data, and everything else that is stored.

pub(crate) mod alarms;
pub(crate) mod children;
pub(crate) mod due;
pub(crate) mod events;
pub(crate) mod flows;
pub(crate) mod listing;
pub(crate) mod logs;
pub(crate) mod members;
pub(crate) mod messages;
pub(crate) mod outbox;
pub(crate) mod outcomes;
pub(crate) mod parking;
pub(crate) mod records;
pub(crate) mod submit_keys;
pub(crate) mod sweeping;
pub(crate) mod tasks;
pub(crate) mod unique;

use crate::Case;

/// The cases of this folder.
pub(crate) fn cases() -> Vec<Case> {
    [
        alarms::cases(),
        children::cases(),
        due::cases(),
        events::cases(),
        flows::cases(),
        listing::cases(),
        logs::cases(),
        members::cases(),
        messages::cases(),
        outbox::cases(),
        outcomes::cases(),
        parking::cases(),
        records::cases(),
        submit_keys::cases(),
        sweeping::cases(),
        tasks::cases(),
        unique::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
