//! Properties of tokens for arbitrary bytes: for property tests (`tests/it/malformed.rs`) and for fuzzing (`fuzz/`).
//! The check panics when a property is violated: reading must not panic, and an accepted token must be identical when
//! it is sealed again.

use crate::Tokens;

/// Reads the bytes as a token. An accepted token must equal, byte for byte, the sealed one.
pub fn token(tokens: &Tokens, bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(id) = tokens.read(text) {
        assert_eq!(tokens.seal(&id), text);
    }
}
