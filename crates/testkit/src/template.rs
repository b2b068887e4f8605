//! Most data directories are created once and copied for every server. Creating one takes a second or more, copying it
//! 0.1 s.
//!
//! The template is in cargo's build directory, under the version of the server and the user that it belongs to. `cargo
//! clean` removes it.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use crate::{
    account::Account,
    home,
    product::{Product, finish},
};

/// The version of the templates. Increase it when the content of a template changes.
const FORMAT: u32 = 1;

/// Creates a fresh data directory at `data`.
pub(crate) fn make<P: Product>(product: &P, account: &Account, data: &Path) -> Result<()> {
    match cache() {
        Some(cache) if P::HAS_TEMPLATE => copy(&kept(product, account, &cache)?, data),
        // A program that cargo did not build has no build directory.
        _ => product.initialise(&|program| account.command("KILL", program), data),
    }
}

/// The template, which is created if there is none yet.
fn kept<P: Product>(product: &P, account: &Account, cache: &Path) -> Result<PathBuf> {
    fs::create_dir_all(cache).with_context(|| format!("cannot create {}", cache.display()))?;
    let mut command = Command::new(product.program());
    command.arg("--version");
    let version = finish(command)?;
    let word = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    let name: String =
        version.chars().map(word).chain(format!("-{}-{FORMAT}", account.id()).chars()).collect();
    let template = cache.join(&name);

    // Several programs may create it at the same time. The program that has this file locked may, until the file is closed.
    let lock = File::create(cache.join(format!("{name}.lock")))?;
    lock.lock()?;
    if !template.exists() {
        // It is created where the account can write, which may not be so in root's build directory.
        let place = home::directory("template", account)?;
        let made = place.join("data");
        product.initialise(&|program| account.command("KILL", program), &made)?;
        let unfinished = cache.join(format!("{name}.new"));
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished)?;
        }
        copy(&made, &unfinished)?;
        // The rename comes last, so a template is complete even after a crash of the machine.
        let mut sync = Command::new("sync");
        sync.arg("--file-system").arg(&unfinished);
        finish(sync)?;
        fs::rename(&unfinished, &template)?;
        fs::remove_dir_all(&place)?;
    }
    Ok(template)
}

/// The folder of the templates, in cargo's build directory.
fn cache() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let target = program.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file())?;
    Some(target.join("testkit"))
}

/// Copies a directory with its owners and permissions.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut command = Command::new("cp");
    command.args(["--archive", "--reflink=auto", "--no-target-directory", "--"]).arg(from).arg(to);
    finish(command).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(())
}
