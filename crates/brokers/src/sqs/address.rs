//! The URL of SQS: the region or server, and the credentials.

use crate::{BrokerError, percent};

const EXPECTED: &str = "expected sqs://REGION, or sqs+http://HOST:PORT or sqs+https://HOST:PORT for a server with its \
                        protocol, perhaps with KEY:SECRET@ before the region or host, and ?region=REGION behind the port";

/// The region for servers other than Amazon's: requests must be signed for some region, and any works.
const REGION: &str = "us-east-1";

/// A parsed URL.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address {
    /// The URL without credentials.
    pub(super) name: String,
    pub(super) region: String,
    /// The server for requests, unless it is the region's own.
    pub(super) endpoint: Option<String>,
    /// Key and secret.
    pub(super) credentials: Option<(String, String)>,
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, BrokerError> {
        // Does not repeat the URL: even an invalid one may contain a secret.
        let invalid = |why: &str| BrokerError::Invalid(format!("the URL of SQS: {why}; {EXPECTED}"));
        let (scheme, rest) = url.split_once("://").ok_or_else(|| invalid("it has no scheme"))?;
        let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
        let (credentials, place) = match place.rsplit_once('@') {
            None => (None, place),
            Some((credentials, place)) => {
                let pair = credentials
                    .split_once(':')
                    .and_then(|(key, secret)| Some((percent::decode(key)?, percent::decode(secret)?)));
                let pair = pair.filter(|(key, secret)| !key.is_empty() && !secret.is_empty());
                (Some(pair.ok_or_else(|| invalid("write KEY:SECRET before the @"))?), place)
            }
        };
        let place = place.strip_suffix('/').unwrap_or(place);
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let in_query = match query {
            None => None,
            Some(query) => {
                let region = query.strip_prefix("region=").filter(|region| region.chars().all(is_word));
                Some(
                    region
                        .ok_or_else(|| invalid("unknown parameter after the ?: only region is supported"))?,
                )
            }
        };
        let name = format!("{scheme}://{place}");
        match scheme {
            "sqs" => {
                if place.is_empty() || !place.chars().all(is_word) || in_query.is_some() {
                    return Err(invalid("it names no region"));
                }
                Ok(Self { name, region: place.to_owned(), endpoint: None, credentials })
            }
            "sqs+http" | "sqs+https" => {
                let is_host = |c: char| is_word(c) || ".:[]_".contains(c);
                if place.is_empty() || place.starts_with(':') || !place.chars().all(is_host) {
                    return Err(invalid("it names no host"));
                }
                let endpoint = format!("{}://{place}", &scheme["sqs+".len()..]);
                let region = in_query.unwrap_or(REGION).to_owned();
                Ok(Self { name, region, endpoint: Some(endpoint), credentials })
            }
            _ => Err(invalid("its scheme is none of sqs, sqs+http and sqs+https")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_no_secret() {
        let address = Address::parse("sqs://key:s3cr%2Fet@eu-west-1").unwrap();
        assert_eq!((address.name.as_str(), address.region.as_str()), ("sqs://eu-west-1", "eu-west-1"));
        assert_eq!(address.credentials, Some(("key".to_owned(), "s3cr/et".to_owned())));
        assert_eq!(address.endpoint, None);
        assert_eq!(format!("{address:?}"), "sqs://eu-west-1");
    }

    #[test]
    fn a_server_of_ones_own_has_an_endpoint() {
        let address = Address::parse("sqs+http://127.0.0.1:9324/").unwrap();
        assert_eq!(address.endpoint.as_deref(), Some("http://127.0.0.1:9324"));
        assert_eq!((address.region.as_str(), address.credentials), (REGION, None));
        let address = Address::parse("sqs+https://sqs.example:7?region=eu-north-1").unwrap();
        assert_eq!(address.region, "eu-north-1");
        assert_eq!(address.name, "sqs+https://sqs.example:7");
    }

    #[test]
    fn what_cannot_be_meant_is_refused_without_showing_it() {
        let urls = [
            "sqs",
            "sqs://",
            "sqs://key:s3cret@",
            "sqs://s3cret@eu-west-1",
            "sqs://key:s3cret%2@eu-west-1",
            "sqs://eu west s3cret",
            "sqs://eu-west-1?region=s3cret",
            "sqs+http://:1",
            "sqs+http://host/s3cret",
            "sqs+http://host?x=s3cret",
            "kafka://key:s3cret@host",
        ];
        for url in urls {
            let Err(BrokerError::Invalid(why)) = Address::parse(url) else { panic!("{url} was taken") };
            assert!(why.contains(EXPECTED) && !why.contains("s3cret"), "{why}");
        }
    }
}
