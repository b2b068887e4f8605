//! How access tokens are stored: the number of the format, and JSON.

use std::{collections::BTreeSet, fmt::Display, sync::Arc};

use serde::{Deserialize, Serialize};
use windlass_core::{Actor, Name, Timestamp, hex};
use windlass_store::{Record, StoreError};

use super::{
    secret::AccessTokenId,
    token::{AccessRole, AccessScope, AccessToken},
};

/// The format of this version.
const FORMAT: u8 = 1;

/// A token as it is stored. Its name is the record's.
#[derive(Serialize, Deserialize)]
struct Stored {
    id: String,
    sha256: String,
    role: String,
    queues: Vec<String>,
    flows: Vec<String>,
    created_at: Timestamp,
    created_by: Option<Actor>,
    expires_at: Option<Timestamp>,
    used_at: Option<Timestamp>,
}

/// The body of a record.
pub(super) fn encode(token: &AccessToken) -> Arc<[u8]> {
    let stored = Stored {
        id: token.id.to_string(),
        sha256: hex(&token.hash),
        role: token.role.as_str().to_owned(),
        queues: token.scope.queues.iter().map(ToString::to_string).collect(),
        flows: token.scope.flows.iter().map(ToString::to_string).collect(),
        created_at: token.created_at,
        created_by: token.created_by.clone(),
        expires_at: token.expires_at,
        used_at: token.used_at,
    };
    let mut body = vec![FORMAT];
    // Writing plain values to memory cannot fail; if it did, the record would be damaged, and nobody could use the token.
    let _ = serde_json::to_writer(&mut body, &stored);
    body.into()
}

/// The token of a record.
///
/// # Errors
/// When the record is damaged, or a newer version has written it.
pub(super) fn decode(record: &Record) -> Result<AccessToken, StoreError> {
    let damaged = |why: &dyn Display| {
        StoreError::Damaged(format!(
            "the record of the access token {} cannot be read: {why}; revoke it, and create another one",
            record.name
        ))
    };
    let json = match record.body.split_first() {
        Some((&FORMAT, json)) => json,
        Some((format, _)) => return Err(damaged(&format_args!("it has the unknown format {format}"))),
        None => return Err(damaged(&"it is empty")),
    };
    let stored: Stored = serde_json::from_slice(json).map_err(|error| damaged(&error))?;
    let id = u64::from_str_radix(&stored.id, 16).map_err(|error| damaged(&error))?;
    // A role of a newer version may be less than any role of this one.
    let role = AccessRole::from_name(&stored.role).ok_or_else(|| damaged(&"its role is unknown"))?;
    let names = |texts: &[String]| -> Result<BTreeSet<Name>, StoreError> {
        texts.iter().map(|text| Name::new(text).map_err(|error| damaged(&error))).collect()
    };
    Ok(AccessToken {
        name: record.name.clone(),
        id: AccessTokenId(id),
        hash: hash(&stored.sha256).ok_or_else(|| damaged(&"its hash is not one"))?,
        role,
        scope: AccessScope { queues: names(&stored.queues)?, flows: names(&stored.flows)? },
        created_at: stored.created_at,
        created_by: stored.created_by,
        expires_at: stored.expires_at,
        used_at: stored.used_at,
    })
}

fn hash(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    if text.len() != 2 * hash.len() || !text.is_ascii() {
        return None;
    }
    for (index, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use windlass_store::RecordKind;

    use super::*;

    /// A token as the first version stored it.
    const STORED: &str = r#"{"id":"00000000000000ff","sha256":"0101010101010101010101010101010101010101010101010101010101010101","role":"operator","queues":["mysql"],"flows":["a","b"],"created_at":1900000000000,"created_by":{"name":"admin","claimed":false},"expires_at":1900000060000,"used_at":null}"#;

    fn record(body: &[u8]) -> Record {
        let name = Name::new("ci").unwrap();
        Record { kind: RecordKind::AccessToken, name, version: 1, body: body.into() }
    }

    #[test]
    fn a_token_of_the_first_format_is_read_and_written_unchanged() {
        let record = record(&[&[FORMAT], STORED.as_bytes()].concat());
        let token = decode(&record).unwrap();
        assert_eq!((token.name.as_str(), token.id, token.hash), ("ci", AccessTokenId(255), [1; 32]));
        assert!(
            token.scope.has_flow("b") && token.scope.has_queue("mysql") && token.role == AccessRole::Operator
        );
        assert_eq!(encode(&token), record.body);
    }

    #[test]
    fn a_record_that_cannot_be_read_gives_no_token() {
        let of = |json: &str| record(&[&[FORMAT], json.as_bytes()].concat());
        for bad in [
            record(&[]),
            record(&[2, b'{', b'}']),
            of("{"),
            of("{}"),
            of(&STORED.replace("operator", "root")),
            of(&STORED.replace(r#""0101"#, r#""01"#)),
            of(&STORED.replace("0101", "zz01")),
            of(&STORED.replace(r#""mysql""#, r#""no name""#)),
        ] {
            let error = decode(&bad).unwrap_err().to_string();
            assert!(error.contains("revoke it"), "{error}");
        }
    }
}
