//! The SQLite row sink on real files.

#![cfg(feature = "sqlite")]

mod conformance;
mod crash;
mod doctor;
mod failure;
mod fixture;
mod listing;
mod members;
mod opening;
mod round_trip;
mod story;
mod sweep;
