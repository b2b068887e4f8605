//! Errors of PostgreSQL and of the connection pool, classified.

use std::{error::Error as _, io};

use deadpool_postgres::{HookError, PoolError};
use tokio_postgres::error::SqlState;

use super::connection::Connection;
use crate::rows::{Fault, Kind, Link as _};

/// The server ends, or the connection cannot be used for writing.
const ENDING: [SqlState; 6] = [
    SqlState::ADMIN_SHUTDOWN,
    SqlState::CRASH_SHUTDOWN,
    SqlState::CANNOT_CONNECT_NOW,
    SqlState::TOO_MANY_CONNECTIONS,
    SqlState::READ_ONLY_SQL_TRANSACTION,
    SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
];

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        fault(kind(&error), describe(&error))
    }
}

impl From<PoolError> for Fault {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => error.into(),
            PoolError::PostCreateHook(HookError::Message(message)) => {
                fault(Kind::Other, message.into_owned())
            }
            PoolError::Timeout(_) => {
                fault(Kind::Other, "all connections to it were busy for too long".to_owned())
            }
            other => fault(Kind::Other, other.to_string()),
        }
    }
}

/// The server did not answer in time: the connection counts as lost.
pub(super) fn no_answer() -> Fault {
    fault(Kind::Lost, "it did not answer in time".to_owned())
}

/// Something was sent on a connection that is closed.
pub(super) fn closed() -> Fault {
    fault(Kind::Other, "the connection is closed".to_owned())
}

fn fault(kind: Kind, message: String) -> Fault {
    Fault::Database { product: Connection::PRODUCT, kind, message }
}

fn kind(error: &tokio_postgres::Error) -> Kind {
    let Some(state) = error.code() else {
        let is_lost = error.is_closed() || error.source().is_some_and(|source| source.is::<io::Error>());
        return if is_lost { Kind::Lost } else { Kind::Other };
    };
    match state {
        &SqlState::T_R_DEADLOCK_DETECTED
        | &SqlState::T_R_SERIALIZATION_FAILURE
        | &SqlState::LOCK_NOT_AVAILABLE => Kind::Contention,
        &SqlState::UNIQUE_VIOLATION => Kind::Taken,
        &SqlState::DISK_FULL => Kind::Full,
        // Only the check of a lease divides by what it finds.
        &SqlState::DIVISION_BY_ZERO => Kind::LeaseLost,
        // Class 08: connection exceptions.
        state if ENDING.contains(state) || state.code().starts_with("08") => Kind::Lost,
        _ => Kind::Other,
    }
}

/// The error with its causes. None of them has a password in it.
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
