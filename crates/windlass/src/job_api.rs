//! The section `[asyncwork]`: the job API, for clients of `/api/asyncwork`.

use std::{collections::BTreeMap, net::SocketAddr};
use utoipa::ToSchema;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use windlass_core::Name;

use crate::config::listen;

/// The place of the section, for error messages.
const PLACE: &str = "in the section [asyncwork]";

/// The section `[asyncwork]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AsyncworkSection {
    /// Another address that serves the job API, and nothing else.
    #[serde(default, deserialize_with = "listen", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) listen: Option<SocketAddr>,
    /// The flow of jobs whose name has no flow of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) flow: Option<String>,
    /// Flows of jobs, by the names of the jobs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) flows: BTreeMap<String, String>,
    /// What an accepted job has waited for. Default: `event` on a store of one server, `store` on a shared one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) confirm: Option<Confirm>,
}

/// What the server waits for before it accepts a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Confirm {
    /// The job is on disk, and the broker has confirmed its event.
    Event,
    /// The job is on disk. Its event follows, however long the broker is unavailable.
    Store,
}

/// The effective settings of the job API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobApiSettings {
    /// Another address that serves the job API.
    pub(crate) listen: Option<SocketAddr>,
    flow: Name,
    flows: BTreeMap<String, Name>,
    confirm: Option<Confirm>,
}

impl JobApiSettings {
    /// Reads the section.
    ///
    /// # Errors
    /// When the flow is missing, or a name is invalid.
    pub(crate) fn read(section: AsyncworkSection) -> anyhow::Result<Self> {
        let AsyncworkSection { listen, flow, flows, confirm } = section;
        let name = |key: String, flow: String| {
            Name::new(&flow).map_err(|error| anyhow::anyhow!("{PLACE}: `{key}`: {error}"))
        };
        let flow = flow.with_context(|| {
            format!("{PLACE}: `flow` is missing: give the flow of jobs that have no flow of their own")
        })?;
        let flow = name("flow".to_owned(), flow)?;
        let named = |(job, flow): (String, String)| {
            let flow = name(format!("flows.{job}"), flow)?;
            anyhow::Ok((job, flow))
        };
        let flows = flows.into_iter().map(named).collect::<anyhow::Result<_>>()?;
        Ok(Self { listen, flow, flows, confirm })
    }

    /// The settings of a job API in which each job runs the flow of its name, or else `flow`.
    pub(crate) fn of_flows(flow: Name, flows: BTreeMap<String, Name>) -> Self {
        Self { listen: None, flow, flows, confirm: None }
    }

    /// The settings as a section of a configuration file.
    pub(crate) fn section(&self) -> AsyncworkSection {
        let flows = self.flows.iter().map(|(job, flow)| (job.clone(), flow.to_string()));
        AsyncworkSection {
            listen: self.listen,
            flow: Some(self.flow.to_string()),
            flows: flows.collect(),
            confirm: self.confirm,
        }
    }

    /// The flow of jobs of this name.
    pub(crate) fn flow_of(&self, job: &str) -> &Name {
        self.flows.get(job).unwrap_or(&self.flow)
    }

    /// What the server waits for before it accepts a job, on a store that several servers may share or not.
    ///
    /// # Errors
    /// When another server may send the event, so that this one does not know about it.
    pub(crate) fn confirm(&self, is_shared: bool) -> anyhow::Result<Confirm> {
        match (self.confirm, is_shared) {
            (Some(Confirm::Event), true) => anyhow::bail!(
                "{PLACE}: `confirm` is \"event\", and several servers may share this store: another server may send the event of a \
                 job, and this one could not know about it. Use \"store\": the event follows the job, and is never lost while the store \
                 keeps its commits"
            ),
            (Some(confirm), _) => Ok(confirm),
            (None, true) => Ok(Confirm::Store),
            (None, false) => Ok(Confirm::Event),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<JobApiSettings, String> {
        let section: AsyncworkSection = toml::from_str(text).map_err(|error| error.to_string())?;
        JobApiSettings::read(section).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn jobs_have_the_flow_of_their_name_or_the_one_of_all() {
        let text = "flow = \"job\"\nconfirm = \"store\"\n\n[flows]\n\"cancel order\" = \"refund\"\n";
        let settings = read(text).unwrap();
        assert_eq!(settings.flow_of("cancel order").as_str(), "refund");
        assert_eq!(settings.flow_of("anything").as_str(), "job");
        assert_eq!(toml::to_string(&settings.section()).unwrap(), text, "it is shown as it was written");
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        assert!(read("listen = \"127.0.0.1:7701\"").unwrap_err().contains("[asyncwork]: `flow` is missing"));
        assert!(read("flow = \"a b\"").unwrap_err().contains("[asyncwork]: `flow`: "));
        let error = read("flow = \"a\"\n[flows]\nx = \"b c\"").unwrap_err();
        assert!(error.contains("`flows.x`"), "{error}");
        assert!(read("flow = \"a\"\nconfirm = \"no\"").unwrap_err().contains("unknown variant `no`"));
    }

    #[test]
    fn servers_that_share_a_store_do_not_wait_for_events() {
        let settings = |confirm: &str| read(&format!("flow = \"a\"\n{confirm}")).unwrap();
        assert_eq!(settings("").confirm(false).unwrap(), Confirm::Event);
        assert_eq!(settings("").confirm(true).unwrap(), Confirm::Store);
        assert_eq!(settings("confirm = \"store\"").confirm(false).unwrap(), Confirm::Store);
        let error = settings("confirm = \"event\"").confirm(true).unwrap_err().to_string();
        assert!(error.contains("Use \"store\""), "{error}");
    }
}
