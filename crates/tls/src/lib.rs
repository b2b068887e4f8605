//! TLS of Windlass: the certificates and keys that servers and clients prove who they are with, and the CA
//! certificates by which they check others. All of it is in files in PEM format.
//!
//! The libraries that speak TLS get a configuration of `rustls` from here. Nothing here connects to anything.

mod advice;
mod client;
mod error;
mod files;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "server")]
mod server;

pub use advice::{Refused, refused};
pub use client::{ClientFiles, Names, client_config, config_without_roots};
pub use error::TlsError;
pub use files::Identity;
#[cfg(feature = "mysql")]
pub use mysql::{UrlError, mysql_options};
pub use rustls::{ClientConfig, ServerConfig};
#[cfg(feature = "server")]
pub use server::{ServerFiles, ServerTls};
