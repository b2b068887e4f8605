//! Makes a coordinator from its URL.

use std::sync::Arc;

use crate::{Coordinator, CoordinatorError};

/// The products: their names, the schemes of their URLs, and the features of this crate that include them.
const PRODUCTS: &[(&str, &str, &str)] = &[
    ("Consul", "consul", "consul"),
    ("etcd", "etcd", "etcd"),
    ("ZooKeeper", "zookeeper", "zookeeper"),
    ("Windlass", "http", "windlass"),
];

/// Makes the coordinator of a URL: `consul://`, `etcd://`, `zookeeper://` or, for a Windlass server, `http://`, with one
/// or more addresses (`etcd://a:2379,b:2379`). Does not connect yet.
///
/// # Errors
/// When the scheme is unknown, or its product is not in this build. The error does not contain the URL, which
/// may contain a password.
pub fn connect(url: &str) -> Result<Arc<dyn Coordinator>, CoordinatorError> {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    let product = PRODUCTS.iter().find(|(_, of, _)| *of == scheme);
    let Some((name, _, feature)) = product else {
        let schemes: Vec<&str> = PRODUCTS.iter().map(|(_, scheme, _)| *scheme).collect();
        return Err(CoordinatorError::Invalid(format!(
            "invalid URL of a coordinator: it must start with one of {}://",
            schemes.join("://, ")
        )));
    };
    match *feature {
        #[cfg(feature = "consul")]
        "consul" => Ok(Arc::new(crate::Consul::new(url)?)),
        #[cfg(feature = "etcd")]
        "etcd" => Ok(Arc::new(crate::Etcd::new(url)?)),
        #[cfg(feature = "windlass")]
        "windlass" => Ok(Arc::new(crate::Windlass::new(url)?)),
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
        for url in ["", "etcd", "https://127.0.0.1:2379", "nacos://u:secret@127.0.0.1"] {
            let error = connect(url).err().unwrap().to_string();
            assert!(error.contains("consul://, etcd://, zookeeper://, http://"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    #[cfg(feature = "etcd")]
    fn the_name_has_no_password() {
        let coordinator = connect("etcd://user:secret@127.0.0.1:1,127.0.0.1:2").unwrap();
        assert_eq!(coordinator.name(), "etcd://127.0.0.1:1,127.0.0.1:2");
    }
}
