//! What is particular to a server product.

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
    /// What it is called.
    const NAME: &'static str;
    /// Debian's package that has it.
    const PACKAGE: &'static str;
    /// Whom it runs as when the caller is root.
    const USER: &'static str;
    /// The signal that ends it in good order, and the one that ends it at once but leaves nothing behind.
    const SIGNALS: (rustix::process::Signal, &'static str);
    /// Settings under which it is quick and does not survive a power cut, which no test of this kit makes.
    const QUICK: &'static [&'static str];
    /// Whether its data directory is made once and copied, because making one takes long.
    const HAS_TEMPLATE: bool;

    /// Finds it.
    fn find() -> Option<Self>;

    /// What to do where it is not found.
    fn how_to_get() -> String {
        format!("apt-get install {}", Self::PACKAGE)
    }

    /// The server that all tests of a program share. It is never dropped: it gets its signal when the program ends.
    fn slot() -> &'static Mutex<Option<&'static Server<Self>>>;

    /// The file that is run.
    fn program(&self) -> &Path;

    /// Makes a data directory.
    ///
    /// # Errors
    /// When its program says so.
    fn initialise(&self, run: &dyn Fn(&Path) -> Command, data: &Path) -> Result<()>;

    /// Tells the server's command where its data are and what it listens on. Called before every start.
    ///
    /// # Errors
    /// When a file that it needs cannot be written.
    fn arrange(&self, command: &mut Command, place: &Place<'_>) -> Result<()>;

    /// Whether who answers at this place is the server that was started as `process`, and not a stranger.
    ///
    /// # Errors
    /// While nobody answers.
    fn answers(&self, place: &Place<'_>, process: u32) -> Result<bool>;

    /// Removes what the system keeps of a server that was killed.
    fn tidy(&self, _data: &Path) {}
}

/// Where a server is, and how it is set.
#[derive(Debug, Clone, Copy)]
pub struct Place<'s> {
    /// Its data directory.
    pub data: &'s Path,
    /// The port it listens on, on 127.0.0.1.
    pub port: u16,
    /// Settings of the product: `name=value` each.
    pub settings: &'s [String],
}

/// Runs a command to its end and gives what it printed.
pub(crate) fn finish(mut command: Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let Output { status, stdout, stderr } = command.output()?;
    if !status.success() {
        anyhow::bail!("{program}: {status}: {}", String::from_utf8_lossy(&stderr).trim());
    }
    Ok(String::from_utf8_lossy(&stdout).trim().to_owned())
}

/// The account a product runs as.
pub(crate) fn account<P: Product>() -> Result<Account> {
    Account::choose(P::USER)
}

/// A name for the server with this data directory. No other server has it, because no other one has the directory.
pub(crate) fn name(data: &Path) -> String {
    let mut hasher = DefaultHasher::new();
    data.hash(&mut hasher);
    format!("w{:016x}", hasher.finish())
}
