//! Errors of a database, classified by what the store does about them.

use thiserror::Error;
use windlass_store::{DamagedTask, Quarantine, StoreError};

/// An error of the database, of the connection to it, or of a row.
#[derive(Debug, Error)]
pub(crate) enum Fault {
    /// The database, or the connection to it, failed.
    #[error("{message}")]
    Database {
        /// The product, for the error message.
        product: &'static str,
        /// What the store does about it.
        kind: Kind,
        /// The cause, without user and password.
        message: String,
    },
    /// The error that the caller gets, unchanged.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What the store does about an error of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Another transaction was in the way: the same work may succeed when it is retried.
    Contention,
    /// A row exists that was expected to be new.
    Taken,
    /// The connection is lost, or the server is about to end it: another connection may work.
    Lost,
    /// The disk or a table of the database is full.
    Full,
    /// Another server has taken the lease under which this was to be written.
    LeaseLost,
    /// Anything else: a retry would fail too.
    Other,
}

impl Fault {
    /// Another transaction was in the way: the same work may succeed when it is retried.
    pub(crate) fn is_contention(&self) -> bool {
        self.is(Kind::Contention)
    }

    /// Another server has the lease of the service that writes.
    pub(crate) fn is_lease_lost(&self) -> bool {
        self.is(Kind::LeaseLost)
    }

    /// A row exists that was expected to be new.
    pub(crate) fn is_taken(&self) -> bool {
        self.is(Kind::Taken)
    }

    /// The connection is lost, or the server is about to end it: another connection may work.
    pub(crate) fn is_lost_connection(&self) -> bool {
        self.is(Kind::Lost)
    }

    fn is(&self, of: Kind) -> bool {
        matches!(self, Self::Database { kind, .. } if *kind == of)
    }

    /// The fault of a claim. A claim whose connection was lost may have been committed, so it is never retried: a second
    /// claim would take further attempts while nobody knows of the first ones.
    pub(crate) fn of_claim(self) -> Self {
        if self.is_lost_connection() { Self::Store(self.into()) } else { self }
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Store(error) => error,
            Fault::Database { product, kind: Kind::Full, message } => {
                Self::Full(format!("{product}: {message}"))
            }
            Fault::Database { kind: Kind::LeaseLost, .. } => Self::LeaseLost,
            Fault::Database { product, message, .. } => Self::Unavailable(format!("{product}: {message}")),
        }
    }
}

/// A column whose content is invalid.
pub(crate) fn damaged(what: impl Into<String>) -> Fault {
    Fault::Store(StoreError::Damaged(what.into()))
}

/// The value that was read, or `None` where a row that belongs to no task is damaged: `row` is its entry in the quarantine.
pub(crate) fn sound<T>(
    quarantine: &Quarantine,
    read: Result<T, Fault>,
    row: impl FnOnce(&StoreError) -> DamagedTask,
) -> Result<Option<T>, Fault> {
    match read {
        Err(Fault::Store(error)) => Ok(quarantine.readable_row(Err(error), row)?),
        read => read.map(Some),
    }
}
