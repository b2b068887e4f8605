//! Control groups: end even commands that left their process group (`setsid`) together with their worker.
//!
//! If Linux lets the worker create control groups (version 2, with `cgroup.kill`), each attempt has one below
//! the worker's own, named after the attempt's process group. The stub enters it before it becomes the
//! command, so everything that the command starts is in it. The whole control group is killed when the
//! attempt is stopped, and by the guard when the worker dies. When a command ends by itself, a service that
//! it started on purpose survives: the worker moves it out.
//!
//! ```text
//!   the worker's control group            worker, guard, services that ended commands left running
//!     └─ windlass-worker-4711-0           made by the spawner, removed by the guard
//!          ├─ 4720                        one attempt: the command and everything that it started
//!          └─ 4733
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::Pid;

/// The number of tries to remove a control group: its processes were killed, but take some time to end.
const REMOVE_TRIES: u32 = 50;

/// The pause between two tries.
const REMOVE_PAUSE: Duration = Duration::from_millis(10);

/// The control group that contains those of a worker's attempts.
#[derive(Debug, Clone)]
pub(super) struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Creates a control group for this process, below its current one.
    ///
    /// # Errors
    /// When control groups of version 2 are missing, or this process may not create one.
    pub(super) fn create() -> io::Result<Self> {
        let own = own_folder(
            &fs::read_to_string("/proc/self/mountinfo")?,
            &fs::read_to_string("/proc/self/cgroup")?,
        );
        let own = own.ok_or_else(|| io::Error::other("control groups of version 2 are not mounted"))?;
        // A process may have several workers, each with a guard that removes its own group.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let cgroup = Self { path: own.join(format!("windlass-worker-{}-{number}", std::process::id())) };
        match fs::create_dir(&cgroup.path) {
            // Left by an earlier process with the same id.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        if cgroup.path.join("cgroup.kill").exists() {
            return Ok(cgroup);
        }
        // If the folder cannot be removed, it stays.
        let _ = fs::remove_dir(&cgroup.path);
        Err(io::Error::other("the kernel has no `cgroup.kill` (it came with Linux 5.14)"))
    }

    /// The control group that [`Cgroup::path`] returned in another process of the worker.
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Its path, for the stub and the guard.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Moves this process into a new control group. Called by the stub, whose process id is also the id of
    /// its process group.
    ///
    /// # Errors
    /// When the operating system refuses it.
    pub(super) fn enter(&self) -> io::Result<()> {
        let folder = self.path.join(std::process::id().to_string());
        match fs::create_dir(&folder) {
            // Left by an earlier attempt with the same process id.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        // 0 means the writing process.
        fs::write(folder.join("cgroup.procs"), "0")
    }

    /// Kills everything in the control group of an attempt.
    pub(super) fn kill(&self, group: Pid) {
        // If the attempt has no control group (the stub could not enter it, or it was removed), there is
        // nothing to kill.
        let _ = fs::write(self.folder(group).join("cgroup.kill"), "1");
    }

    /// Releases an attempt that has ended: moves the processes that it left running to the worker's own
    /// control group, and removes the attempt's. Returns whether it is removed.
    pub(super) fn release(&self, group: Pid) -> bool {
        let folder = self.folder(group);
        if let (Ok(left), Some(own)) = (fs::read_to_string(folder.join("cgroup.procs")), self.path.parent()) {
            for process in left.lines() {
                // The process may have ended meanwhile.
                let _ = fs::write(own.join("cgroup.procs"), process);
            }
        }
        match fs::remove_dir(folder) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }

    /// Kills the remaining attempts and removes everything. Called by the guard after the worker has died.
    pub(super) fn end(&self, left_behind: &[Pid]) {
        left_behind.iter().for_each(|group| self.kill(*group));
        for _ in 0..REMOVE_TRIES {
            self.remove_empty();
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => std::thread::sleep(REMOVE_PAUSE),
                _ => return,
            }
        }
    }

    /// Removes the control groups of attempts that have ended. One with processes stays.
    fn remove_empty(&self) {
        let attempts = fs::read_dir(&self.path).into_iter().flatten().flatten();
        for attempt in attempts.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            let _ = fs::remove_dir(attempt.path());
        }
    }

    fn folder(&self, group: Pid) -> PathBuf {
        self.path.join(group.as_raw_pid().to_string())
    }
}

/// The folder of a process's control group, from its `mountinfo` and `cgroup` in `/proc`.
fn own_folder(mounts: &str, own: &str) -> Option<PathBuf> {
    // `0::/path` is version 2. A path that leads out of the mounted tree is unreachable.
    let path =
        own.lines().find_map(|line| line.strip_prefix("0::/")).filter(|path| !path.starts_with(".."))?;
    let mount = mounts.lines().find_map(|line| {
        // `36 35 98:0 ROOT POINT options - TYPE source …`
        let (place, kind) = line.split_once(" - ")?;
        kind.starts_with("cgroup2 ").then(|| place.split(' ').nth(4))?
    })?;
    Some(Path::new(mount).join(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "31 1 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                          41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_own_control_group_is_found_below_the_mount() {
        let folder = |own| own_folder(MOUNTS, own).map(|path| path.display().to_string());
        assert_eq!(
            folder("8:pids:/\n0::/system.slice/windlass.service\n").as_deref(),
            Some("/sys/fs/cgroup/unified/system.slice/windlass.service")
        );
        assert_eq!(folder("0::/\n").as_deref(), Some("/sys/fs/cgroup/unified/"));
        assert_eq!(folder("0::/../other\n"), None, "outside of what is mounted");
        assert_eq!(folder("8:pids:/\n"), None, "version 1 alone");
        assert_eq!(own_folder("31 1 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n", "0::/\n"), None);
    }
}
