//! Reads the version of a file without changing it.

use std::path::Path;

use crate::Schema;
use crate::sqlite::{
    connect::{Role, connect},
    migrate::{self, Format, VERSION},
    open::OpenError,
};

/// Returns the version of a file, which a server may have open, and changes nothing.
///
/// # Errors
/// When it is a file of something else or cannot be read.
pub fn schema(path: &Path) -> Result<Schema, OpenError> {
    let known = i64::from(VERSION);
    let nothing = Schema { found: 0, readable_from: 0, known };
    if !path.exists() {
        return Ok(nothing);
    }
    let sqlite = |error| OpenError::sqlite(path, &error);
    match migrate::format(&connect(path, Role::Reader).map_err(sqlite)?).map_err(sqlite)? {
        Format::Empty => Ok(nothing),
        // A file has one server, so no other version needs to read it meanwhile.
        Format::Windlass(found) => Ok(Schema { found: found.into(), readable_from: found.into(), known }),
        Format::Foreign => {
            let found = "a SQLite database of another program".to_owned();
            Err(OpenError::Foreign { path: path.into(), found })
        }
    }
}
