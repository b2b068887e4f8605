//! What must hold of tokens, whatever the bytes are: for property tests (`tests/it/malformed.rs`) and for fuzzing
//! (`fuzz/`). It panics when a promise is broken: no panic, and nothing accepted that is not the same when it is sealed
//! again.

use crate::Tokens;

/// Reads the bytes as a token. One that is accepted is, byte for byte, the one that was sealed.
pub fn token(tokens: &Tokens, bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(id) = tokens.read(text) {
        assert_eq!(tokens.seal(&id), text);
    }
}
