//! The store: PostgreSQL under the port that shared stores have in common.

use uuid::Uuid;

use super::{
    commit::Memory,
    connection::Connection,
    news::News,
    open::{OpenError, Opened, PostgresOptions, open, random_bytes},
};
use crate::rows::{Dialect, RowStore};

/// Tasks in a PostgreSQL database, on which other servers may work as well.
pub type PostgresStore = RowStore<Connection>;

impl Dialect for Connection {
    type News = News;
}

impl PostgresStore {
    /// Opens the database and brings its tables to today's version. Must be called on a Tokio runtime, which the store
    /// works on from then on.
    ///
    /// # Errors
    /// When it cannot be reached, does not let us in, takes no writes, or has tables of a newer version.
    pub async fn open(options: &PostgresOptions) -> Result<Self, OpenError> {
        let Opened { database, token_key } = open(options).await?;
        let id = Uuid::from_bytes(random_bytes()?).to_string();
        let news = News::listen(options.clone(), id.clone());
        Ok(Self::over(database, Memory::new(id), news, token_key))
    }
}
