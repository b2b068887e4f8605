//! One file of stories per rule.

mod cancel;
mod child;
mod clock;
mod condition;
mod deadline;
mod fan;
mod forward;
mod given_back;
mod hold;
mod join;
mod on_error;
mod params;
mod pause;
mod rerun;
mod resolve;
mod results;
mod retry;
mod rollback;
mod rollback_params;
mod rollout;
mod secret;
mod signal;
mod stop;
mod suspend;
