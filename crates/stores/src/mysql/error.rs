//! Errors of MySQL and MariaDB, classified.

use mysql_async::{DriverError, Error};

use super::connection::Connection;
use crate::rows::{Fault, Kind, Link as _};

/// Two transactions wait for one another.
const DEADLOCK: u16 = 1213;
/// Another transaction had a lock for too long.
const LOCK_WAIT_TIMEOUT: u16 = 1205;
/// MariaDB under snapshot isolation: a record has changed since it was read.
const RECORD_CHANGED: u16 = 1020;
/// A subquery has several rows: only the check of a lease is made so that it may.
const SEVERAL_ROWS: u16 = 1242;
const DUPLICATE_KEY: u16 = 1062;
/// A table or the disk is full.
const FULL: [u16; 4] = [1021, 1114, 3675, 1041];
/// The server ends, refuses writes for now, or has ended the connection or its statement.
const ENDING: [u16; 12] = [1053, 1152, 1158, 1159, 1160, 1161, 1290, 1792, 1836, 1927, 3168, 4031];
/// There are no connections left, for now.
const TOO_MANY: [u16; 3] = [1040, 1203, 1226];

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        // The server's words have no passwords in them.
        let message = match &error {
            Error::Server(error) => format!("{}: {}", error.code, error.message),
            Error::Io(error) => error.to_string(),
            Error::Driver(error) => error.to_string(),
            other => other.to_string(),
        };
        fault(kind(&error), message)
    }
}

/// The server did not answer in time, or its answers do not fit the statements: the connection counts as lost.
pub(super) fn lost(message: &str) -> Fault {
    fault(Kind::Lost, message.to_owned())
}

/// All connections were busy. The caller decides whether to try again.
pub(super) fn busy() -> Fault {
    fault(Kind::Other, "all connections to it were busy for too long".to_owned())
}

fn fault(kind: Kind, message: String) -> Fault {
    Fault::Database { product: Connection::PRODUCT, kind, message }
}

fn kind(error: &Error) -> Kind {
    match error {
        Error::Server(error) => match error.code {
            DEADLOCK | LOCK_WAIT_TIMEOUT | RECORD_CHANGED => Kind::Contention,
            DUPLICATE_KEY => Kind::Taken,
            SEVERAL_ROWS => Kind::LeaseLost,
            code if FULL.contains(&code) => Kind::Full,
            code if ENDING.contains(&code) || TOO_MANY.contains(&code) => Kind::Lost,
            _ => Kind::Other,
        },
        Error::Io(_) => Kind::Lost,
        Error::Driver(DriverError::ConnectionClosed | DriverError::PacketOutOfOrder) => Kind::Lost,
        _ => Kind::Other,
    }
}
