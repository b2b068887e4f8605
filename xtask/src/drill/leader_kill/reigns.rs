//! The ledger: each command appends several lines to a file while it runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context as _, Result, bail, ensure};
use tokio::time;

use super::{LOOK_EVERY, ORDERED, PATIENCE};

/// The command `drill.act`, which takes about 100 ms and ignores SIGTERM.
pub(super) fn script(dir: &Path) -> String {
    format!(
        "#!/bin/sh\ntrap '' TERM\n\
         say() {{ echo \"${{WINDLASS_LEADER_FENCE:-0}} ${{WINDLASS_FENCE:-0}} $DRILL_WORKER $1 $WINDLASS_TASK\" >> '{}'; }}\n\
         say begin\nfor i in 1 2 3; do sleep 0.02; say acts; done\nsay end\n",
        file(dir).display()
    )
}

fn file(dir: &Path) -> PathBuf {
    dir.join("reigns")
}

/// A line of a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// The fence of its worker's leadership; 0 if workers have no leader.
    reign: u64,
    /// The fence of the exclusive queue; 0 if the task has no queue.
    fence: u64,
    /// The worker that ran it.
    pub(super) worker: String,
    /// `begin`, `acts` or `end`.
    word: String,
    task: String,
}

impl Line {
    /// Whether this line is the beginning of a task of the exclusive queue.
    pub(super) fn begins_in_queue(&self) -> bool {
        self.fence > 0 && self.word == "begin"
    }

    fn read(line: &str) -> Result<Self> {
        let mut words = line.split(' ');
        let mut word = || words.next().context("a short line in the ledger");
        Ok(Self {
            reign: word()?.parse()?,
            fence: word()?.parse()?,
            worker: word()?.to_owned(),
            word: word()?.to_owned(),
            task: word()?.to_owned(),
        })
    }
}

/// The contents of the ledger.
#[derive(Debug)]
pub(super) struct Verdict {
    /// The number of leaders.
    pub(super) reigns: usize,
    /// The tasks whose command ran to its end more than once.
    pub(super) repeated: Vec<String>,
}

/// The part of the ledger that was read.
pub(super) struct Reigns {
    file: PathBuf,
    /// The number of bytes of that part.
    offset: u64,
    lines: Vec<Line>,
    /// The tasks whose command has run to its end.
    ended: BTreeSet<String>,
}

impl Reigns {
    pub(super) fn new(dir: &Path) -> Self {
        Self { file: file(dir), offset: 0, lines: Vec::new(), ended: BTreeSet::new() }
    }

    pub(super) fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The number of tasks that have run to their end.
    pub(super) fn ended(&self) -> usize {
        self.ended.len()
    }

    /// Reads the complete lines that were appended.
    pub(super) fn read(&mut self) -> Result<()> {
        let mut file = match File::open(&self.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        file.seek(SeekFrom::Start(self.offset))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        self.offset += whole as u64;
        for line in text[..whole].lines() {
            let line = Line::read(line)?;
            if line.word == "end" {
                self.ended.insert(line.task.clone());
            }
            self.lines.push(line);
        }
        Ok(())
    }

    /// Waits until a command runs. Returns its worker, or nothing once this number of tasks have all ended.
    pub(super) async fn acting(&mut self, tasks: usize) -> Result<Option<String>> {
        let (began, seen) = (Instant::now(), self.lines.len());
        loop {
            self.read()?;
            if self.ended() == tasks {
                return Ok(None);
            }
            if let Some(line) = self.lines[seen..].last().filter(|line| line.word != "end") {
                return Ok(Some(line.worker.clone()));
            }
            ensure!(began.elapsed() < PATIENCE, "no command runs for {PATIENCE:?}");
            time::sleep(LOOK_EVERY).await;
        }
    }

    /// Fails if two commands ran at once, if tasks were lost, or if those of the queue began in another order.
    pub(super) fn verdict(&mut self, submitted: &[(String, &str)]) -> Result<Verdict> {
        self.read()?;
        let mut open: Option<&Line> = None;
        let (mut reigns, mut highest) = (BTreeSet::new(), 0);
        let (mut ends, mut begun) = (BTreeMap::<&str, usize>::new(), Vec::new());
        for line in &self.lines {
            let Line { reign, fence, worker, word, task } = line;
            let last = reigns.last().copied().unwrap_or(0);
            ensure!(*reign >= last, "{task} acted under the leader {reign} after the first act under {last}");
            reigns.insert(*reign);
            ensure!(
                *fence == 0 || *fence >= highest,
                "{task} acted under the fence {fence} of the queue after the first act under {highest}"
            );
            highest = highest.max(*fence);
            match (word.as_str(), open) {
                ("begin", Some(other)) if (other.reign, &other.worker) == (*reign, worker) => {
                    bail!("{task} began at {worker} under the leader {reign} while {} ran", other.task);
                }
                ("begin", _) => {
                    if !begun.contains(&task.as_str()) {
                        begun.push(task);
                    }
                    open = Some(line);
                }
                (_, Some(running))
                    if (running.reign, &running.worker, &running.task) == (*reign, worker, task) =>
                {
                    if word == "end" {
                        *ends.entry(task).or_default() += 1;
                        open = None;
                    }
                }
                _ => {
                    bail!("{task} acted at {worker} under the leader {reign} after another command had begun")
                }
            }
        }
        let lost = submitted.iter().filter(|(id, _)| !ends.contains_key(id.as_str())).count();
        ensure!(lost == 0, "{lost} tasks never ran to their end");
        let ordered = submitted.iter().filter(|(_, flow)| *flow == ORDERED).map(|(id, _)| id.as_str());
        let is_ordered: BTreeSet<&str> = ordered.clone().collect();
        let began = begun.into_iter().filter(|id| is_ordered.contains(id));
        ensure!(ordered.eq(began), "the tasks of the exclusive queue began in another order");
        let repeated = ends.into_iter().filter(|(_, times)| *times > 1).map(|(task, _)| task.to_owned());
        Ok(Verdict { reigns: reigns.len(), repeated: repeated.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result for a ledger with these lines, after two tasks of the queue were submitted.
    fn verdict(lines: &[&str]) -> Result<Verdict> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(file(dir.path()), lines.join("\n") + "\n").unwrap();
        let submitted = ["one", "two"].map(|task| (task.to_owned(), ORDERED));
        Reigns::new(dir.path()).verdict(&submitted)
    }

    #[test]
    fn tasks_that_run_one_after_the_other_and_again_after_a_takeover_are_as_promised() {
        let lines = [
            "1 1 a begin one",
            "1 1 a acts one",
            "2 1 b begin one",
            "2 1 b end one",
            "3 1 c begin one",
            "3 1 c end one",
            "3 2 c begin two",
            "3 2 c end two",
        ];
        let verdict = verdict(&lines).unwrap();
        assert_eq!((verdict.reigns, verdict.repeated), (3, vec!["one".to_owned()]));
    }

    #[test]
    fn what_breaks_a_promise_is_found() {
        for (lines, words) in [
            (&["1 1 a begin one", "1 2 a begin two"][..], "began at a under the leader 1 while one ran"),
            (&["0 1 a begin one", "0 2 b begin two", "0 1 a acts one"], "after the first act under 2"),
            (&["0 1 a begin one", "0 1 b begin one", "0 1 a end one"], "after another command had begun"),
            (&["2 1 a begin one", "2 1 a end one", "1 2 b begin two"], "after the first act under 2"),
            (&["1 1 a begin one", "1 1 a end one", "1 2 a begin two"], "1 tasks never ran to their end"),
            (
                &["1 1 a begin two", "1 1 a end two", "1 2 a begin one", "1 2 a end one"],
                "began in another order",
            ),
        ] {
            let error = verdict(lines).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
