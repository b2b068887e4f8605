//! The catalogue of flows.

use reqwest::Method;
use windlass_api::{Flow, FlowApplied, FlowDocument, List};

use super::{
    Client,
    request::{Details, encode},
};
use crate::Error;

impl Client {
    /// Stores a flow under this name. A changed flow gets a new version; running tasks keep theirs.
    ///
    /// # Errors
    /// [`Error::Refused`] if the definition is invalid; the problem contains the place.
    pub async fn apply_flow(&self, name: &str, flow: &FlowDocument) -> Result<FlowApplied, Error> {
        let details = Details { body: Some(encode(flow)?), ..Details::default() };
        self.call(Method::PUT, &["v1", "flows", name], details).await
    }

    /// Returns the effect of applying the flow, without applying it.
    ///
    /// # Errors
    /// [`Error::Refused`] if the definition is invalid; the problem contains the place.
    pub async fn check_flow(&self, flow: &FlowDocument) -> Result<FlowApplied, Error> {
        self.post(&["v1", "flows", "check"], flow).await
    }

    /// The newest version of each flow, including flows of tasks that were submitted with their own steps.
    ///
    /// # Errors
    /// As every call: see [`Error`].
    pub async fn all_flows(&self) -> Result<List<Flow>, Error> {
        self.all_pages(&["v1", "flows"], &[("all", "true".into())]).await
    }

    /// The newest version of each flow of the catalogue.
    ///
    /// # Errors
    /// As every call: see [`Error`].
    pub async fn flows(&self) -> Result<List<Flow>, Error> {
        self.all_pages(&["v1", "flows"], &[]).await
    }

    /// One flow in this version, or in the newest one.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if the flow or version does not exist.
    pub async fn flow(&self, name: &str, version: Option<u32>) -> Result<Flow, Error> {
        let query: Vec<_> =
            version.map(|version| ("version", version.to_string().into())).into_iter().collect();
        self.get_with(&["v1", "flows", name], &query).await
    }
}
