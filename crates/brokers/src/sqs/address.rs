//! The URL of SQS: the region or server, and the credentials.

use windlass_tls::ClientFiles;

use crate::{BrokerError, percent};

const EXPECTED: &str = "expected sqs://REGION, or sqs+http://HOST:PORT or sqs+https://HOST:PORT for a server with its \
                        protocol, perhaps with KEY:SECRET@ before the region or host, ?cacert=FILE behind a region or HTTPS server, and \
                        ?region=REGION behind a server";

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
    /// The CA certificates to trust. There is no client certificate: requests are signed.
    pub(super) files: ClientFiles,
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
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
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
        let (files, others) = ClientFiles::split(query, ClientFiles::NAMES).map_err(|why| invalid(&why))?;
        if files.identity.is_some() {
            return Err(invalid("cert and key are not supported: requests are signed with the secret"));
        }
        let in_query = match others.as_slice() {
            [] => None,
            [parameter] => parameter.strip_prefix("region=").filter(|region| region.chars().all(is_word)),
            _ => None,
        };
        if in_query.is_none() && !others.is_empty() {
            return Err(invalid("unknown parameter after the ?: region and cacert are known"));
        }
        let name = format!("{scheme}://{place}");
        match scheme {
            "sqs" => {
                if place.is_empty() || !place.chars().all(is_word) || in_query.is_some() {
                    return Err(invalid("it names no region"));
                }
                Ok(Self { name, region: place.to_owned(), endpoint: None, credentials, files })
            }
            "sqs+http" | "sqs+https" => {
                let is_host = |c: char| is_word(c) || ".:[]_".contains(c);
                if place.contains('/') {
                    return Err(invalid(
                        "leave out what is behind the port: accounts and queues are not in it",
                    ));
                }
                if place.is_empty() || place.starts_with(':') || !place.chars().all(is_host) {
                    return Err(invalid("it names no host"));
                }
                if scheme == "sqs+http" && !files.is_empty() {
                    return Err(invalid("cacert is for sqs and sqs+https, which are by TLS"));
                }
                let endpoint = format!("{}://{place}", &scheme["sqs+".len()..]);
                let region = in_query.unwrap_or(REGION).to_owned();
                Ok(Self { name, region, endpoint: Some(endpoint), credentials, files })
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
    fn a_file_names_the_certificates_to_trust() {
        for (url, region) in [
            ("sqs://eu-west-1?cacert=/etc/my%20ca.pem", "eu-west-1"),
            ("sqs+https://sqs.example?region=eu-north-1&cacert=/etc/my%20ca.pem", "eu-north-1"),
            ("sqs+https://sqs.example?cacert=/etc/my%20ca.pem", REGION),
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!(address.files.authorities, Some("/etc/my ca.pem".into()), "{url}");
            assert_eq!(address.region, region, "{url}");
            assert!(!address.name.contains("cacert"), "{}", address.name);
        }
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
            "sqs+http://host?region=a&region=b",
            "sqs+http://host?cacert=/s3cret",
            "sqs+https://host?cert=/s3cret",
            "sqs+https://host?cert=/s3cret&key=/s3cret",
            "kafka://key:s3cret@host",
        ];
        for url in urls {
            let Err(BrokerError::Invalid(why)) = Address::parse(url) else { panic!("{url} was taken") };
            assert!(why.contains(EXPECTED) && !why.contains("s3cret"), "{why}");
            assert_eq!(why.contains("leave out what is behind the port"), url == "sqs+http://host/s3cret");
        }
    }
}
