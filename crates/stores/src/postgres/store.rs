//! The store: PostgreSQL under the port that shared stores have in common.

use std::sync::Arc;

use async_trait::async_trait;
use uuid::Uuid;
use windlass_store::{Archive, RowSnapshot, Store};

use super::{
    commit::Memory,
    connection::Connection,
    direct::DirectConnection,
    news::News,
    open::{Opened, PostgresOptions, open},
    snapshot::PostgresSnapshot,
};
use crate::{
    OpenError, Schema, SharedDatabase,
    rows::{Dialect, RowArchive, RowStore, random_bytes, schema},
};

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

#[async_trait]
impl SharedDatabase for PostgresOptions {
    async fn open(&self) -> Result<Arc<dyn Store>, OpenError> {
        Ok(Arc::new(PostgresStore::open(self).await?))
    }

    async fn schema(&self) -> Result<Schema, OpenError> {
        schema::<DirectConnection>(self).await
    }

    async fn snapshot(&self) -> Result<Box<dyn RowSnapshot>, OpenError> {
        Ok(Box::new(PostgresSnapshot::open(self).await?))
    }

    async fn to_look(&self) -> Result<Box<dyn Archive>, OpenError> {
        Ok(Box::new(RowArchive::<DirectConnection>::to_look(self).await?))
    }

    async fn to_fill(&self) -> Result<Box<dyn Archive>, OpenError> {
        Ok(Box::new(RowArchive::<DirectConnection>::to_fill(self).await?))
    }
}
