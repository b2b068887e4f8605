//! The store: MySQL under the port that shared stores have in common.

use std::sync::Arc;

use async_trait::async_trait;
use windlass_store::{Archive, RowSnapshot, Store};

use super::{
    connection::Connection,
    direct::DirectConnection,
    news::{News, Notifier},
    open::{MySqlOptions, Opened, open},
    snapshot::MySqlSnapshot,
};
use crate::{
    OpenError, Schema, SharedDatabase,
    rows::{Dialect, RowArchive, RowStore, schema},
};

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
        let notifier = Arc::new(Notifier::new(options.clone()));
        let news = News::listen(options.clone(), notifier.clone());
        Ok(Self::over(database, notifier, news, token_key))
    }
}

#[async_trait]
impl SharedDatabase for MySqlOptions {
    async fn open(&self) -> Result<Arc<dyn Store>, OpenError> {
        Ok(Arc::new(MySqlStore::open(self).await?))
    }

    async fn schema(&self) -> Result<Schema, OpenError> {
        schema::<DirectConnection>(self).await
    }

    async fn snapshot(&self) -> Result<Box<dyn RowSnapshot>, OpenError> {
        Ok(Box::new(MySqlSnapshot::open(self).await?))
    }

    async fn to_look(&self) -> Result<Box<dyn Archive>, OpenError> {
        Ok(Box::new(RowArchive::<DirectConnection>::to_look(self).await?))
    }

    async fn to_fill(&self) -> Result<Box<dyn Archive>, OpenError> {
        Ok(Box::new(RowArchive::<DirectConnection>::to_fill(self).await?))
    }
}
