//! Secrets of access tokens: `wl_`, the id of the token, and 256 random bits, in hexadecimal.
//!
//! ```text
//! wl_0123456789abcdef_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
//!    └─ id: 64 bits ─┘ └─ secret: 256 bits ──────────────────────────────────────────┘
//! ```
//!
//! The store has the SHA-256 of the whole text. The secret has 256 random bits, so a slow hash would protect nothing more: what
//! cannot be guessed once in the age of the universe need not be slow to try.

use std::{fmt, hint::black_box};

use sha2::{Digest as _, Sha256};
use windlass_core::hex;

/// What each token begins with, so that people and scanners of secrets recognize it.
const PREFIX: &str = "wl_";

const ID_BYTES: usize = 8;
const SECRET_BYTES: usize = 32;
const TEXT_BYTES: usize = PREFIX.len() + 2 * ID_BYTES + 1 + 2 * SECRET_BYTES;

/// The random bytes that a new token takes.
pub const ACCESS_RANDOM_BYTES: usize = ID_BYTES + SECRET_BYTES;

/// The id of a token: it is not a secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccessTokenId(pub u64);

impl fmt::Display for AccessTokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for AccessTokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A token as its user has it. It is neither stored nor logged.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessSecret {
    text: String,
    id: AccessTokenId,
}

impl AccessSecret {
    /// A new token of these random bytes.
    #[must_use]
    pub fn new(random: &[u8; ACCESS_RANDOM_BYTES]) -> Self {
        let (id, secret) = random.split_at(ID_BYTES);
        let id = AccessTokenId(id.iter().fold(0, |id, byte| id << 8 | u64::from(*byte)));
        let secret = hex(secret);
        Self { text: format!("{PREFIX}{id}_{secret}"), id }
    }

    /// The token of a text; `None` if it does not have that form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        id_of(text).map(|id| Self { text: text.to_owned(), id })
    }

    /// The id in a text; `None` if the text does not have the form of a token.
    #[must_use]
    pub fn id_in(text: &str) -> Option<AccessTokenId> {
        id_of(text)
    }

    /// The id.
    #[must_use]
    pub fn id(&self) -> AccessTokenId {
        self.id
    }

    /// The whole text, to show it once.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What is stored of it.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        Self::hash_of(&self.text)
    }

    /// What is stored of a text that has the form of a token.
    #[must_use]
    pub fn hash_of(text: &str) -> [u8; 32] {
        Sha256::digest(text).into()
    }
}

impl fmt::Debug for AccessSecret {
    /// Leaves out the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}_…", self.id)
    }
}

/// Whether two hashes are the same, in a time that does not depend on where they differ.
#[must_use]
pub fn is_same_hash(left: &[u8; 32], right: &[u8; 32]) -> bool {
    let differing = left.iter().zip(right).fold(0, |differing, (left, right)| differing | (left ^ right));
    black_box(differing) == 0
}

fn id_of(text: &str) -> Option<AccessTokenId> {
    if text.len() != TEXT_BYTES {
        return None;
    }
    let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
    let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if id.len() != 2 * ID_BYTES || !is_hex(id) || !is_hex(secret) {
        return None;
    }
    u64::from_str_radix(id, 16).ok().map(AccessTokenId)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> AccessSecret {
        let mut random = [0; ACCESS_RANDOM_BYTES];
        random.iter_mut().zip(0xa0..).for_each(|(byte, value)| *byte = value);
        AccessSecret::new(&random)
    }

    #[test]
    fn a_token_is_read_as_it_was_written() {
        let secret = secret();
        assert_eq!(
            secret.text(),
            "wl_a0a1a2a3a4a5a6a7_a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7"
        );
        assert_eq!(AccessSecret::parse(secret.text()), Some(secret.clone()));
        assert_eq!(secret.id(), AccessTokenId(0xa0a1_a2a3_a4a5_a6a7));
        assert_eq!(AccessSecret::parse(secret.text()).unwrap().hash(), secret.hash());
    }

    #[test]
    fn what_has_another_form_is_no_token() {
        let text = secret().text().to_owned();
        let upper = text.to_uppercase();
        let plus = text.replacen("a0", "+0", 1);
        let wide = format!("{}é", &text[..text.len() - 2]);
        for bad in [
            "",
            "wl_",
            &text[1..],
            &text[..83],
            &format!("{text}0"),
            &upper,
            &plus,
            &wide,
            &text.replace('_', "-"),
        ] {
            assert_eq!(AccessSecret::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn each_character_of_a_token_counts() {
        let text = secret().text().to_owned();
        let hash = secret().hash();
        for index in 0..text.len() {
            let mut other = text.clone().into_bytes();
            other[index] = if other[index] == b'0' { b'1' } else { b'0' };
            let other = String::from_utf8(other).unwrap();
            assert!(!is_same_hash(&AccessSecret::hash_of(&other), &hash), "character {index}");
        }
    }

    #[test]
    fn hashes_are_the_same_only_if_all_bytes_are() {
        let hash = [7; 32];
        assert!(is_same_hash(&hash, &hash));
        for index in 0..32 {
            for bit in 0..8 {
                let mut other = hash;
                other[index] ^= 1 << bit;
                assert!(!is_same_hash(&hash, &other), "bit {bit} of byte {index}");
            }
        }
    }

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(format!("{:?}", secret()), "wl_a0a1a2a3a4a5a6a7_…");
    }
}
