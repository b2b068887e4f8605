//! Reads the effects of the demo's tasks from the disk: instances and entries in the ledger.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// The working folder of the example's commands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Instances<'a> {
    folder: &'a Path,
}

impl<'a> Instances<'a> {
    pub(super) fn of(folder: &'a Path) -> Self {
        Self { folder }
    }

    /// The path of a complete instance.
    pub(super) fn path(self, name: &str) -> PathBuf {
        self.folder.join("instances").join(name)
    }

    /// The names of all instances, complete or not.
    pub(super) fn names(self) -> anyhow::Result<Vec<String>> {
        let entries = fs::read_dir(self.folder.join("instances")).context("cannot list the instances")?;
        let mut names = Vec::new();
        for entry in entries {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    /// The number of data files of an instance, complete or not.
    pub(super) fn data_files(self, name: &str) -> usize {
        let is_of_it = |entry: &String| entry == name || entry.starts_with(&format!(".building-{name}-"));
        let Ok(names) = self.names() else { return 0 };
        let Some(entry) = names.into_iter().find(is_of_it) else { return 0 };
        let files = fs::read_dir(self.path(&entry).join("data")).into_iter().flatten().flatten();
        // A file has another name until it is completely written.
        files.filter(|file| !file.file_name().to_string_lossy().ends_with(".new")).count()
    }

    /// The MB of storage that the ledger has left.
    pub(super) fn storage_left(self) -> anyhow::Result<i64> {
        Ok(storage_left(&self.ledger()?))
    }

    /// The lines of the ledger about a task.
    pub(super) fn entries(self, task: &str) -> anyhow::Result<Vec<String>> {
        let ledger = self.ledger()?;
        Ok(ledger.lines().filter(|line| line.split(' ').nth(1) == Some(task)).map(str::to_owned).collect())
    }

    fn ledger(self) -> anyhow::Result<String> {
        fs::read_to_string(self.folder.join("ledger")).context("cannot read the ledger")
    }
}

fn storage_left(ledger: &str) -> i64 {
    let amount = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let number =
            |index: usize| fields.get(index).and_then(|field| field.parse::<i64>().ok()).unwrap_or(0);
        match fields.first() {
            Some(&"capacity") => number(3),
            Some(&"restore") => number(5),
            Some(&"deduct") => -number(5),
            _ => 0,
        }
    };
    ledger.lines().map(amount).sum()
}

#[cfg(test)]
mod tests {
    use super::storage_left;

    #[test]
    fn what_was_given_back_is_there_again() {
        let ledger = "capacity 16 4096 1000\ndeduct a deduct 4 8 500 k1\ndeduct b deduct 1 1 300 k2\n";
        assert_eq!(storage_left(ledger), 200);
        assert_eq!(storage_left(&format!("{ledger}restore a deduct 4 8 500 k3\n")), 700);
    }
}
