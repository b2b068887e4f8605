//! Secrets: parameters of which Windlass has only references, `secret://NAME`. Workers find the values.

use serde::de::{Deserializer as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::{Json, Name};

/// The prefix of a reference to a secret.
pub const SECRET_REFERENCE: &str = "secret://";

/// The maximum number of secret parameters of a flow.
pub const SECRET_PARAMS_MAX: usize = 64;

impl Json {
    /// The first member at any depth that has one of these names and whose value is neither null nor a reference to a
    /// secret.
    pub(crate) fn plain_secret<'n>(&self, secret: &'n [Name]) -> Option<&'n Name> {
        if secret.is_empty() || self.is_empty() {
            return None;
        }
        let mut search = Search { secret, found: None };
        search.look_into(self.as_str());
        search.found
    }
}

/// The search for a value that is not a reference.
struct Search<'n> {
    secret: &'n [Name],
    found: Option<&'n Name>,
}

impl Search<'_> {
    /// Looks into a value if it is an object or an array.
    fn look_into(&mut self, value: &str) {
        let mut reader = serde_json::Deserializer::from_str(value);
        // A `Json` was checked when it was created, so these cannot fail.
        let _ = match value.trim_start().bytes().next() {
            Some(b'{') => reader.deserialize_map(self),
            Some(b'[') => reader.deserialize_seq(self),
            _ => Ok(()),
        };
    }
}

impl<'de> Visitor<'de> for &mut Search<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object or an array")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
            match self.secret.iter().find(|secret| secret.as_str() == name) {
                Some(secret) if !is_reference(value.get()) => {
                    self.found.get_or_insert(secret);
                }
                Some(_) => {}
                None => self.look_into(value.get()),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while self.found.is_none() {
            let Some(value) = list.next_element::<&'de RawValue>()? else { return Ok(()) };
            self.look_into(value.get());
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

/// Whether this JSON value is null or a reference to a secret.
fn is_reference(value: &str) -> bool {
    if value == "null" {
        return true;
    }
    let text: Option<String> = serde_json::from_str(value).ok();
    text.is_some_and(|text| text.strip_prefix(SECRET_REFERENCE).is_some_and(|name| Name::new(name).is_ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Option<String> {
        let secret = ["password", "key"].map(|name| Name::new(name).unwrap());
        Json::parse(text).unwrap().plain_secret(&secret).map(ToString::to_string)
    }

    #[test]
    fn only_references_and_null_may_be_secret_parameters() {
        for good in [
            "{}",
            r#"{"password":"secret://db-1","key":null,"user":"root","n":1e400}"#,
            r#"{"password":"secret:\/\/db"}"#,
            r#"{"list":[{"key":"secret://k"},["key"]],"secret":"password"}"#,
        ] {
            assert_eq!(found(good), None, "{good}");
        }
        for (bad, name) in [
            (r#"{"password":"hunter2"}"#, "password"),
            (r#"{"pass\u0077ord":"hunter2"}"#, "password"),
            (r#"{"password":12345}"#, "password"),
            (r#"{"password":["secret://db"]}"#, "password"),
            (r#"{"password":{"key":"secret://db"}}"#, "password"),
            (r#"{"password":"secret://"}"#, "password"),
            (r#"{"password":"secret://a b"}"#, "password"),
            (r#"{"key":"a secret://db"}"#, "key"),
            (r#"{"password":"secret://db","a":[1,{"b":[{"key":"x"}]},2]}"#, "key"),
            (r#"{"password":"x","password":"secret://db"}"#, "password"),
        ] {
            assert_eq!(found(bad).as_deref(), Some(name), "{bad}");
        }
    }
}
