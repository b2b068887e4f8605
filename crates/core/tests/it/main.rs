//! The rulebook's tests: stories, laws, every command in every kind of state, and an exhaustive exploration.

mod alarm;
mod evaluation;
mod exclusive;
mod explore;
mod flow;
mod invariants;
mod jobs;
mod laws;
mod locks;
mod pairs;
mod stories;
mod story;
mod world;
