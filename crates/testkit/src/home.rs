//! The directories of this program's servers, and their removal when the program is killed.

use std::{
    fs::{self, Permissions},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use anyhow::{Context as _, Result};

use crate::account::Account;

/// Removes a directory when its standard input is closed. Only this program has the other end, so the input is closed
/// when the program ends. Servers need a moment to notice this, and may still write until then.
const JANITOR: &str = "trap '' HUP INT TERM; cat >/dev/null; for i in 1 2 3 4 5 6 7 8 9; do rm -rf -- \"$1\" && exit; sleep 1; done";

struct Home {
    path: PathBuf,
    /// The process that removes the directory. Its standard input stays open as long as this program lives.
    _janitor: Child,
}

impl Home {
    fn make() -> Result<Self> {
        let path = tempfile::Builder::new().prefix("windlass-testkit-").tempdir()?.keep();
        // Servers with users of their own must be able to enter this directory. The directories below are private.
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
        let mut janitor = Command::new("sh");
        janitor.arg("-c").arg(JANITOR).arg("janitor").arg(&path);
        janitor.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let janitor = janitor.spawn().context("cannot start sh")?;
        Ok(Self { path, _janitor: janitor })
    }
}

/// Creates an empty directory for one server, which only this account can read.
pub(crate) fn directory(name: &str, account: &Account) -> Result<PathBuf> {
    static HOME: OnceLock<Result<Home, String>> = OnceLock::new();
    static COUNT: AtomicU32 = AtomicU32::new(1);
    let home = HOME.get_or_init(|| Home::make().map_err(|error| format!("{error:#}")));
    let home =
        home.as_ref().map_err(|error| anyhow::anyhow!("cannot create a directory for servers: {error}"))?;
    let path = home.path.join(format!("{name}-{}", COUNT.fetch_add(1, Ordering::Relaxed)));
    fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
    own(&path, account)?;
    Ok(path)
}

fn own(path: &Path, account: &Account) -> Result<()> {
    fs::set_permissions(path, Permissions::from_mode(0o700))?;
    account.own(path)
}
