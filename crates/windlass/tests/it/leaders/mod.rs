//! Elections by coordinators, and commands that run while they lead.

pub(crate) mod coordinators;
mod elections;
mod lead;
