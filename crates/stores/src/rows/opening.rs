//! Opening: which versions of the tables this program works on.

use super::RESERVED;
use crate::OpenError;

/// Fails where this program, which knows version `known`, must not work on these tables.
pub(crate) fn check_readable(found: i64, readable_from: i64, known: i64) -> Result<(), OpenError> {
    if readable_from >= RESERVED {
        return Err(OpenError::Importing);
    }
    if readable_from > known {
        return Err(OpenError::Newer { found, readable_from, known });
    }
    Ok(())
}

/// Random bytes.
pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N], OpenError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| OpenError::Random(error.to_string()))?;
    Ok(bytes)
}
