//! What is particular to a server product.

use std::{
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
    /// A statement that gives its data directory: nobody else has this one, so it proves who answers.
    const DIRECTORY: &'static str;
    /// Settings under which it is quick and does not survive a power cut, which no test of this kit makes.
    const QUICK: &'static [&'static str];
    /// A database that is always there.
    const DATABASE: &'static str;

    /// Finds it.
    fn find() -> Option<Self>;

    /// The server that all tests of a program share. It is never dropped: it gets its signal when the program ends.
    fn slot() -> &'static Mutex<Option<&'static Server<Self>>>;

    /// The file that is run.
    fn program(&self) -> &Path;

    /// Makes a data directory.
    ///
    /// # Errors
    /// When its program says so.
    fn initialise(&self, run: &dyn Fn(&Path) -> Command, data: &Path) -> Result<()>;

    /// Tells the server's command where its data are and what it listens on.
    fn arrange(&self, command: &mut Command, data: &Path, port: u16, settings: &[String]);

    /// Puts a question to the server as its administrator, and prints the answer without decoration.
    fn ask(&self, port: u16, database: &str, statement: &str) -> Command;

    /// A URL for this database.
    fn url(port: u16, database: &str) -> String;

    /// A statement that drops a database whoever uses it.
    fn drop_database(name: &str) -> String;

    /// Removes what the system keeps of a server that was killed.
    fn tidy(&self, _data: &Path) {}
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
