//! Makes a coordinator from its URL.

use std::sync::Arc;

use crate::{Coordinator, CoordinatorError};

/// The products: their names, the schemes of their URLs, and the features of this crate that include them.
const PRODUCTS: &[(&str, &str, &str)] = &[
    ("Consul", "consul", "consul"),
    ("Consul", "consuls", "consul"),
    ("etcd", "etcd", "etcd"),
    ("etcd", "etcds", "etcd"),
    ("ZooKeeper", "zookeeper", "zookeeper"),
    ("ZooKeeper", "zookeepers", "zookeeper"),
    ("Windlass", "http", "windlass"),
    ("Windlass", "https", "windlass"),
];

/// How a Windlass server is called. The other coordinators get nothing of it.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// The access token.
    pub token: Option<String>,
    /// Files for TLS.
    pub tls: windlass_tls::ClientFiles,
}

/// Makes the coordinator of a URL: `consul://`, `etcd://` or `zookeeper://`, each with an `s` behind the scheme for TLS, or, for a
/// Windlass server, `http://` or `https://`, with one or more addresses (`etcd://a:2379,b:2379`). Two URLs with a blank between
/// them, the second one of a Windlass server, are a coordinator that chooses and a server that confirms
/// ([`Confirmed`](crate::Confirmed)). Does not connect yet.
///
/// # Errors
/// When the scheme is unknown, or its product is not in this build. The error does not contain the URL, which
/// may contain a password.
pub fn connect(url: &str) -> Result<Arc<dyn Coordinator>, CoordinatorError> {
    connect_with(url, &Access::default())
}

/// The same with what a Windlass server asks for.
///
/// # Errors
/// As [`connect`], and when the token has characters that a header cannot have, or a file cannot be used.
pub fn connect_with(url: &str, access: &Access) -> Result<Arc<dyn Coordinator>, CoordinatorError> {
    match url.trim().split_once(' ') {
        None => connect_one(url, access),
        #[cfg(feature = "windlass")]
        Some((chooser, server)) => {
            let server = crate::Windlass::with(server.trim_start(), access)?;
            Ok(Arc::new(crate::Confirmed::new(connect_one(chooser, access)?, server)))
        }
        #[cfg(not(feature = "windlass"))]
        Some(_) => Err(CoordinatorError::Invalid(
            "a server that confirms elections is not in this build: build it with `--features windlass`"
                .to_owned(),
        )),
    }
}

fn connect_one(url: &str, access: &Access) -> Result<Arc<dyn Coordinator>, CoordinatorError> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    let product = PRODUCTS.iter().find(|(_, of, _)| *of == scheme);
    let Some((name, _, feature)) = product else {
        let schemes: Vec<&str> = PRODUCTS.iter().map(|(_, scheme, _)| *scheme).collect();
        return Err(CoordinatorError::Invalid(format!(
            "invalid URL of a coordinator: it must start with one of {}://",
            schemes.join("://, ")
        )));
    };
    // Only for a server.
    #[cfg(not(feature = "windlass"))]
    let _ = access;
    match *feature {
        #[cfg(feature = "consul")]
        "consul" => Ok(Arc::new(crate::Consul::new(url)?)),
        #[cfg(feature = "etcd")]
        "etcd" => Ok(Arc::new(crate::Etcd::new(url)?)),
        #[cfg(feature = "windlass")]
        "windlass" => Ok(Arc::new(crate::Windlass::with(url, access)?)),
        #[cfg(feature = "zookeeper")]
        "zookeeper" => Ok(Arc::new(crate::ZooKeeper::new(url)?)),
        _ => Err(CoordinatorError::Invalid(format!(
            "{name} is not in this build: build it with `--features {feature}`, or with `--features full` for all coordinators"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_scheme_is_refused_with_the_known_ones() {
        for url in ["", "etcd", "ftp://127.0.0.1:2379", "nacos://u:secret@127.0.0.1"] {
            let error = connect(url).err().unwrap().to_string();
            assert!(
                error.contains(
                    "consul://, consuls://, etcd://, etcds://, zookeeper://, zookeepers://, http://, https://"
                ),
                "{error}"
            );
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    #[cfg(all(feature = "etcd", feature = "windlass"))]
    fn a_second_url_is_the_server_that_confirms() {
        let coordinator = connect("etcd://user:secret@h http://server:7700/x").unwrap();
        assert_eq!(coordinator.name(), "etcd://h:2379 http://server:7700/x");
        let error = connect("etcd://h etcd://i").err().unwrap().to_string();
        assert!(error.contains("expected http://"), "{error}");
    }

    #[test]
    #[cfg(feature = "etcd")]
    fn the_name_has_no_password() {
        let coordinator = connect("etcd://user:secret@127.0.0.1:1,127.0.0.1:2").unwrap();
        assert_eq!(coordinator.name(), "etcd://127.0.0.1:1,127.0.0.1:2");
    }
}
