//! The configuration of an intake that only an elected server reads: who elects it.

use anyhow::{Error, bail, ensure};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass_api::Span;

use super::url::BrokerUrl;
use crate::cli::LEASE_DEFAULT;

/// The `coordinator` that is the store itself.
const STORE: &str = "store";

/// `leader` of a section `[[intake]]`: only the elected server is connected to the broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeaderSection {
    /// `store`, or the URL of a coordinator.
    pub(crate) coordinator: String,
    /// With a URL: the name that the servers campaign for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// With a URL: a server that is killed is replaced after at most this time and 1 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease: Option<Span>,
}

/// Who elects the server that reads an intake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LeaderSettings {
    /// The store, by a lease: for servers that share it.
    Store,
    /// A coordinator.
    Coordinator {
        url: BrokerUrl,
        /// What the servers campaign for.
        name: String,
        lease: Span,
    },
}

impl LeaderSettings {
    /// Reads the table.
    ///
    /// # Errors
    /// When a key is missing or has no effect.
    pub(super) fn read(section: LeaderSection) -> anyhow::Result<Self> {
        let LeaderSection { coordinator, name, lease } = section;
        if coordinator == STORE {
            ensure!(
                name.is_none() && lease.is_none(),
                "`name` and `lease` have no effect with the coordinator \"store\": remove them"
            );
            return Ok(Self::Store);
        }
        let Some(name) = name else {
            bail!("`name` is missing: all servers of one store campaign for the same name, and no others do")
        };
        let lease = match lease {
            Some(lease) => lease,
            None => LEASE_DEFAULT.parse().map_err(Error::msg)?,
        };
        Ok(Self::Coordinator { url: BrokerUrl::new(coordinator), name, lease })
    }

    /// The settings as a table of a configuration file, without the password.
    pub(super) fn section(&self) -> LeaderSection {
        match self.clone() {
            Self::Store => LeaderSection { coordinator: STORE.to_owned(), name: None, lease: None },
            Self::Coordinator { url, name, lease } => {
                LeaderSection { coordinator: url.to_string(), name: Some(name), lease: Some(lease) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(toml: &str) -> anyhow::Result<LeaderSettings> {
        LeaderSettings::read(toml::from_str(toml)?)
    }

    #[test]
    fn a_coordinator_needs_a_name_and_the_store_has_none() {
        assert_eq!(read("coordinator = 'store'").unwrap(), LeaderSettings::Store);
        let settings = read("coordinator = 'etcd://me:secret@h'\nname = 'fleet/intake'").unwrap();
        let shown = settings.section();
        assert_eq!((shown.coordinator.as_str(), shown.lease), ("etcd://…@h", Some(Span::from_ms(15_000))));
        for (wrong, words) in [
            ("coordinator = 'etcd://h'", "`name` is missing"),
            ("coordinator = 'store'\nname = 'a'", "have no effect"),
            ("coordinator = 'store'\nlease = '5s'", "have no effect"),
            ("name = 'a'", "missing field `coordinator`"),
        ] {
            let error = format!("{:#}", read(wrong).unwrap_err());
            assert!(error.contains(words), "{wrong}: {error}");
        }
    }
}
