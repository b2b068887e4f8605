//! One file of stories per rule.

mod cancel;
mod deadline;
mod forward;
mod given_back;
mod hold;
mod params;
mod pause;
mod resolve;
mod retry;
mod rollback;
