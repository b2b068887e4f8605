//! The rulebook's tests: stories, laws, every command in every kind of state, and an exhaustive exploration.

mod stories;
mod story;
mod world;
