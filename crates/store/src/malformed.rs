//! What must hold of stored values, whatever the bytes are: for property tests (`tests/it/malformed.rs`) and for
//! fuzzing (`fuzz/`). Each function panics when a promise is broken: no panic, no refusal without a reason, and
//! nothing accepted that is not the same when it is written and read again.

use crate::{StoreError, stored};

/// Reads the bytes as every kind of stored value.
pub fn stored_value(bytes: &[u8]) {
    check(bytes, stored::read_state, stored::write_state);
    check(bytes, stored::read_member, stored::write_member);
    check(bytes, stored::read_flow, stored::write_flow);
    check(bytes, stored::read_events, stored::write_events);
    check(bytes, stored::read_message, stored::write_message);
    check(bytes, stored::read_alarm, stored::write_alarm);
    check(bytes, |bytes| stored::read_input(bytes, "{}"), stored::write_input);
}

/// A value may have been written in more bytes than needed (a number can be), so what is compared is what comes out
/// of the second round.
fn check<T>(bytes: &[u8], read: impl Fn(&[u8]) -> Result<T, StoreError>, write: impl Fn(&T) -> Vec<u8>) {
    match read(bytes) {
        Err(error) => assert!(matches!(error, StoreError::Damaged(ref what) if !what.is_empty()), "{error}"),
        Ok(value) => {
            let written = write(&value);
            // What is written again in today's format may have more in it than what an older one could say.
            if bytes.first() == Some(&stored::FORMAT) {
                assert!(written.len() <= bytes.len(), "it has grown");
            }
            let Ok(again) = read(&written) else { panic!("what was read cannot be read again") };
            assert_eq!(write(&again), written);
        }
    }
}
