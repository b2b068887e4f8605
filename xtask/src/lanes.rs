//! Commands in lanes that run side by side: those of a lane one after the other.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    process::{Command, Stdio},
    sync::Mutex,
    thread,
    time::Instant,
};

use anyhow::{Context as _, ensure};

/// How many of the last lines of a failed job's output are repeated in the error.
const LAST_LINES: usize = 8;

/// The maximum number of earlier panics that are repeated.
const PANICS_MAX: usize = 4;

/// A command with a name for people.
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) command: Command,
}

/// The same command, which runs only while nothing else wants a processor.
pub(crate) fn idle(command: &Command) -> Command {
    let mut idle = Command::new("chrt");
    idle.args(["--idle", "0"]).arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        idle.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => idle.env(name, value),
            None => idle.env_remove(name),
        };
    }
    idle
}

/// Runs all lanes to their ends. The output of each job is printed as a whole when the job has ended. A job that fails does not
/// stop the others.
///
/// # Errors
/// When a job failed; the message names all of them, with the panics and the last lines of their output.
pub(crate) fn run(lanes: Vec<Vec<Job>>) -> anyhow::Result<()> {
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for lane in lanes {
            scope.spawn(|| {
                for job in lane {
                    let name = job.name.clone();
                    if let Err(error) = run_one(job) {
                        let failure = format!("{name}: {error:#}");
                        println!("--- {failure}");
                        failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(failure);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    ensure!(failed.is_empty(), "failed: {}", failed.join("\n"));
    Ok(())
}

fn run_one(job: Job) -> anyhow::Result<()> {
    let Job { name, mut command } = job;
    let begun = Instant::now();
    let output = tempfile::NamedTempFile::new().context("cannot make a file for the output")?;
    let file: &File = output.as_file();
    let status = command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file.try_clone()?)
        .status()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    // The lock keeps the output of a job together.
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "\n--- {name}")?;
    io::copy(&mut File::open(output.path())?, &mut stdout)?;
    writeln!(stdout, "--- {name}: {status} after {:.1} s", begun.elapsed().as_secs_f64())?;
    drop(stdout);
    ensure!(status.success(), "{status}: {}", why(&fs::read(output.path())?));
    Ok(())
}

/// Where a program panicked and its messages, and the last lines with text; in one line. A failed test may print a server's log
/// after its panic.
fn why(output: &[u8]) -> String {
    let output = String::from_utf8_lossy(output);
    let lines: Vec<&str> = output.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines.len().saturating_sub(LAST_LINES);
    let panics = lines[..last]
        .iter()
        .enumerate()
        .filter(|(_, line)| line.starts_with("thread '") && line.contains(" panicked at "));
    let panics = panics.take(PANICS_MAX).flat_map(|(at, _)| &lines[at..(at + 2).min(last)]);
    panics.chain(&lines[last..]).copied().collect::<Vec<_>>().join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job { name: name.to_owned(), command }
    }

    #[test]
    fn lanes_run_side_by_side_and_failures_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let there = folder.path().join("there");
        // The first lane ends only if the second one runs meanwhile.
        let waits = format!(
            "for i in $(seq 600); do [ -e {0} ] && exit 0; sleep 0.05; done; exit 1",
            there.display()
        );
        let lanes = vec![
            vec![shell("waits", &waits)],
            vec![
                shell("fails", "seq 20; echo; echo broken; exit 3"),
                shell("makes", &format!("touch {}", there.display())),
            ],
        ];
        assert_eq!(
            run(lanes).unwrap_err().to_string(),
            "failed: fails: exit status: 3: 14 | 15 | 16 | 17 | 18 | 19 | 20 | broken"
        );
    }

    #[test]
    fn a_panic_is_repeated_whatever_was_printed_after_it() {
        let script =
            "echo \"thread 'a::b' (7) panicked at x.rs:3:1:\"; echo 'left is not right'; seq 40; exit 101";
        assert_eq!(
            run(vec![vec![shell("tests", script)]]).unwrap_err().to_string(),
            "failed: tests: exit status: 101: thread 'a::b' (7) panicked at x.rs:3:1: | left is not right | \
             33 | 34 | 35 | 36 | 37 | 38 | 39 | 40"
        );
    }
}
