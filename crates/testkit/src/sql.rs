//! What is particular to servers that have SQL databases, and a database of one test.

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
    /// A statement that gives its data directory: nobody else has this one, so it proves who answers.
    const DIRECTORY: &'static str;
    /// A database that is always there.
    const DATABASE: &'static str;

    /// Puts a question to the server as its administrator, and prints the answer without decoration.
    fn ask(&self, port: u16, database: &str, statement: &str) -> Command;

    /// A URL for this database.
    fn url(port: u16, database: &str) -> String;

    /// A statement that drops a database whoever uses it.
    fn drop_database(name: &str) -> String;
}

/// Whether the server at this place is the one with these data.
pub(crate) fn answers<P: SqlProduct>(product: &P, place: &Place<'_>) -> Result<bool> {
    let directory = finish(product.ask(place.port, P::DATABASE, P::DIRECTORY))?;
    Ok(Path::new(&directory) == place.data)
}

impl<P: SqlProduct> Server<P> {
    /// Makes an empty database.
    ///
    /// # Errors
    /// When the server refuses.
    pub fn database(&self) -> Result<Database<'_, P>> {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let name = format!("t_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        self.ask(P::DATABASE, &format!("create database {name}"))?;
        Ok(Database { server: self, name })
    }

    /// Runs a statement in a database as the administrator, and gives what it printed: a line per row.
    ///
    /// # Errors
    /// What the server says.
    pub fn ask(&self, database: &str, statement: &str) -> Result<String> {
        finish(self.product().ask(self.port(), database, statement))
    }
}

/// A database of a test. It is dropped with this.
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

    /// Where it is, for the administrator, who needs no password.
    pub fn url(&self) -> String {
        self.url_at(self.server.port())
    }

    /// Where it is by way of another port: a [`Proxy`](crate::Proxy)'s.
    pub fn url_at(&self, port: u16) -> String {
        P::url(port, &self.name)
    }

    /// Runs a statement in it as the administrator, and gives what it printed: a line per row.
    ///
    /// # Errors
    /// What the server says.
    pub fn ask(&self, statement: &str) -> Result<String> {
        self.server.ask(&self.name, statement)
    }
}

impl<P: SqlProduct> Drop for Database<'_, P> {
    fn drop(&mut self) {
        // A server that was killed has none to drop.
        if self.server.process_id().is_some() {
            let _ = self.server.ask(P::DATABASE, &P::drop_database(&self.name));
        }
    }
}
