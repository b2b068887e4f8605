//! The program as its users meet it.

mod cli;
mod demo;
mod docs;
mod http;
mod modules;
