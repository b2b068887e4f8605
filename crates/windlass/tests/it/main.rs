//! The program as its users meet it.

mod docs;
mod modules;
