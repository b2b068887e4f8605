//! Percent encoding, for user and password in a URL: `%2F` for `/`.

/// The decoded text. None if a `%` is not followed by two hexadecimal digits, or the result is not UTF-8.
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, tail) = tail.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = tail;
    }
    String::from_utf8(bytes).ok()
}

/// Encodes all characters except printable ASCII, and `%`.
#[cfg(any(feature = "sqs", test))]
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len() * 3);
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        assert_eq!(encode("a b%é/"), "a%20b%25%C3%A9/");
        assert_eq!(decode(&encode("a b%é/")).as_deref(), Some("a b%é/"));
    }

    #[test]
    fn what_is_written_with_percent_signs_is_read() {
        assert_eq!(decode("a%2Fb%c3%a9+").as_deref(), Some("a/bé+"));
        for wrong in ["%", "%2", "%zz", "%+1", "%ff", "%é"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
