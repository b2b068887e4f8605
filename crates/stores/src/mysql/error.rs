//! What goes wrong with the database, and what is to be done about it.

use mysql_async::{DriverError, Error};
use thiserror::Error;
use windlass_store::{DamagedTask, Quarantine, StoreError};

/// Something went wrong.
#[derive(Debug, Error)]
pub(super) enum Fault {
    /// With the database, or on the way there. The server's words have no passwords in them.
    #[error("{}", describe(.0))]
    MySql(#[from] Error),
    /// There was no answer in time.
    #[error("{0}")]
    NoAnswer(&'static str),
    /// What came is not what was asked for. Nothing of it counts, and the connection is given up.
    #[error("the database's answers are out of step: {0}")]
    OutOfStep(&'static str),
    /// What was read or is known already.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Two transactions wait for one another.
const DEADLOCK: u16 = 1213;
/// Another transaction had a lock for too long.
const LOCK_WAIT_TIMEOUT: u16 = 1205;
/// MariaDB under snapshot isolation: a record has changed since it was read.
const RECORD_CHANGED: u16 = 1020;
const DUPLICATE_KEY: u16 = 1062;
/// A table or the disk is full.
const FULL: [u16; 4] = [1021, 1114, 3675, 1041];
/// The server ends, refuses writes for now, or has ended the connection or its statement.
const ENDING: [u16; 12] = [1053, 1152, 1158, 1159, 1160, 1161, 1290, 1792, 1836, 1927, 3168, 4031];
/// There are no connections left, for now.
const TOO_MANY: [u16; 3] = [1040, 1203, 1226];

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        match &fault {
            Fault::Store(error) => error.clone(),
            _ if fault.code().is_some_and(|code| FULL.contains(&code)) => {
                Self::Full(format!("MySQL: {fault}"))
            }
            _ => Self::Unavailable(format!("MySQL: {fault}")),
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
    /// The server's number for it.
    pub(super) fn code(&self) -> Option<u16> {
        let Self::MySql(Error::Server(error)) = self else { return None };
        Some(error.code)
    }

    /// Others were in the way: the same may succeed when it is tried again.
    pub(super) fn is_contention(&self) -> bool {
        self.code().is_some_and(|code| [DEADLOCK, LOCK_WAIT_TIMEOUT, RECORD_CHANGED].contains(&code))
    }

    /// Something is there already that was thought to be new.
    pub(super) fn is_taken(&self) -> bool {
        self.code() == Some(DUPLICATE_KEY)
    }

    /// The connection is gone, or the server is about to end it: another one may be better.
    pub(super) fn is_lost_connection(&self) -> bool {
        match self {
            Self::MySql(Error::Server(error)) => {
                ENDING.contains(&error.code) || TOO_MANY.contains(&error.code)
            }
            Self::MySql(Error::Io(_)) | Self::NoAnswer(_) | Self::OutOfStep(_) => true,
            Self::MySql(Error::Driver(error)) => {
                matches!(error, DriverError::ConnectionClosed | DriverError::PacketOutOfOrder)
            }
            Self::MySql(_) | Self::Store(_) => false,
        }
    }
}

fn describe(error: &Error) -> String {
    match error {
        Error::Server(error) => format!("{}: {}", error.code, error.message),
        Error::Io(error) => error.to_string(),
        Error::Driver(error) => error.to_string(),
        other => other.to_string(),
    }
}

/// A column that is not what it should be.
pub(super) fn damaged(what: impl Into<String>) -> Fault {
    Fault::Store(StoreError::Damaged(what.into()))
}
