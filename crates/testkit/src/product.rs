//! What differs between server products.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::Path,
    process::{Command, Output},
    sync::Mutex,
};

use anyhow::Result;

use crate::{account::Account, server::Server};

/// A server product as it is installed on this machine.
pub trait Product: Sized + Send + Sync + 'static {
    /// The product's name.
    const NAME: &'static str;
    /// The Debian package.
    const PACKAGE: &'static str;
    /// The user to run as if the caller is root.
    const USER: &'static str;
    /// The signal for an orderly end, and the signal that ends the server at once but leaves nothing behind.
    const SIGNALS: (rustix::process::Signal, &'static str);
    /// Settings that make the server quick, so that it does not survive a power cut. No test of this kit cuts the power.
    const QUICK: &'static [&'static str];
    /// Whether the data directory is created once and then copied, because creating it takes long.
    const HAS_TEMPLATE: bool;

    /// Finds the installed product.
    fn find() -> Option<Self>;

    /// How to install the product.
    fn how_to_get() -> String {
        format!("apt-get install {}", Self::PACKAGE)
    }

    /// The server that all tests of a program share. It is never dropped; it gets its signal when the program ends.
    fn slot() -> &'static Mutex<Option<&'static Server<Self>>>;

    /// The path of the server's program.
    fn program(&self) -> &Path;

    /// Creates a data directory.
    ///
    /// # Errors
    /// When the program that creates it fails.
    fn initialise(&self, run: &dyn Fn(&Path) -> Command, data: &Path) -> Result<()>;

    /// Adds the data directory and the port to the server's command. Called before every start.
    ///
    /// # Errors
    /// When a file that the server needs cannot be written.
    fn arrange(&self, command: &mut Command, place: &Place<'_>) -> Result<()>;

    /// Whether the server that answers at this place is the one that was started as `process`.
    ///
    /// # Errors
    /// While no server answers.
    fn answers(&self, place: &Place<'_>, process: u32) -> Result<bool>;

    /// Removes what the system keeps of a server after a kill.
    fn tidy(&self, _data: &Path) {}
}

/// The place of a server, and its settings.
#[derive(Debug, Clone, Copy)]
pub struct Place<'s> {
    /// Its data directory.
    pub data: &'s Path,
    /// Its port on 127.0.0.1.
    pub port: u16,
    /// Settings of the product: `name=value` each.
    pub settings: &'s [String],
}

/// Runs a command to its end and returns its output.
pub(crate) fn finish(mut command: Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let Output { status, stdout, stderr } = command.output()?;
    if !status.success() {
        anyhow::bail!("{program}: {status}: {}", String::from_utf8_lossy(&stderr).trim());
    }
    Ok(String::from_utf8_lossy(&stdout).trim().to_owned())
}

/// The account that a product runs as.
pub(crate) fn account<P: Product>() -> Result<Account> {
    Account::choose(P::USER)
}

/// A name for the server with this data directory. It is unique, because only this server has the directory.
pub(crate) fn name(data: &Path) -> String {
    let mut hasher = DefaultHasher::new();
    data.hash(&mut hasher);
    format!("w{:016x}", hasher.finish())
}
