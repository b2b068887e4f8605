//! Where the directories of this program's servers are, and who removes them when it is killed.

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

/// Removes a directory once its standard input ends: the other end is held by this program alone, so that is when this
/// program is gone. Servers need a moment to notice the same, and may still write until then.
const JANITOR: &str = "trap '' HUP INT TERM; cat >/dev/null; for i in 1 2 3 4 5 6 7 8 9; do rm -rf -- \"$1\" && exit; sleep 1; done";

struct Home {
    path: PathBuf,
    /// Its standard input stays open as long as this program lives.
    _janitor: Child,
}

impl Home {
    fn make() -> Result<Self> {
        let path = tempfile::Builder::new().prefix("windlass-testkit-").tempdir()?.keep();
        // Servers with users of their own pass through; what is below is theirs alone.
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
        let mut janitor = Command::new("sh");
        janitor.arg("-c").arg(JANITOR).arg("janitor").arg(&path);
        janitor.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let janitor = janitor.spawn().context("cannot start sh")?;
        Ok(Self { path, _janitor: janitor })
    }
}

/// A directory for one server, empty and only for this account.
pub(crate) fn directory(name: &str, account: &Account) -> Result<PathBuf> {
    static HOME: OnceLock<Result<Home, String>> = OnceLock::new();
    static COUNT: AtomicU32 = AtomicU32::new(1);
    let home = HOME.get_or_init(|| Home::make().map_err(|error| format!("{error:#}")));
    let home =
        home.as_ref().map_err(|error| anyhow::anyhow!("cannot make a directory for servers: {error}"))?;
    let path = home.path.join(format!("{name}-{}", COUNT.fetch_add(1, Ordering::Relaxed)));
    fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
    own(&path, account)?;
    Ok(path)
}

fn own(path: &Path, account: &Account) -> Result<()> {
    fs::set_permissions(path, Permissions::from_mode(0o700))?;
    account.own(path)
}
