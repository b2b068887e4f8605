//! What was skipped because a server is not installed. Tests say so in a file, since nobody reads all of their output.

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::Context as _;

use crate::workspace::Workspace;

/// The file that tests append a line to for everything that they skip.
const FILE: &str = "target/skipped.txt";

/// Notes what is skipped from now on.
pub(crate) struct Skipped {
    path: PathBuf,
    /// False in a child process: the parent reports all skipped tests.
    is_reported: bool,
}

impl Skipped {
    /// Begins with an empty file, which this process and its children append to. A child appends to the file of its parent.
    pub(crate) fn note(workspace: &Workspace) -> anyhow::Result<Self> {
        if let Some(path) = std::env::var_os(windlass_testkit::SKIPS_VARIABLE) {
            return Ok(Self { path: path.into(), is_reported: false });
        }
        let path = workspace.path(FILE);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, "").with_context(|| format!("cannot write {}", path.display()))?;
        windlass_testkit::note_skips(path.clone());
        Ok(Self { path, is_reported: true })
    }

    /// Where the file is.
    pub(crate) fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// What to print at the end: nothing when nothing was skipped.
    pub(crate) fn report(&self) -> Option<String> {
        let lines = fs::read_to_string(&self.path).unwrap_or_default();
        report(&lines).filter(|_| self.is_reported)
    }
}

/// Counts the lines of each product: `skipped TEST: PRODUCT is not installed (…)`.
fn report(lines: &str) -> Option<String> {
    let mut counts = BTreeMap::<&str, usize>::new();
    for line in lines.lines() {
        let after = line.split_once(": ").map_or(line, |(_, after)| after);
        let product = after.split_once(" is not installed").map_or(after, |(product, _)| product);
        *counts.entry(product).or_default() += 1;
    }
    if counts.is_empty() {
        return None;
    }
    let list: Vec<String> =
        counts.iter().map(|(product, count)| format!("  {count:>5}  {product}")).collect();
    Some(format!(
        "!!! NOT EVERYTHING WAS TESTED. Skipped because a server is not installed:\n{}\n\
         !!! Install the servers, or set CI=1 to make each of these an error.",
        list.join("\n")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_skipped_is_counted_by_product() {
        let lines = "skipped a::b: Redis is not installed (apt)\nskipped a test: Kafka is not installed (jars)\n\
                     skipped c: Redis is not installed (apt)\n";
        let text = report(lines).expect("there is something to report");
        assert!(text.contains("      2  Redis\n") && text.contains("      1  Kafka\n"), "{text}");
        assert!(text.starts_with("!!! NOT EVERYTHING WAS TESTED"), "{text}");
        assert_eq!(report(""), None);
    }
}
