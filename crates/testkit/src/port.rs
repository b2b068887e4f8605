//! Free ports. A port belongs to the process that got it until that process ends, also while no server listens there: a
//! test that restarts its server finds the port free, whatever other tests start on this machine at the same time.

use std::{
    fs::{self, File, OpenOptions},
    io,
    net::{Ipv4Addr, TcpListener},
    ops::Range,
    path::Path,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context as _, Result, bail};

/// The ports of servers. They are below the ports that the system gives to outgoing connections, because such a
/// connection could take the port that a restarted server needs.
const PORTS: Range<u16> = 20_000..32_000;

/// How many ports are tried.
const TRIES: u16 = 1_000;

/// The folder of the lock files, in the folder for temporary files: one file for each port that was ever in use.
const FOLDER: &str = "windlass-test-ports";

/// The lock files of the ports of this process. The system releases the locks when the process ends.
static OWN: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// A free port on 127.0.0.1, which no other process that calls this gets until this one ends.
///
/// # Errors
/// When the lock files cannot be written, and when no port is free.
pub fn free_port() -> Result<u16> {
    let folder = std::env::temp_dir().join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for _ in 0..TRIES {
        let port = fastrand::u16(PORTS);
        let Some(lock) = lock(&folder, port)? else { continue };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            OWN.lock().unwrap_or_else(PoisonError::into_inner).push(lock);
            return Ok(port);
        }
    }
    bail!("there is no free port in {PORTS:?}")
}

/// Locks the file of a port; `None` if a process has locked it.
fn lock(folder: &Path, port: u16) -> Result<Option<File>> {
    let path = folder.join(port.to_string());
    // Of another user, who has the port or had it.
    let file = match OpenOptions::new().create(true).truncate(false).write(true).open(&path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        opened => opened.with_context(|| format!("cannot open {}", path.display()))?,
    };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", path.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once_while_nobody_listens_there() {
        let folder = tempfile::tempdir().unwrap();
        let first = lock(folder.path(), 20_000).unwrap();
        assert!(first.is_some() && lock(folder.path(), 20_000).unwrap().is_none());
        assert!(lock(folder.path(), 20_001).unwrap().is_some());
        drop(first);
        assert!(lock(folder.path(), 20_000).unwrap().is_some(), "its process has ended");
    }

    #[test]
    fn a_port_stays_with_its_process() {
        let port = free_port().unwrap();
        let folder = std::env::temp_dir().join(FOLDER);
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok(), "nobody listens");
        assert!(lock(&folder, port).unwrap().is_none());
    }
}
