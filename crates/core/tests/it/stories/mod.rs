//! One file of stories per rule.

mod cancel;
mod deadline;
mod forward;
mod hold;
mod params;
mod pause;
mod resolve;
mod retry;
mod rollback;
