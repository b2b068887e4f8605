//! The actors of a world: servers, workers, operators, and nature.

mod application;
mod asker;
mod bulk;
mod candidate;
mod caretaker;
mod commands;
mod consumer;
mod damage;
mod lease;
mod limits;
mod moves;
mod nature;
mod repeater;
mod servers;
mod submitter;
mod unblocker;
mod upkeep;
mod worker;

pub(crate) use application::enqueue_tasks;
pub(crate) use asker::ask_why;
pub(crate) use bulk::command_many;
pub(crate) use candidate::campaign_for_name;
pub(crate) use caretaker::look_after;
pub(crate) use consumer::start_consumers;
pub(crate) use damage::damage_rows;
pub(crate) use moves::move_store;
pub(crate) use nature::{be_calm, rage};
pub(crate) use repeater::repeat_commands;
pub(crate) use servers::{Live, Servers};
pub(crate) use submitter::submit_tasks;
pub(crate) use unblocker::unblock_tasks;
pub(crate) use upkeep::KEPT_MS;
pub(crate) use worker::start_spare_workers;
