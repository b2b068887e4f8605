//! Tokens of attempts: they authorize reports, sealed with a 128-bit MAC whose key is in the store.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac, digest::Key};
use sha2::Sha256;
use windlass_core::{ActKey, Direction, TaskId, hex};

use windlass_store::AttemptId;

/// Seals and reads tokens.
pub struct Tokens {
    key: Hmac<Sha256>,
}

/// A token consists of 35 bytes that name its attempt, and the MAC.
const NAME_BYTES: usize = 16 + 2 + 4 + 1 + 4 + 8;
const MAC_BYTES: usize = 16;

/// The name of a store is the MAC of this; no attempt has a name of this length.
const STORE: &[u8] = b"the name of the store";

const TEXT_BYTES: usize = (NAME_BYTES + MAC_BYTES) * 4 / 3;

impl Tokens {
    /// Tokens of the store with this key.
    #[must_use]
    pub fn new(key: &[u8; 32]) -> Self {
        // A key that is shorter than a block is padded with zeros, as `new_from_slice` does, which may fail.
        let mut block = Key::<Hmac<Sha256>>::default();
        block[..key.len()].copy_from_slice(key);
        Self { key: Hmac::new(&block) }
    }

    /// The token of an attempt. The same attempt and claim give the same token.
    #[must_use]
    pub fn seal(&self, id: &AttemptId) -> String {
        let mut bytes = [0; NAME_BYTES + MAC_BYTES];
        let name = name(id);
        bytes[..NAME_BYTES].copy_from_slice(&name);
        let mac = self.key.clone().chain_update(name).finalize().into_bytes();
        bytes[NAME_BYTES..].copy_from_slice(&mac[..MAC_BYTES]);
        BASE64_URL_SAFE_NO_PAD.encode(bytes)
    }

    /// A public name of the store, which only its servers can make: 128 bits in hexadecimal.
    #[must_use]
    pub(crate) fn store_name(&self) -> String {
        let mac = self.key.clone().chain_update(STORE).finalize().into_bytes();
        hex(&mac[..MAC_BYTES])
    }

    /// The attempt that a token names. The seal is not checked: anybody can construct such a name.
    #[must_use]
    pub(crate) fn name(token: &str) -> Option<AttemptId> {
        parse(&bytes(token)?[..NAME_BYTES])
    }

    /// The attempt that a token names, if the token is from this store.
    #[must_use]
    pub fn read(&self, token: &str) -> Option<AttemptId> {
        let bytes = bytes(token)?;
        let (name, mac) = bytes.split_at(NAME_BYTES);
        self.key.clone().chain_update(name).verify_truncated_left(mac).ok()?;
        parse(name)
    }
}

/// Whether a string may be a token, of this store or of another one. A truncated or altered token is not one.
#[must_use]
pub fn is_token(text: &str) -> bool {
    bytes(text).is_some()
}

fn bytes(token: &str) -> Option<[u8; NAME_BYTES + MAC_BYTES]> {
    let mut bytes = [0; NAME_BYTES + MAC_BYTES];
    if token.len() > TEXT_BYTES + 1 {
        return None;
    }
    let length = BASE64_URL_SAFE_NO_PAD.decode_slice(token, &mut bytes).ok()?;
    (length == bytes.len()).then_some(bytes)
}

fn name(id: &AttemptId) -> [u8; NAME_BYTES] {
    let mut name = [0; NAME_BYTES];
    name[..16].copy_from_slice(&id.task.to_bytes());
    // A flow has at most 256 steps.
    name[16..18].copy_from_slice(&u16::try_from(id.key.step).unwrap_or(u16::MAX).to_be_bytes());
    name[18..22].copy_from_slice(&id.key.member.to_be_bytes());
    name[22] = u8::from(id.key.direction == Direction::Rollback);
    name[23..27].copy_from_slice(&id.attempt.to_be_bytes());
    name[27..].copy_from_slice(&id.claim.to_be_bytes());
    name
}

fn parse(name: &[u8]) -> Option<AttemptId> {
    let direction = match name[22] {
        0 => Direction::Forward,
        1 => Direction::Rollback,
        _ => return None,
    };
    Some(AttemptId {
        task: TaskId::from_bytes(name[..16].try_into().ok()?),
        key: ActKey {
            step: usize::from(u16::from_be_bytes(name[16..18].try_into().ok()?)),
            member: u32::from_be_bytes(name[18..22].try_into().ok()?),
            direction,
        },
        attempt: u32::from_be_bytes(name[23..27].try_into().ok()?),
        claim: u64::from_be_bytes(name[27..].try_into().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt() -> AttemptId {
        AttemptId { task: TaskId(7 << 90), key: ActKey::rollback(255), attempt: 3, claim: 1 << 40 | 9 }
    }

    #[test]
    fn a_token_names_its_attempt() {
        let tokens = Tokens::new(&[1; 32]);
        let token = tokens.seal(&attempt());
        assert_eq!(tokens.read(&token), Some(attempt()));
        assert_eq!(token, tokens.seal(&attempt()));
    }

    #[test]
    fn no_bit_of_a_token_can_be_changed() {
        let tokens = Tokens::new(&[1; 32]);
        let token = tokens.seal(&attempt());
        assert_eq!(Tokens::new(&[2; 32]).read(&token), None, "a token of another store");
        for index in 0..token.len() {
            let mut forged = token.clone().into_bytes();
            forged[index] = if forged[index] == b'A' { b'B' } else { b'A' };
            let forged = String::from_utf8(forged).unwrap();
            assert!(tokens.read(&forged).is_none(), "character {index}");
        }
        for bad in ["", "A", "not a token", &token[1..], &format!("{token}A"), &"A".repeat(10_000)] {
            assert_eq!(tokens.read(bad), None, "{bad:.20}");
        }
    }
}
