//! What operators do and configure.

mod backup;
mod configuration;
mod damaged_row;
mod migrate;
mod monitoring;
mod secrets;
mod traces;
mod transfer;
