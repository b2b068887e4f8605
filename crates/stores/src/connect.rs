//! From the URL of a database that servers share to its product.

use std::sync::Arc;

use async_trait::async_trait;
use thiserror::Error;
use windlass_store::{Archive, RowSnapshot, Store};

use crate::Schema;

/// The products: their names, the schemes of their URLs, the features of this crate that have them, and whether those are
/// built in.
const PRODUCTS: [(&str, [&str; 2], &str, bool); 2] = [
    ("PostgreSQL", ["postgres", "postgresql"], "postgres", cfg!(feature = "postgres")),
    ("MySQL and MariaDB", ["mysql", "mariadb"], "mysql", cfg!(feature = "mysql")),
];

/// A database that several servers may share.
#[async_trait]
pub trait SharedDatabase: Send + Sync {
    /// Opens the store, and brings its tables to today's version. Must be called on a Tokio runtime, which the store works on
    /// from then on.
    async fn open(&self) -> Result<Arc<dyn Store>, OpenError>;

    /// Returns the version of the tables, and changes nothing.
    async fn schema(&self) -> Result<Schema, OpenError>;

    /// Reads the database as it is at this moment. Its tables are brought to today's version first.
    async fn snapshot(&self) -> Result<Box<dyn RowSnapshot>, OpenError>;

    /// A connection past the servers of the database, to look at it.
    async fn to_look(&self) -> Result<Box<dyn Archive>, OpenError>;

    /// A connection past the servers of the database, to fill it, which one at a time may do.
    async fn to_fill(&self) -> Result<Box<dyn Archive>, OpenError>;
}

/// Why a database was not opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The URL names no product that servers share.
    #[error("the URL of the store begins with none of {}", schemes())]
    Unknown,
    /// The program was compiled without the product.
    #[error(
        "this windlass was built without {product}: in a clone of its repository, \
         `cargo install --path crates/windlass --features full` builds and installs one that has all stores"
    )]
    NotBuiltIn {
        /// The product.
        product: &'static str,
    },
    /// The URL is invalid.
    #[error("invalid URL of a {product} database: {why}; write {example}")]
    Url {
        /// The product.
        product: &'static str,
        /// What is wrong with it, without anything secret.
        why: String,
        /// A URL as it should be.
        example: &'static str,
    },
    /// TLS cannot be set up.
    #[error("{0}")]
    Tls(String),
    /// No server answers there, or not in time.
    #[error("no {product} server can be reached at {place}: {message}; see that it runs and listens there")]
    Unreachable {
        /// The product.
        product: &'static str,
        /// Its address.
        place: String,
        /// The error of the system.
        message: String,
    },
    /// The server refuses the connection.
    #[error("the {product} server at {place} refuses: {message}; {advice}")]
    Refused {
        /// The product.
        product: &'static str,
        /// Its address.
        place: String,
        /// The error of the server.
        message: String,
        /// How to fix it.
        advice: &'static str,
    },
    /// The server is not one that the store can work on: its product, its version or its settings.
    #[error("the server at {place} {why}")]
    Unusable {
        /// Its address.
        place: String,
        /// The reason, and how to fix it.
        why: String,
    },
    /// A newer program made the schema.
    #[error(
        "the tables in the database have version {found}, which needs a windlass that knows version {readable_from} or newer; this one knows {known}: use a newer version of windlass"
    )]
    Newer {
        /// Its version.
        found: i64,
        /// The lowest version that may work on it.
        readable_from: i64,
        /// The newest version that this program knows.
        known: i64,
    },
    /// Another server makes the schema, and does not finish.
    #[error("another server has been making the tables for a minute: see what it does, then try again")]
    Locked,
    /// An import is filling the database, or did not finish.
    #[error("an import into the database is under way or was broken off: wait for its end, or run it again")]
    Importing,
    /// The schema could not be made.
    #[error("the tables cannot be made: {message}; {advice}")]
    Migration {
        /// The error of the database.
        message: String,
        /// How to fix it.
        advice: &'static str,
    },
    /// No snapshot can be taken of the database.
    #[error("the database cannot be read as of one moment: {0}")]
    Snapshot(String),
    /// The database is not as it was written.
    #[error("the database is damaged: {0}")]
    Damaged(String),
    /// The system returns no random bytes.
    #[error("the system returns no random bytes: {0}")]
    Random(String),
}

/// Whether a URL names a product that servers share, by its scheme.
///
/// # Errors
/// When the product is not built in.
pub fn is_shared(url: &str) -> Result<bool, OpenError> {
    match feature_of(url) {
        Ok(_) => Ok(true),
        Err(OpenError::Unknown) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The database that a URL names: `postgres://`, `postgresql://`, `mysql://` or `mariadb://`. Nothing is connected yet.
///
/// # Errors
/// When the URL is invalid, or names a product that is unknown or not built in. The error does not show the URL, which may
/// have a password in it.
pub fn connect(url: &str) -> Result<Box<dyn SharedDatabase>, OpenError> {
    match feature_of(url)? {
        #[cfg(feature = "postgres")]
        "postgres" => Ok(Box::new(url.parse::<crate::postgres::PostgresOptions>()?)),
        #[cfg(feature = "mysql")]
        "mysql" => Ok(Box::new(url.parse::<crate::mysql::MySqlOptions>()?)),
        _ => Err(OpenError::Unknown),
    }
}

/// The feature that has the product of a URL.
fn feature_of(url: &str) -> Result<&'static str, OpenError> {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    let product = PRODUCTS.iter().find(|(_, schemes, ..)| schemes.contains(&scheme));
    let (product, _, feature, is_built_in) = product.ok_or(OpenError::Unknown)?;
    if *is_built_in { Ok(feature) } else { Err(OpenError::NotBuiltIn { product }) }
}

fn schemes() -> String {
    let schemes: Vec<&str> = PRODUCTS.iter().flat_map(|(_, schemes, ..)| *schemes).collect();
    format!("{}://", schemes.join("://, "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_schemes_of_shared_databases_connect() {
        for url in ["", "postgres", "sqlite:a.db", "oracle://u:secret@127.0.0.1/db"] {
            assert!(matches!(is_shared(url), Ok(false)), "{url}");
            let error = connect(url).err().unwrap().to_string();
            assert!(
                error.contains("postgres://, postgresql://, mysql://") && !error.contains("secret"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_product_that_is_not_built_in_is_named_with_what_to_do() {
        for (scheme, is_built_in) in
            [("postgres", cfg!(feature = "postgres")), ("mariadb", cfg!(feature = "mysql"))]
        {
            let url = format!("{scheme}://u:secret@127.0.0.1/db");
            match connect(&url).err().map(|error| error.to_string()) {
                None => assert!(is_built_in, "{scheme}"),
                Some(error) => {
                    assert!(
                        !is_built_in && error.contains("--features full") && !error.contains("secret"),
                        "{error}"
                    );
                }
            }
        }
    }
}
