//! What goes wrong with the database, and what is to be done about it.

use std::error::Error as _;

use deadpool_postgres::{HookError, PoolError};
use thiserror::Error;
use tokio_postgres::error::SqlState;
use windlass_store::{DamagedTask, Quarantine, StoreError};

/// Something went wrong.
#[derive(Debug, Error)]
pub(super) enum Fault {
    /// With the database, or on the way there.
    #[error("{}", describe(.0))]
    Postgres(#[from] tokio_postgres::Error),
    /// No connection could be had.
    #[error("{0}")]
    NoConnection(String),
    /// It did not answer for longer than a statement may take.
    #[error("it did not answer in time")]
    NoAnswer,
    /// What was read or is known already.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<PoolError> for Fault {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
                Self::Postgres(error)
            }
            PoolError::PostCreateHook(HookError::Message(message)) => {
                Self::NoConnection(message.into_owned())
            }
            PoolError::Timeout(_) => {
                Self::NoConnection("all connections to it were busy for too long".to_owned())
            }
            other => Self::NoConnection(other.to_string()),
        }
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        match &fault {
            Fault::Store(error) => error.clone(),
            _ if fault.is_full() => Self::Full(format!("PostgreSQL: {fault}")),
            _ => Self::Unavailable(format!("PostgreSQL: {fault}")),
        }
    }
}

/// What was read; nothing where a row that is of no task is damaged, which `row` names in the quarantine.
pub(super) fn sound<T>(
    quarantine: &Quarantine,
    read: Result<T, Fault>,
    row: impl FnOnce(&StoreError) -> DamagedTask,
) -> Result<Option<T>, Fault> {
    match read {
        Err(Fault::Store(error)) => Ok(quarantine.readable_row(Err(error), row)?),
        read => read.map(Some),
    }
}

impl Fault {
    /// Something was to be sent after the connection was lost.
    pub(super) fn closed() -> Self {
        Self::NoConnection("the connection is closed".to_owned())
    }

    fn state(&self) -> Option<&SqlState> {
        let Self::Postgres(error) = self else { return None };
        error.code()
    }

    /// Others were in the way: the same may succeed when it is tried again.
    pub(super) fn is_contention(&self) -> bool {
        let contention = [
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::LOCK_NOT_AVAILABLE,
        ];
        self.state().is_some_and(|state| contention.contains(state))
    }

    /// Something is there already that was thought to be new.
    pub(super) fn is_taken(&self) -> bool {
        self.state() == Some(&SqlState::UNIQUE_VIOLATION)
    }

    /// The connection is gone, or the server is about to end it: another one may be better.
    pub(super) fn is_lost_connection(&self) -> bool {
        let ending = [
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::CANNOT_CONNECT_NOW,
            SqlState::TOO_MANY_CONNECTIONS,
            SqlState::READ_ONLY_SQL_TRANSACTION,
            SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        ];
        match self {
            Self::Postgres(error) => match error.code() {
                Some(state) => ending.contains(state) || state.code().starts_with("08"),
                None => {
                    error.is_closed() || error.source().is_some_and(|source| source.is::<std::io::Error>())
                }
            },
            Self::NoAnswer => true,
            Self::NoConnection(_) | Self::Store(_) => false,
        }
    }

    fn is_full(&self) -> bool {
        self.state().is_some_and(|state| *state == SqlState::DISK_FULL)
    }
}

/// The error with all that it was caused by. Neither has passwords in it.
pub(super) fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        let detail = error.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
        return format!("{}: {}{detail}", error.code().code(), error.message());
    }
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
