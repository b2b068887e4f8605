//! The files of the project.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail, ensure};

/// The folder that all chores are about.
#[derive(Debug)]
pub(crate) struct Workspace {
    root: PathBuf,
    /// Where tests say what they skip, where somebody asks for that.
    skips: Option<PathBuf>,
}

impl Workspace {
    /// The workspace that this program was built in.
    pub(crate) fn of_this_crate() -> Self {
        let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
        Self { root: crate_dir.parent().unwrap_or(crate_dir).to_owned(), skips: None }
    }

    /// The same, whose commands have tests append to this file what they skip.
    pub(crate) fn noting_skips(self, path: PathBuf) -> Self {
        Self { skips: Some(path), ..self }
    }

    /// Where a file of the project is.
    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// The text of a file of the project.
    pub(crate) fn read(&self, relative: &str) -> anyhow::Result<String> {
        fs::read_to_string(self.path(relative)).with_context(|| format!("cannot read {relative}"))
    }

    /// The paths of all files that are tracked or would be, relative to the root, sorted.
    pub(crate) fn files(&self) -> anyhow::Result<Vec<String>> {
        let listed = self.output("git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
        let mut files: Vec<String> = listed
            .split('\0')
            .filter(|path| !path.is_empty() && self.path(path).is_file())
            .map(str::to_owned)
            .collect();
        files.sort();
        files.dedup();
        Ok(files)
    }

    /// A command that runs in the root. Cargo is the one that runs this program.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>, arguments: &[&str]) -> Command {
        let program = program.as_ref();
        let cargo = std::env::var_os("CARGO").filter(|_| program == "cargo");
        let mut command = Command::new(cargo.as_deref().unwrap_or(program));
        command.args(arguments).current_dir(&self.root);
        // Cargo sets these variables for xtask. The build script of `ring` depends on some of them: if they differ, Cargo compiles
        // `ring` and all crates above it again.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        self.note_skips_of(&mut command);
        command
    }

    /// Has the tests that a command runs append to the file what they skip.
    pub(crate) fn note_skips_of(&self, command: &mut Command) {
        if let Some(path) = &self.skips {
            command.env(windlass_testkit::SKIPS_VARIABLE, path);
        }
    }

    /// Builds `windlass` with everything in it, also what its default features leave out, and returns where it is.
    pub(crate) fn build_full(&self, options: &[&str]) -> anyhow::Result<PathBuf> {
        self.build(&[&["--package", "windlass", "--features", "full"], options].concat())
    }

    /// Builds a program of the project and returns where it is. `what` says which, as arguments of `cargo build`.
    pub(crate) fn build(&self, what: &[&str]) -> anyhow::Result<PathBuf> {
        let build = ["build", "--locked", "--message-format", "json-render-diagnostics"];
        let artifacts = self.output_shown("cargo", &[&build, what].concat())?;
        let path = artifacts
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .filter_map(|artifact| artifact["executable"].as_str().map(PathBuf::from))
            .next_back();
        path.context("cargo names no program")
    }

    /// Runs a command to its end; its output goes where this program's goes.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> anyhow::Result<()> {
        run_to_success(self.command(program, arguments))
    }

    /// What a command prints on its standard output; its standard error goes where this program's goes.
    pub(crate) fn output_shown(&self, program: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = self.command(program, arguments);
        let output = command
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("cannot start `{program}`: is it installed?"))?;
        ensure!(output.status.success(), "`{program} {}` failed", arguments.join(" "));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// What a command prints on its standard output.
    pub(crate) fn output(&self, program: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let output = self
            .command(program, arguments)
            .output()
            .with_context(|| format!("cannot start `{program}`: is it installed?"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("`{program} {}` failed: {}", arguments.join(" "), said.trim());
        }
        String::from_utf8(output.stdout).with_context(|| format!("`{program}` did not print UTF-8"))
    }
}

/// Runs a command and makes an error of any end but success.
pub(crate) fn run_to_success(mut command: Command) -> anyhow::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("cannot start `{program}`: is it installed?"))?;
    if !status.success() {
        bail!("{status}");
    }
    Ok(())
}
