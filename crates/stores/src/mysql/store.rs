//! The store: MySQL under the port that shared stores have in common.

use super::{
    connection::Connection,
    news::News,
    open::{MySqlOptions, OpenError, Opened, open},
};
use crate::rows::{Dialect, RowStore};

/// Tasks in a MySQL or MariaDB database, on which other servers may work as well.
pub type MySqlStore = RowStore<Connection>;

impl Dialect for Connection {
    type News = News;
}

impl MySqlStore {
    /// Opens the database and brings its tables to today's version. Must be called on a Tokio runtime, which the store
    /// works on from then on.
    ///
    /// # Errors
    /// Why it cannot be used, and what to do.
    pub async fn open(options: &MySqlOptions) -> Result<Self, OpenError> {
        let Opened { database, token_key } = open(options).await?;
        Ok(Self::over(database, (), News, token_key))
    }
}
