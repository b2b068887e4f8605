//! `windlass export` and `windlass import`: a store into a file, and a file into another store.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, BufReader, BufWriter, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use clap::Args;
use windlass_store::archive::Totals;

use crate::cli::exit::Exit;
use crate::{transfer, wire::StoreUrl};

/// Which store, and which file.
#[derive(Debug, Clone, Args)]
pub(crate) struct TransferArgs {
    /// The store: sqlite:PATH, postgres://… or mysql://…
    #[arg(long, value_name = "URL", env = "WINDLASS_SERVER_STORE", hide_env_values = true)]
    pub(crate) store: String,

    /// The file; - = standard output or input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

impl TransferArgs {
    /// Writes the store into the file, which is there only when it is whole.
    pub(crate) async fn export(self) -> anyhow::Result<Exit> {
        let url: StoreUrl = self.store.parse()?;
        if self.is_stream() {
            let mut out = BufWriter::new(io::stdout());
            told("exported", transfer::export(&url, &mut out).await?);
            return Ok(Exit::Done);
        }
        let path = &self.file;
        ensure!(!path.exists(), "{} is there already: give another name, or remove it", path.display());
        let mut partial = path.clone().into_os_string();
        partial.push(".part");
        let partial = PathBuf::from(partial);
        let exported = write(&url, &partial).await;
        if exported.is_err() {
            // What cannot be removed is overwritten by the next one.
            let _ = fs::remove_file(&partial);
        }
        let totals = exported?;
        let named = fs::rename(&partial, path).and_then(|()| transfer::sync_directory(path));
        named.with_context(|| format!("cannot make {}", path.display()))?;
        told("exported", totals);
        Ok(Exit::Done)
    }

    /// Reads the file into the store, which is empty.
    pub(crate) async fn import(self) -> anyhow::Result<Exit> {
        let url: StoreUrl = self.store.parse()?;
        let imported = if self.is_stream() {
            transfer::import(&url, &mut BufReader::new(io::stdin())).await
        } else {
            let file = File::open(&self.file);
            let file = file.with_context(|| format!("cannot read {}", self.file.display()))?;
            transfer::import(&url, &mut BufReader::new(file)).await
        };
        told(
            "imported",
            imported.with_context(|| format!("nothing was imported from {}", self.file.display()))?,
        );
        Ok(Exit::Done)
    }

    fn is_stream(&self) -> bool {
        self.file.as_os_str() == "-"
    }
}

async fn write(url: &StoreUrl, path: &Path) -> anyhow::Result<Totals> {
    // It holds all that the store holds, and is as secret. One that is left of another export may be for all to read.
    let private = Permissions::from_mode(0o600);
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    let file = file.and_then(|file| file.set_permissions(private).map(|()| file));
    let file = file.with_context(|| format!("cannot write {}", path.display()))?;
    let mut out = BufWriter::new(file);
    let totals = transfer::export(url, &mut out).await?;
    out.flush()?;
    out.get_ref().sync_all()?;
    Ok(totals)
}

/// Says on the standard error how much it was: the standard output may be the export.
fn told(what: &str, totals: Totals) {
    eprintln!("{what} {totals}");
}
