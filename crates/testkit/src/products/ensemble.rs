//! Several servers that form one coordinator.

use std::thread;

use anyhow::{Context as _, Result, anyhow};

use crate::{product::Product, server::Server};

/// The number of servers. One of them may fail.
pub(crate) const NODES: usize = 3;

/// A product whose servers find one another by their settings.
pub trait Clustered: Product {
    /// The settings of each of the servers.
    ///
    /// # Errors
    /// When there are no free ports.
    fn nodes() -> Result<Vec<Vec<String>>>;
}

/// Three servers that form one coordinator. Any one of them may fail.
#[derive(Debug)]
pub struct Ensemble<P: Product> {
    nodes: Vec<Server<P>>,
}

impl<P: Clustered> Ensemble<P> {
    /// Starts the servers. Returns nothing if the product is not installed.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start() -> Result<Option<Self>> {
        if !Server::<P>::is_installed()? {
            return Ok(None);
        }
        let settings = P::nodes()?;
        // A server answers only when most of the servers run, so all start at the same time.
        let nodes: Result<Vec<Server<P>>> = thread::scope(|scope| {
            let start = |settings: Vec<String>| {
                let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
                let started = Server::<P>::start_with(&settings)?;
                started.with_context(|| format!("{} was removed during the start", P::NAME))
            };
            let starting: Vec<_> =
                settings.into_iter().map(|settings| scope.spawn(move || start(settings))).collect();
            starting.into_iter().map(|node| node.join().map_err(|_| anyhow!("a start panicked"))?).collect()
        });
        Ok(Some(Self { nodes: nodes? }))
    }
}

/// Starts one server in place of three.
impl<P: Product> From<Server<P>> for Ensemble<P> {
    fn from(server: Server<P>) -> Self {
        Self { nodes: vec![server] }
    }
}

impl<P: Product> Ensemble<P> {
    /// The servers.
    pub fn nodes(&self) -> &[Server<P>] {
        &self.nodes
    }

    /// The ports of the servers.
    pub fn ports(&self) -> Vec<u16> {
        self.nodes.iter().map(Server::port).collect()
    }

    /// Kills all servers.
    ///
    /// # Errors
    /// When one of them cannot be killed.
    pub fn kill(&self) -> Result<()> {
        self.nodes.iter().try_for_each(Server::kill)
    }

    /// Starts those servers that are not running.
    ///
    /// # Errors
    /// When one of them does not start.
    pub fn restart(&self) -> Result<()> {
        thread::scope(|scope| {
            let down = self.nodes.iter().filter(|node| node.process_id().is_none());
            let starting: Vec<_> = down.map(|node| scope.spawn(|| node.restart())).collect();
            starting.into_iter().try_for_each(|node| node.join().map_err(|_| anyhow!("a start panicked"))?)
        })
    }
}
