//! Claims of attempts: their order, their leases, and their limits.

pub(crate) mod adoption;
pub(crate) mod claims;
pub(crate) mod leases;
pub(crate) mod limits;
pub(crate) mod locks;
pub(crate) mod offering;
pub(crate) mod overlooked;
pub(crate) mod queues;
pub(crate) mod servers;
pub(crate) mod stopping;
pub(crate) mod threads;
pub(crate) mod with_commits;

use crate::Case;

/// The cases of this folder.
pub(crate) fn cases() -> Vec<Case> {
    [
        adoption::cases(),
        claims::cases(),
        leases::cases(),
        limits::cases(),
        locks::cases(),
        offering::cases(),
        overlooked::cases(),
        queues::cases(),
        servers::cases(),
        stopping::cases(),
        threads::cases(),
        with_commits::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
