//! What a check found: all of it, not only the first.

use std::fmt;

/// What is wrong, a line each, with the place in front.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings(Vec<String>);

impl Findings {
    /// Something is wrong at `place`.
    pub(crate) fn add(&mut self, place: impl fmt::Display, what: impl fmt::Display) {
        self.0.push(format!("{place}: {what}"));
    }

    /// Takes over what another check found.
    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// The findings in their order.
    #[cfg(test)]
    pub(crate) fn lines(&self) -> &[String] {
        &self.0
    }

    /// An error that lists the findings, if there are any.
    pub(crate) fn into_result(self) -> anyhow::Result<()> {
        match self.0.len() {
            0 => Ok(()),
            count => anyhow::bail!("{count} found\n{self}"),
        }
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}
