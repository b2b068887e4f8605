//! The ledger of a drill: what the commands themselves record about their work, without the engine.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

/// Two files of lines `KEY ATTEMPT TOKEN`: attempts that began, and attempts that had their effect.
#[derive(Debug, Clone)]
pub(super) struct Ledger {
    begun: PathBuf,
    effects: PathBuf,
}

/// An attempt that began.
#[derive(Debug, Clone)]
pub(super) struct Begun {
    pub(super) attempt: u32,
    pub(super) token: String,
}

impl Ledger {
    /// The ledger in the folder of the drill.
    pub(super) fn in_folder(dir: &Path) -> Self {
        Self { begun: dir.join("begun"), effects: dir.join("effects") }
    }

    /// A shell command that takes this long and then has its effect. It appends one short line in one write, so lines of
    /// concurrent runs do not mix.
    pub(super) fn script(&self, work_ms: u64) -> String {
        format!(
            "#!/bin/sh\nsleep {}.{:03}\nprintf '%s %s %s\\n' \
             \"$WINDLASS_IDEMPOTENCY_KEY\" \"$WINDLASS_ATTEMPT\" \"$WINDLASS_ATTEMPT_TOKEN\" >> '{}'\n",
            work_ms / 1000,
            work_ms % 1000,
            self.effects.display()
        )
    }

    /// Records that an attempt begins.
    pub(super) fn begin(&self, key: &str, attempt: u32, token: &str) -> io::Result<()> {
        append(&self.begun, key, attempt, token)
    }

    /// Records that an attempt had its effect.
    pub(super) fn effect(&self, key: &str, attempt: u32, token: &str) -> io::Result<()> {
        append(&self.effects, key, attempt, token)
    }

    /// How often each step had its effect, by its idempotency key.
    pub(super) fn effects(&self) -> Result<BTreeMap<String, u32>> {
        let mut effects = BTreeMap::new();
        for line in lines(&self.effects)? {
            let key = line.split(' ').next().context("an empty line in the ledger")?;
            *effects.entry(key.to_owned()).or_default() += 1;
        }
        Ok(effects)
    }

    /// The attempts of each step that began, in the order in which they began.
    pub(super) fn begun(&self) -> Result<BTreeMap<String, Vec<Begun>>> {
        let mut begun: BTreeMap<String, Vec<Begun>> = BTreeMap::new();
        for line in lines(&self.begun)? {
            let mut words = line.split(' ');
            let mut word = || words.next().context("a short line in the ledger");
            let (key, attempt, token) = (word()?, word()?.parse()?, word()?.to_owned());
            begun.entry(key.to_owned()).or_default().push(Begun { attempt, token });
        }
        Ok(begun)
    }
}

/// The steps that had their effect more than once.
pub(super) fn repeated(effects: &BTreeMap<String, u32>) -> Vec<&str> {
    effects.iter().filter(|(_, times)| **times > 1).map(|(key, _)| key.as_str()).collect()
}

/// The task of an idempotency key.
pub(super) fn task_of(key: &str) -> &str {
    key.split('/').next().unwrap_or(key)
}

fn append(path: &Path, key: &str, attempt: u32, token: &str) -> io::Result<()> {
    let mut file: File = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(format!("{key} {attempt} {token}\n").as_bytes())
}

/// The complete lines of a file, which may not exist yet.
fn lines(path: &Path) -> Result<Vec<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => {
            let whole = text.rfind('\n').map_or(0, |end| end + 1);
            Ok(text[..whole].lines().map(str::to_owned).collect())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).context("cannot read the ledger"),
    }
}
