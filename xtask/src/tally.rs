//! Parts that run one after the other: one that fails does not stop the others, so that one run shows all there is;
//! the last lines say which failed, and why.

use std::time::Instant;

/// What became of the parts that ran by now.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    lines: Vec<String>,
    /// The parts that failed, each with its report. These are repeated at the end: often only the end of a long output is kept.
    failed: Vec<(String, String)>,
}

impl Tally {
    /// Runs a part, and notes how it went and how long it took.
    pub(crate) fn run(&mut self, name: &str, part: impl FnOnce() -> anyhow::Result<()>) {
        println!("\n=== {name}");
        let begun = Instant::now();
        let result = part();
        let seconds = begun.elapsed().as_secs_f64();
        if let Err(error) = &result {
            println!("{error:#}");
            self.failed.push((name.to_owned(), format!("{error:#}")));
        }
        let word = if result.is_ok() { "passed" } else { "FAILED" };
        println!("=== {name}: {word} in {seconds:.1} s");
        self.lines.push(format!("{word}  {seconds:>7.1} s  {name}"));
    }

    /// Prints how all parts went. An error when one of them failed.
    pub(crate) fn into_result(self) -> anyhow::Result<()> {
        println!("\n{}", self.lines.join("\n"));
        for (name, report) in &self.failed {
            println!("\n{name}: {report}");
        }
        let names: Vec<String> = self.failed.into_iter().map(|(name, _)| name).collect();
        anyhow::ensure!(names.is_empty(), "failed: {}", names.join(", "));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_fails_does_not_stop_the_others_and_is_named() {
        let mut tally = Tally::default();
        let mut ran = Vec::new();
        tally.run("first", || anyhow::bail!("broken"));
        tally.run("second", || {
            ran.push("second");
            Ok(())
        });
        assert_eq!(ran, ["second"]);
        assert_eq!(tally.into_result().unwrap_err().to_string(), "failed: first");
    }
}
