//! The program as its users meet it.

mod demo;
mod docs;
mod modules;
