//! A schema that has changed under a server that runs.

use windlass_store::StoreError;

use super::archive::RESERVED;
use crate::Schema;

/// Fails when a newer program has brought the tables to a version that this one must not work on. The marks of an import
/// mean no version, and it sees to it by itself that no server is there.
pub(crate) fn check_version(schema: Schema) -> Result<(), StoreError> {
    if !schema.is_too_new() || schema.readable_from >= RESERVED {
        return Ok(());
    }
    let Schema { found, readable_from, known } = schema;
    Err(StoreError::Outgrown(format!(
        "the tables in the database were brought to version {found} while this server ran, which servers read that know \
         version {readable_from} or newer; this one knows {known}: start a newer version of windlass"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_too_new_is_refused() {
        let of = |found, readable_from| check_version(Schema { found, readable_from, known: 2 });
        assert_eq!((of(2, 1), of(7, 2), of(2, RESERVED)), (Ok(()), Ok(()), Ok(())));
        let refusal = of(9, 3).unwrap_err().to_string();
        assert!(refusal.contains("version 9") && refusal.contains("version 3 or newer"), "{refusal}");
    }
}
