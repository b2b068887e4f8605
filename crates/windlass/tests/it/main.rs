//! The program as its users meet it.

mod modules;
