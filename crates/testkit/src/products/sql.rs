//! What servers with SQL databases have in common, and a database of one test.

use std::{
    path::Path,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::Result;

use crate::{
    product::{Place, Product, finish},
    server::Server,
};

/// A server product that has SQL databases.
pub trait SqlProduct: Product {
    /// A statement that returns the data directory. It shows which server answers, because only this server has the
    /// directory.
    const DIRECTORY: &'static str;
    /// A database that always exists.
    const DATABASE: &'static str;

    /// Runs a statement as the administrator, and prints the plain answer.
    fn ask(&self, port: u16, database: &str, statement: &str) -> Command;

    /// The URL of this database.
    fn url(port: u16, database: &str) -> String;

    /// A statement that drops a database even if clients use it.
    fn drop_database(name: &str) -> String;
}

/// Whether the server at this place is the one with this data directory.
pub(crate) fn answers<P: SqlProduct>(product: &P, place: &Place<'_>) -> Result<bool> {
    let directory = finish(product.ask(place.port, P::DATABASE, P::DIRECTORY))?;
    Ok(Path::new(&directory) == place.data)
}

impl<P: SqlProduct> Server<P> {
    /// Creates an empty database.
    ///
    /// # Errors
    /// When the server refuses.
    pub fn database(&self) -> Result<Database<'_, P>> {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let name = format!("t_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        self.ask(P::DATABASE, &format!("create database {name}"))?;
        Ok(Database { server: self, name })
    }

    /// Runs a statement in a database as the administrator, and returns its output, one line per row.
    ///
    /// # Errors
    /// When the server returns an error.
    pub fn ask(&self, database: &str, statement: &str) -> Result<String> {
        finish(self.product().ask(self.port(), database, statement))
    }
}

/// A database of a test, which is dropped with this value.
#[derive(Debug)]
pub struct Database<'s, P: SqlProduct> {
    server: &'s Server<P>,
    name: String,
}

impl<P: SqlProduct> Database<'_, P> {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The URL for the administrator, who needs no password.
    pub fn url(&self) -> String {
        self.url_at(self.server.port())
    }

    /// The URL by way of another port, such as that of a [`Proxy`](crate::Proxy).
    pub fn url_at(&self, port: u16) -> String {
        P::url(port, &self.name)
    }

    /// Runs a statement in it as the administrator, and returns its output, one line per row.
    ///
    /// # Errors
    /// When the server returns an error.
    pub fn ask(&self, statement: &str) -> Result<String> {
        self.server.ask(&self.name, statement)
    }
}

impl<P: SqlProduct> Drop for Database<'_, P> {
    fn drop(&mut self) {
        // A server that was killed has no database to drop.
        if self.server.process_id().is_some() {
            let _ = self.server.ask(P::DATABASE, &P::drop_database(&self.name));
        }
    }
}
