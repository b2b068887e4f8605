//! Elections by coordinators, and commands that run while they lead.

mod coordinators;
mod elections;
mod lead;
