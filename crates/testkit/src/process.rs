//! A child process with all its descendants.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::keeper;

/// How often a process is checked during a wait.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A child process with all its descendants. They are killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a command whose output goes to the file `log`.
    pub(crate) fn spawn(mut command: Command, log: &Path) -> Result<Self> {
        let output = File::options().create(true).append(true).open(log)?;
        command.stderr(output.try_clone()?).stdout(output);
        let program = command.get_program().to_string_lossy().into_owned();
        let child = keeper::spawn(command).with_context(|| format!("cannot start {program}"))?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits for its end. Returns nothing if it did not end within `patience`.
    pub(crate) fn wait(&mut self, patience: Duration) -> Result<Option<ExitStatus>> {
        let until = Instant::now() + patience;
        loop {
            let ended = self.ended()?;
            if ended.is_some() || Instant::now() >= until {
                return Ok(ended);
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Sends a signal to this process only.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let id = Pid::from_child(&self.child);
        kill_process(id, signal).with_context(|| format!("cannot send a signal to {}", self.child.id()))
    }

    /// Sends a signal to the process and its descendants, and returns their process ids.
    pub(crate) fn signal_all(&self, signal: Signal) -> Result<Vec<u32>> {
        // List them before the signal: a process whose parent died gets another parent.
        let descendants = descendants(self.child.id());
        self.signal(signal)?;
        for id in &descendants {
            // A process may have ended in the meantime.
            let _ = Pid::from_raw(id.cast_signed()).map(|id| kill_process(id, signal));
        }
        Ok(descendants)
    }

    /// Kills the process and its descendants. None of them runs after this.
    pub(crate) fn kill(&mut self) -> Result<()> {
        if self.ended()?.is_some() {
            return Ok(());
        }
        // A stopped process starts no new descendants.
        self.signal(Signal::STOP)?;
        let descendants = self.signal_all(Signal::KILL)?;
        self.child.wait()?;
        while descendants.iter().any(|id| lives(*id)) {
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// The last lines that it wrote.
    pub(crate) fn last_words(&self) -> String {
        last_lines(&self.log)
    }
}

/// The last lines of a log.
pub(crate) fn last_lines(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

impl Drop for Process {
    fn drop(&mut self) {
        // A destructor cannot return an error.
        let _ = self.kill();
    }
}

/// All processes below `ancestor`.
fn descendants(ancestor: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let parents: Vec<(u32, u32)> = entries
        .filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            Some((id, parent_in(&fs::read_to_string(entry.path().join("stat")).ok()?)?))
        })
        .collect();
    let mut found = vec![ancestor];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(id, _)| *id));
        next += 1;
    }
    found.split_off(1)
}

/// Whether a process still runs. A zombie, which waits to be reaped, does not.
fn lives(id: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// The parent in a process's `stat`. The name before it is in brackets, and may contain any character.
fn parent_in(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_stands_behind_the_name() {
        assert_eq!(parent_in("7 (a ) b) S 42 7 7 0"), Some(42));
        assert_eq!(parent_in("7"), None);
    }

    #[test]
    fn descendants_die_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.arg("-c").arg("sh -c 'sleep 600 & echo $!; wait' & wait");
        let log = folder.path().join("log");
        let mut process = Process::spawn(command, &log).unwrap();
        let grandchild = loop {
            let line = fs::read_to_string(&log).unwrap();
            if let Ok(id) = line.trim().parse::<u32>() {
                break id;
            }
            thread::sleep(LOOK_EVERY);
        };
        assert!(descendants(process.id()).contains(&grandchild));
        assert!(lives(grandchild));
        process.kill().unwrap();
        assert!(!lives(grandchild));
    }
}
