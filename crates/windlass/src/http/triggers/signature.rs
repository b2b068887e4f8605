//! Signatures of requests to triggers.
//!
//! Standard Webhooks (<https://www.standardwebhooks.com>) sign id, time and body. Requests that are too old are refused, and the
//! id is the idempotency key: a request that is sent again starts nothing. A plain HMAC signs the body alone. There the body
//! is the idempotency key, since nothing else of the request is certain.

use axum::http::HeaderMap;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use windlass_core::{Millis, Secret, Signature, Timestamp, hex};

use crate::http::answer::problem::Refused;

/// How far the time of a request may be from the server's.
pub(super) const TOLERANCE: Millis = Millis::from_secs(5 * 60);

/// The longest id of a request, in bytes.
const ID_BYTES_MAX: usize = 255;

/// The headers of Standard Webhooks.
const ID: &str = "webhook-id";
const TIMESTAMP: &str = "webhook-timestamp";
const SIGNATURE: &str = "webhook-signature";

/// Checks a request. Returns its id, which a repeated request has as well; `None` = every request is another one.
pub(super) fn check(
    signature: &Signature,
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> Result<Option<String>, Refused> {
    match signature {
        Signature::Unsigned => {
            let id = headers.get(ID).map(|_| header(headers, ID)).transpose()?;
            id.map(checked_id).transpose()
        }
        Signature::Standard { secret } => standard(secret, headers, body, now).map(Some),
        Signature::Hmac { secret, header } => plain(secret, header, headers, body).map(Some),
    }
}

fn standard(secret: &Secret, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Result<String, Refused> {
    let id = checked_id(header(headers, ID)?)?;
    let timestamp = header(headers, TIMESTAMP)?;
    let signatures = header(headers, SIGNATURE)?;
    let mac = standard_mac(secret, &id, timestamp, body);
    // A sender that changes its secret sends several signatures.
    let is_valid = signatures
        .split(' ')
        .filter_map(|signature| STANDARD.decode(signature.strip_prefix("v1,")?).ok())
        .any(|signature| mac.clone().verify_slice(&signature).is_ok());
    if !is_valid {
        return Err(Refused::invalid_signature(format!(
            "`{SIGNATURE}` does not fit the request: sign ID.TIMESTAMP.BODY with the secret of this trigger"
        )));
    }
    let sent_at = timestamp.parse::<i64>().ok().and_then(|seconds| seconds.checked_mul(1000));
    let Some(sent_at) = sent_at.map(Timestamp) else {
        return Err(Refused::malformed(format!("`{TIMESTAMP}` must be the seconds since 1970-01-01 UTC")));
    };
    let apart = (now - sent_at).max(sent_at - now);
    if apart > TOLERANCE {
        return Err(Refused::outdated_request(format!(
            "`{TIMESTAMP}` is {apart} from the time of the server, and may be {TOLERANCE}: check the clocks of both, \
             and do not send old requests again"
        )));
    }
    Ok(id)
}

/// The headers of a request that is signed with each of these secrets, at this time in seconds since 1970.
pub(crate) fn standard_headers(
    secrets: &[Secret],
    id: &str,
    at: i64,
    body: &[u8],
) -> [(&'static str, String); 3] {
    let timestamp = at.to_string();
    let sign = |secret| {
        let signature = standard_mac(secret, id, &timestamp, body).finalize().into_bytes();
        format!("v1,{}", STANDARD.encode(signature))
    };
    let signatures: Vec<String> = secrets.iter().map(sign).collect();
    [(ID, id.to_owned()), (SIGNATURE, signatures.join(" ")), (TIMESTAMP, timestamp)]
}

fn standard_mac(secret: &Secret, id: &str, timestamp: &str, body: &[u8]) -> Hmac<Sha256> {
    let mut mac = hmac_with(secret);
    for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
        mac.update(part);
    }
    mac
}

fn plain(secret: &Secret, name: &str, headers: &HeaderMap, body: &[u8]) -> Result<String, Refused> {
    let text = header(headers, name)?;
    let mut mac = hmac_with(secret);
    mac.update(body);
    let given = from_hex(text.strip_prefix("sha256=").unwrap_or(text));
    if given.is_none_or(|given| mac.verify_slice(&given).is_err()) {
        return Err(Refused::invalid_signature(format!(
            "`{name}` does not fit the body: it must be the HMAC-SHA256 of the body with the secret of this trigger, in \
             hexadecimal"
        )));
    }
    Ok(hex(&Sha256::digest(body)))
}

/// An HMAC-SHA256 with this key, of nothing yet.
pub(crate) fn hmac_with(secret: &Secret) -> Hmac<Sha256> {
    // HMAC takes keys of every length.
    Hmac::<Sha256>::new_from_slice(&secret.0).unwrap_or_else(|_| unreachable!("HMAC takes every key"))
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> Result<&'h str, Refused> {
    let Some(value) = headers.get(name) else {
        return Err(Refused::invalid_signature(format!(
            "the request has no header `{name}`: this trigger takes signed requests only"
        )));
    };
    let invalid = |_| Refused::invalid_signature(format!("the header `{name}` is not printable ASCII"));
    value.to_str().map_err(invalid)
}

fn checked_id(id: &str) -> Result<String, Refused> {
    match id.len() {
        1..=ID_BYTES_MAX => Ok(id.to_owned()),
        bytes => Err(Refused::malformed(format!("`{ID}` has {bytes} bytes: use 1 to {ID_BYTES_MAX}"))),
    }
}

/// The 32 bytes of 64 hexadecimal digits.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    (digits.len() == 64).then(|| digits.chunks(2).map(byte).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's reference libraries.
    const SECRET: &str = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const AT: Timestamp = Timestamp(1_614_265_330_000);

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn signed(signature: &str) -> HeaderMap {
        headers(&[(ID, "msg_p5jXN8AQM9LWM0D4loKWxJek"), (TIMESTAMP, "1614265330"), (SIGNATURE, signature)])
    }

    #[test]
    fn a_request_is_signed_as_in_the_example_of_the_specification() {
        let secrets = [Secret(STANDARD.decode(SECRET).unwrap()), Secret(vec![7; 24])];
        let signed = standard_headers(&secrets, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, BODY);
        let first = signed[1].1.split(' ').next().unwrap();
        assert_eq!(first, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        let signed = headers(&signed.each_ref().map(|(name, value)| (*name, value.as_str())));
        for secret in secrets {
            assert!(check(&Signature::Standard { secret }, &signed, BODY, AT).is_ok());
        }
    }

    fn name(result: Result<Option<String>, Refused>) -> String {
        result.unwrap_err().problem().name().to_owned()
    }

    #[test]
    fn the_example_of_the_specification_is_accepted() {
        let signature = Signature::Standard { secret: Secret(STANDARD.decode(SECRET).unwrap()) };
        let good = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        let check = |headers: &HeaderMap, body: &[u8], now| check(&signature, headers, body, now);
        assert_eq!(check(&signed(good), BODY, AT).unwrap().unwrap(), "msg_p5jXN8AQM9LWM0D4loKWxJek");
        let both = format!("v1,{} {good}", STANDARD.encode([0; 32]));
        assert!(check(&signed(&both), BODY, AT).is_ok(), "one of several signatures fits");
        assert_eq!(name(check(&signed(good), b"{}", AT)), "invalid-signature", "another body");
        assert_eq!(name(check(&signed("v2,g0hM"), BODY, AT)), "invalid-signature");
        assert_eq!(name(check(&headers(&[]), BODY, AT)), "invalid-signature");
        let edge = TOLERANCE.0.cast_signed();
        assert!(check(&signed(good), BODY, Timestamp(AT.0 + edge)).is_ok());
        assert_eq!(name(check(&signed(good), BODY, Timestamp(AT.0 + edge + 1))), "outdated-request");
        assert_eq!(name(check(&signed(good), BODY, Timestamp(AT.0 - edge - 1))), "outdated-request");
    }

    #[test]
    fn a_plain_hmac_is_over_the_body() {
        let secret = Secret(b"It's a Secret to Everybody".to_vec());
        let signature = Signature::Hmac { secret, header: "x-hub-signature-256".into() };
        let good = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let check = |value: &str, body: &[u8]| {
            check(&signature, &headers(&[("x-hub-signature-256", value)]), body, AT)
        };
        let id = check(good, b"Hello, World!").unwrap().unwrap();
        assert_eq!(id, check(&good[7..], b"Hello, World!").unwrap().unwrap());
        assert_eq!(name(check(good, b"Hello, world!")), "invalid-signature");
        assert_eq!(name(check("sha256=zz", b"Hello, World!")), "invalid-signature");
        assert_eq!(name(check(&"é".repeat(32), b"Hello, World!")), "invalid-signature");
    }
}
