//! What a shared store needs of a product's driver: a pool of connections, and statements that go out together.

use std::{future::Future, sync::Arc};

use super::{Columns, Fault};

/// The answers of a script: the rows of each of its statements, in order.
pub(crate) type Answers<L> = Vec<Vec<<L as Link>::Row>>;

/// A connection to the database. When it is dropped within a transaction it is closed, which rolls back.
pub(crate) trait Link: Send + Sized + 'static {
    /// The product's name, for error messages.
    const PRODUCT: &'static str;

    /// The pool it is from.
    type Database: Database<Link = Self>;

    /// Statements that go to the database together. They may begin a transaction or commit it.
    type Script<'a>: Default + Send;

    /// A row of an answer.
    type Row: Columns;

    /// Sends a script and waits for all answers. A script that neither begins nor commits a transaction belongs to the open
    /// one, if there is one.
    fn send(&mut self, script: Self::Script<'_>)
    -> impl Future<Output = Result<Answers<Self>, Fault>> + Send;

    /// Rolls the open transaction back.
    fn roll_back(&mut self) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Sends a script of one statement and waits for its rows.
    fn rows(
        &mut self,
        script: Self::Script<'_>,
    ) -> impl Future<Output = Result<Vec<Self::Row>, Fault>> + Send {
        async { Ok(self.send(script).await?.into_iter().next().unwrap_or_default()) }
    }
}

/// A pool of connections to one database.
pub(crate) trait Database: Send + Sync + 'static {
    /// Its connections.
    type Link: Link<Database = Self>;

    /// A connection for one piece of work. Where all are busy this waits, for at most
    /// [`WAIT_MAX`](super::policy::WAIT_MAX).
    fn connection(self: &Arc<Self>) -> impl Future<Output = Result<Self::Link, Fault>> + Send;

    /// How many connections were made so far.
    fn connected(&self) -> u64;

    /// How often a script went to the database and was waited for.
    fn trips(&self) -> u64;

    /// Closes idle connections, and each of the others once its work is done.
    fn close(&self);
}
