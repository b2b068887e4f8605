//! The spawner: the one thread of a worker that starts commands and keeps the guard.
//!
//! ```text
//!   runner ──start──▶ spawner thread ──▶ windlass module-exec … ──exec──▶ command   (a process group each)
//!          ◀─process──      │
//!                           └──"+PGID" "-PGID" "@TERM KILL"──▶ windlass module-guard
//! ```
//!
//! The spawner is a thread because Linux sends the parent-death signal when the *thread* that started a
//! process ends. This thread lives exactly as long as the worker, on any runtime. It also keeps blocking
//! calls, which start processes and write to the guard, off the worker's event loop.
//!
//! When the guard dies, the spawner starts another one and reports all groups to it. While that fails, no
//! command starts: without a guard, a command could outlive a dead worker.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use rustix::process::{Pid, RawPid, Signal};
use tokio::process::Child;
use tokio::sync::oneshot;

use super::{EXEC_COMMAND, GUARD_COMMAND, cgroup::Cgroup, deadline::Deadline};

/// The pause before a failed start of the guard is repeated.
const GUARD_RETRY: Duration = Duration::from_secs(1);

/// The pause between the end of a guard and the start of the next one.
const GUARD_PAUSE: Duration = Duration::from_millis(50);

/// How often a killed group is looked at until it is gone.
const GONE_TRIES: u32 = 100;

/// The pause between two looks.
const GONE_PAUSE: Duration = Duration::from_millis(5);

/// Starts commands. Dropping it kills all commands that still run.
#[derive(Debug)]
pub(crate) struct Spawner {
    requests: mpsc::Sender<Request>,
}

/// A command to start, and the changes to its environment.
#[derive(Debug)]
pub(crate) struct CommandLine {
    /// The executable.
    pub(crate) path: PathBuf,
    /// Its arguments.
    pub(crate) arguments: Vec<OsString>,
    /// Its working directory; none = that of the worker.
    pub(crate) folder: Option<PathBuf>,
    /// Whether its stdout and stderr are pipes to the worker. Otherwise they are those of the worker.
    pub(crate) is_read: bool,
    /// Variables that it does not inherit from the worker.
    pub(crate) unset: Vec<OsString>,
    /// Variables that are set for it.
    pub(crate) set: Vec<(&'static str, String)>,
}

/// The processes of one attempt. Dropping this kills them all, except for services that a command left
/// outside of its group before it ended by itself.
#[derive(Debug)]
pub(crate) struct Group {
    id: Pid,
    cgroup: Option<Cgroup>,
    /// Whether the command ended by itself: then processes outside of its group survive.
    ended: bool,
    spawner: mpsc::Sender<Request>,
}

impl Spawner {
    /// Starts the thread and the guard. `program` is this program: stub and guard are subcommands of it.
    ///
    /// # Errors
    /// When the thread or the guard cannot be started.
    pub(crate) fn start(program: PathBuf) -> io::Result<Self> {
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
            deadline: None,
            released: BTreeSet::new(),
            cgroup,
            guard: None,
            guards: 0,
        };
        thread.start_guard()?;
        std::thread::Builder::new().name("module-spawner".into()).spawn(move || thread.run(&inbox))?;
        Ok(Self { requests })
    }

    /// Lets the guard end all commands at this deadline, unless a later one comes before. The commands that
    /// start after this call have it as well.
    pub(crate) fn set_deadline(&self, deadline: Deadline) {
        // If the thread has ended, so have the commands.
        let _ = self.requests.send(Request::Deadline(deadline));
    }

    /// Starts a command in its own process group, with a pipe as its stdin. The command waits for the first
    /// byte on its stdin, or its end.
    ///
    /// # Errors
    /// When the operating system cannot start a process.
    pub(crate) async fn spawn(&self, command: CommandLine) -> io::Result<(Child, Group)> {
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

/// The states of the processes of a group, as letters; none where the system does not list processes.
fn members(group: Pid) -> Option<impl Iterator<Item = char>> {
    let group = group.as_raw_nonzero().to_string();
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    Some(processes.filter_map(move |process| {
        let stat = std::fs::read_to_string(process.path().join("stat")).ok()?;
        // `PID (NAME) STATE PARENT GROUP …`; the name may have spaces and brackets.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?.chars().next()?;
        (fields.nth(1)? == group).then_some(state)
    }))
}

impl Group {
    /// Sends a signal to every process of the group. Does nothing if the group has ended.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = rustix::process::kill_process_group(self.id, signal);
    }

    /// Marks the command as ended by itself: services outside of its group survive.
    pub(crate) fn ended_by_itself(&mut self) {
        self.ended = true;
    }

    /// Waits until no process of the group runs, for half a second at most: one that waits for a slow disk may stay.
    /// Returns whether all have gone.
    pub(crate) async fn is_gone(&self) -> bool {
        for _ in 0..GONE_TRIES {
            if !self.runs() {
                return true;
            }
            tokio::time::sleep(GONE_PAUSE).await;
        }
        false
    }

    /// Whether a process of the group runs. One that has ended may wait for a careless parent to look.
    fn runs(&self) -> bool {
        let exists = rustix::process::test_kill_process_group(self.id).is_ok();
        exists && members(self.id).is_none_or(|mut states| states.any(|state| !"ZX".contains(state)))
    }

    /// Kills the group and the processes that have left it.
    pub(crate) fn kill_all(&self) {
        self.signal(Signal::KILL);
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill(self.id);
        }
    }
}

impl Drop for Group {
    /// The id cannot belong to another group yet: all process ids would have to be used once between the end
    /// of the group's last process and this line.
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
    Deadline(Deadline),
    /// The guard with this number has ended.
    GuardEnded(u64),
    Stop,
}

#[derive(Debug)]
struct Thread {
    program: PathBuf,
    requests: mpsc::Sender<Request>,
    groups: BTreeSet<RawPid>,
    /// When the guard ends all groups; none = only after the worker.
    deadline: Option<Deadline>,
    /// Ended groups whose control groups could not be removed yet.
    released: BTreeSet<RawPid>,
    /// The worker's control group; none where the system has none.
    cgroup: Option<Cgroup>,
    guard: Option<ChildStdin>,
    /// The number of guards started so far, which is also the number of the current one.
    guards: u64,
}

impl Thread {
    /// When this returns, the guard's stdin closes, and the guard kills all remaining groups.
    fn run(mut self, inbox: &mpsc::Receiver<Request>) {
        loop {
            let timeout = if self.guard.is_some() { Duration::MAX } else { GUARD_RETRY };
            match inbox.recv_timeout(timeout) {
                Ok(Request::Start { command, runtime, reply }) => {
                    let started = self.spawn(command, &runtime);
                    // If the caller is gone, dropping the group ends it.
                    let _ = reply.send(started);
                }
                Ok(Request::Ended(group)) => {
                    self.groups.remove(&group.as_raw_pid());
                    self.release(group);
                    self.tell_guard(&format!("-{group}\n"));
                }
                Ok(Request::Deadline(deadline)) => {
                    self.deadline = Some(deadline);
                    self.tell_guard(&format!("{}\n", deadline.line()));
                }
                // Only for the current guard: closing the pipe of a newer guard would make it kill
                // everything.
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

    /// Removes the control group of `group`, and earlier ones that still had processes when they ended.
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
        command.args(&line.arguments).process_group(0).stdin(Stdio::piped());
        if let Some(folder) = &line.folder {
            command.current_dir(folder);
        }
        if line.is_read {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        for variable in &line.unset {
            command.env_remove(variable);
        }
        command.envs(line.set);
        let child = {
            // The pipes and the wait belong to the caller's runtime.
            let _context = runtime.enter();
            tokio::process::Command::from(command).spawn()?
        };
        let id = child
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
            .ok_or_else(|| io::Error::other("the command has no process id"))?;
        // A reused process id must not be released together with the earlier one.
        self.released.remove(&id.as_raw_pid());
        self.groups.insert(id.as_raw_pid());
        self.tell_guard(&format!("+{id}\n"));
        Ok((child, Group { id, cgroup: self.cgroup.clone(), ended: false, spawner: self.requests.clone() }))
    }

    /// A failed write means that the guard has died; its successor gets all groups.
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
            tracing::error!(%error, "cannot start a guard; no command starts until this succeeds");
        }
    }

    fn start_guard(&mut self) -> io::Result<()> {
        let mut command = Command::new(&self.program);
        // Commands could read the variables of the guard, and the secrets in them.
        command
            .env_clear()
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
            // Keeps a guard that dies at once from being restarted in a tight loop.
            std::thread::sleep(GUARD_PAUSE);
            // After the spawner has stopped, nobody receives this.
            let _ = requests.send(Request::GuardEnded(number));
        })?;
        let deadline = self.deadline.map(|deadline| format!("{}\n", deadline.line())).into_iter();
        let lines: String = deadline.chain(self.groups.iter().map(|group| format!("+{group}\n"))).collect();
        stdin.write_all(lines.as_bytes())?;
        self.guard = Some(stdin);
        Ok(())
    }
}
