//! The spawner: the one thread of a worker that starts commands and keeps the guard.
//!
//! ```text
//!   runner ──start──▶ spawner thread ──▶ windlass module-exec … ──exec──▶ command   (a process group each)
//!          ◀─process──      │
//!                           └──"+PGID" "-PGID"──▶ windlass module-guard
//! ```
//!
//! It is a thread of its own because the parent-death signal of Linux comes when the *thread* that started a
//! process ends: this one lives exactly as long as the worker, whatever runtime the worker runs on. It also
//! keeps what blocks, starting processes and writing to the guard, away from the worker's event loop.
//!
//! When the guard dies, another one is started and told all groups. While that fails, nothing new is started:
//! a command without a guard could leave something behind when its worker dies.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use rustix::process::{Pid, RawPid, Signal};
use tokio::process::Child;
use tokio::sync::oneshot;

use super::{EXEC_COMMAND, GUARD_COMMAND, cgroup::Cgroup};

/// How long to wait before a guard that could not be started is tried again.
const GUARD_RETRY: Duration = Duration::from_secs(1);

/// Between the end of a guard and the start of the next one.
const GUARD_PAUSE: Duration = Duration::from_millis(50);

/// Starts commands. When it is dropped, everything that it has started and that still runs is killed.
#[derive(Debug)]
pub(super) struct Spawner {
    requests: mpsc::Sender<Request>,
}

/// What to start: the file and what is special about its environment.
#[derive(Debug)]
pub(super) struct CommandLine {
    /// The executable; it runs in the folder it lies in.
    pub(super) path: PathBuf,
    /// Variables that it does not inherit from the worker.
    pub(super) unset: Vec<std::ffi::OsString>,
    /// Variables that it gets.
    pub(super) set: Vec<(&'static str, String)>,
}

/// The processes of one attempt. When it is dropped they are all killed, but for services that a command which
/// ended by itself left outside of its group.
#[derive(Debug)]
pub(super) struct Group {
    id: Pid,
    cgroup: Option<Cgroup>,
    /// The command ended by itself: what it left running outside of its group is meant to live.
    ended: bool,
    spawner: mpsc::Sender<Request>,
}

impl Spawner {
    /// Starts the thread and the guard. `program` is this program: stub and guard are subcommands of it.
    ///
    /// # Errors
    /// When the thread or the guard cannot be started.
    pub(super) fn start(program: PathBuf) -> io::Result<Self> {
        let (requests, inbox) = mpsc::channel();
        let cgroup = match Cgroup::create() {
            Ok(cgroup) => Some(cgroup),
            Err(error) => {
                tracing::info!(
                    %error,
                    "no control groups: a process that a command starts with setsid outlives a stop and a worker that is killed"
                );
                None
            }
        };
        let mut thread = Thread {
            program,
            requests: requests.clone(),
            groups: BTreeSet::new(),
            released: BTreeSet::new(),
            cgroup,
            guard: None,
            guards: 0,
        };
        thread.start_guard()?;
        std::thread::Builder::new().name("module-spawner".into()).spawn(move || thread.run(&inbox))?;
        Ok(Self { requests })
    }

    /// Starts a command in a process group of its own, with its stdin, stdout and stderr as pipes. It waits for
    /// the first byte on its stdin, or its end, before it does anything.
    ///
    /// # Errors
    /// What the system says when it cannot start a process.
    pub(super) async fn spawn(&self, command: CommandLine) -> io::Result<(Child, Group)> {
        let (reply, answer) = oneshot::channel();
        let runtime = tokio::runtime::Handle::current();
        let gone = || io::Error::other("the thread that starts commands has ended");
        self.requests.send(Request::Start { command, runtime, reply }).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        // The thread may have ended already.
        let _ = self.requests.send(Request::Stop);
    }
}

impl Group {
    /// Sends a signal to every process of the group. A group that has ended already is fine.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = rustix::process::kill_process_group(self.id, signal);
    }

    /// Says that the command has ended by itself: services that it started outside of its group live on.
    pub(super) fn ended_by_itself(&mut self) {
        self.ended = true;
    }

    /// Kills the group, and with it the processes that left it.
    pub(super) fn kill_all(&self) {
        self.signal(Signal::KILL);
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill(self.id);
        }
    }
}

impl Drop for Group {
    /// The number cannot have become another group's: that would take a full turn of all process ids between
    /// the end of the group's last process and this line.
    fn drop(&mut self) {
        if self.ended {
            self.signal(Signal::KILL);
        } else {
            self.kill_all();
        }
        let _ = self.spawner.send(Request::Ended(self.id));
    }
}

#[derive(Debug)]
enum Request {
    Start {
        command: CommandLine,
        runtime: tokio::runtime::Handle,
        reply: oneshot::Sender<io::Result<(Child, Group)>>,
    },
    Ended(Pid),
    /// The guard of this number has ended.
    GuardEnded(u64),
    Stop,
}

#[derive(Debug)]
struct Thread {
    program: PathBuf,
    requests: mpsc::Sender<Request>,
    groups: BTreeSet<RawPid>,
    /// Groups that have ended and whose control groups could not be removed yet.
    released: BTreeSet<RawPid>,
    /// Where control groups are to be had.
    cgroup: Option<Cgroup>,
    guard: Option<ChildStdin>,
    /// How many guards were started; the number of the present one.
    guards: u64,
}

impl Thread {
    /// The guard's stdin closes when this returns, and the guard ends what is left.
    fn run(mut self, inbox: &mpsc::Receiver<Request>) {
        loop {
            let timeout = if self.guard.is_some() { Duration::MAX } else { GUARD_RETRY };
            match inbox.recv_timeout(timeout) {
                Ok(Request::Start { command, runtime, reply }) => {
                    let started = self.spawn(command, &runtime);
                    // A caller that has gone away drops the group, which ends it.
                    let _ = reply.send(started);
                }
                Ok(Request::Ended(group)) => {
                    self.groups.remove(&group.as_raw_pid());
                    self.release(group);
                    self.tell_guard(&format!("-{group}\n"));
                }
                // Closing the pipe of its successor would make that one kill everything.
                Ok(Request::GuardEnded(number)) if number == self.guards => {
                    self.guard = None;
                    tracing::warn!("the guard of the modules has ended: starting another one");
                    self.try_to_start_guard();
                }
                Ok(Request::GuardEnded(_)) => {}
                Err(RecvTimeoutError::Timeout) => self.try_to_start_guard(),
                Ok(Request::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Removes the control group of `group`, and those before it that still had processes when they ended.
    fn release(&mut self, group: Pid) {
        if let Some(cgroup) = &self.cgroup {
            self.released.insert(group.as_raw_pid());
            self.released.retain(|group| !Pid::from_raw(*group).is_none_or(|group| cgroup.release(group)));
        }
    }

    fn spawn(&mut self, line: CommandLine, runtime: &tokio::runtime::Handle) -> io::Result<(Child, Group)> {
        if self.guard.is_none() {
            self.start_guard()?;
        }
        let mut command = Command::new(&self.program);
        command.arg0("windlass").arg(EXEC_COMMAND).arg(std::process::id().to_string());
        command.arg(self.cgroup.as_ref().map_or(Path::new(""), Cgroup::path)).arg(&line.path);
        command.current_dir(line.path.parent().unwrap_or(&line.path)).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for variable in &line.unset {
            command.env_remove(variable);
        }
        command.envs(line.set);
        let child = {
            // The pipes and the wait belong to the runtime of the caller.
            let _context = runtime.enter();
            tokio::process::Command::from(command).spawn()?
        };
        let id = child
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
            .ok_or_else(|| io::Error::other("the command has no process id"))?;
        // A number that is used again must not be released with the one before.
        self.released.remove(&id.as_raw_pid());
        self.groups.insert(id.as_raw_pid());
        self.tell_guard(&format!("+{id}\n"));
        Ok((child, Group { id, cgroup: self.cgroup.clone(), ended: false, spawner: self.requests.clone() }))
    }

    /// A line that cannot be written means that the guard has died; its successor is told all groups anyway.
    fn tell_guard(&mut self, line: &str) {
        if let Some(guard) = &mut self.guard
            && guard.write_all(line.as_bytes()).is_err()
        {
            self.guard = None;
            self.try_to_start_guard();
        }
    }

    fn try_to_start_guard(&mut self) {
        if let Err(error) = self.start_guard() {
            tracing::error!(%error, "no guard can be started: no command is started until one can be");
        }
    }

    fn start_guard(&mut self) -> io::Result<()> {
        let mut command = Command::new(&self.program);
        command
            .arg0("windlass")
            .arg(GUARD_COMMAND)
            .args(self.cgroup.as_ref().map(Cgroup::path))
            .process_group(0);
        let mut guard = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        let mut stdin = guard.stdin.take().ok_or_else(|| io::Error::other("the guard has no stdin"))?;
        self.guards += 1;
        let (number, requests) = (self.guards, self.requests.clone());
        std::thread::Builder::new().name("module-guard".into()).spawn(move || {
            let _ = guard.wait();
            // A guard that cannot live must not be started in a tight loop.
            std::thread::sleep(GUARD_PAUSE);
            // After the spawner has stopped nobody listens.
            let _ = requests.send(Request::GuardEnded(number));
        })?;
        let groups: String = self.groups.iter().map(|group| format!("+{group}\n")).collect();
        stdin.write_all(groups.as_bytes())?;
        self.guard = Some(stdin);
        Ok(())
    }
}
