//! Copies a store through a file: `windlass export` and `windlass import`.

use std::{
    ffi::OsString,
    fs,
    io::{self, BufRead, IsTerminal as _, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use windlass_store::{
    Archive, Clock as _, ImportStage,
    archive::{self, Totals},
    resident::BodyPolicy,
};

use crate::{
    clock::SystemClock,
    wire::{self, StoreUrl},
};

/// Writes a consistent snapshot of a store that no server uses.
pub(crate) async fn export(url: &StoreUrl, to: &mut (dyn Write + Send)) -> anyhow::Result<Totals> {
    let schema = wire::schema(url).await.with_context(|| format!("cannot export {url}"))?;
    ensure!(schema.found > 0, "there is no store at {url}, so nothing can be exported");
    let clock = SystemClock::new(windlass_core::Timestamp(0));
    let mut snapshot = wire::snapshot(url, &clock).await.with_context(|| format!("cannot export {url}"))?;
    let mut now = wire::beside_servers(url).await?;
    ensure_taken_in(snapshot.enqueued().await?, url)?;
    ensure_left_alone(now.as_deref_mut(), url).await?;
    let totals = archive::export(&mut *snapshot, to, &mut tell("exported"), clock.now()).await?;
    // Rows added meanwhile are not in the snapshot and would be lost.
    ensure_left_alone(now.as_deref_mut(), url).await?;
    Ok(totals)
}

/// Fails when a server or an application adds to the database.
async fn ensure_left_alone(now: Option<&mut (dyn Archive + 'static)>, url: &StoreUrl) -> anyhow::Result<()> {
    let Some(now) = now else { return Ok(()) };
    ensure_alone(now, url).await?;
    ensure_taken_in(now.enqueued().await?, url)
}

/// Fails when applications have enqueued tasks by SQL that no server has imported yet.
fn ensure_taken_in(enqueued: u64, url: &StoreUrl) -> anyhow::Result<()> {
    ensure!(
        enqueued == 0,
        "applications have enqueued {enqueued} tasks in {url} that no server has accepted yet: stop the applications, and start a server for a moment"
    );
    Ok(())
}

/// Fills an empty store. Afterwards it is complete or unchanged.
pub(crate) async fn import(url: &StoreUrl, from: &mut (dyn BufRead + Send)) -> anyhow::Result<Totals> {
    if let StoreUrl::Sqlite(path) = url {
        return import_file(path, from).await;
    }
    let mut archive = wire::to_fill(url).await.with_context(|| format!("cannot fill {url}"))?;
    match archive.stage().await? {
        ImportStage::None => {}
        // An earlier import was interrupted before it wrote anything.
        ImportStage::Reserved => archive.set_stage(ImportStage::None).await?,
        ImportStage::Filling => empty(&mut *archive, url).await?,
    }
    let clock = SystemClock::new(windlass_core::Timestamp(0));
    let store = wire::open(url, &clock, "windlass import", BodyPolicy::default()).await?;
    ensure!(
        archive.is_empty().await?,
        "{url} is not empty: an import needs a database without tasks and flows"
    );
    archive.set_stage(ImportStage::Reserved).await?;
    // From here on no server opens it. The import must not delete the work of a server that opened it
    // earlier.
    if let Err(error) = ensure_untouched(&mut *archive, url).await {
        archive.set_stage(ImportStage::None).await?;
        return Err(error);
    }
    archive.set_stage(ImportStage::Filling).await?;
    let filled = archive::import(&*store, from, &mut tell("imported"), clock.now()).await;
    if filled.is_err() {
        empty(&mut *archive, url)
            .await
            .with_context(|| format!("{url} could not be emptied: run the import again"))?;
    } else {
        archive.set_stage(ImportStage::None).await?;
    }
    Ok(filled?)
}

async fn ensure_untouched(archive: &mut dyn Archive, url: &StoreUrl) -> anyhow::Result<()> {
    ensure_alone(archive, url).await?;
    ensure!(archive.is_empty().await?, "a server has just started to use {url}: stop it");
    Ok(())
}

/// Deletes the rows of an interrupted import.
async fn empty(archive: &mut dyn Archive, url: &StoreUrl) -> anyhow::Result<()> {
    ensure_alone(archive, url).await?;
    archive.clear().await?;
    Ok(archive.set_stage(ImportStage::None).await?)
}

/// Fills a file under a temporary name, and renames it when it is complete.
async fn import_file(path: &Path, from: &mut (dyn BufRead + Send)) -> anyhow::Result<Totals> {
    // Otherwise a server that created a store there meanwhile would continue in an unlinked file.
    let _reserved = wire::reserve(path)?;
    ensure!(
        !path.exists(),
        "{} exists already: an import creates a new file, so choose another name",
        path.display()
    );
    for end in ["-wal", "-shm", "-journal"] {
        let left = beside(path, end);
        ensure!(
            !left.exists(),
            "{} is left from another store or an interrupted import, and SQLite would use it for the new store: remove it, or choose another name",
            left.display()
        );
    }
    let partial = beside(path, ".importing");
    let url = StoreUrl::Sqlite(partial.clone());
    let clock = SystemClock::new(windlass_core::Timestamp(0));
    if partial.exists() {
        // The lock of the file guarantees that no other process uses it.
        drop(wire::open(&url, &clock, "windlass import", BodyPolicy::default()).await?);
        remove(&partial)?;
    }
    let store = wire::open(&url, &clock, "windlass import", BodyPolicy::default()).await?;
    let imported = archive::import(&*store, from, &mut tell("imported"), clock.now()).await;
    drop(store);
    let totals = match imported {
        Ok(totals) => totals,
        Err(error) => {
            remove(&partial)?;
            return Err(error.into());
        }
    };
    // The log may still contain data, so it is renamed too, and first: SQLite drops a log without a file.
    for end in ["-wal", ""] {
        let from = beside(&partial, end);
        if from.exists() {
            fs::File::open(&from)?.sync_all()?;
            let named = fs::rename(&from, beside(path, end));
            named.with_context(|| format!("cannot name the new store {}", path.display()))?;
        }
    }
    remove(&partial)?;
    sync_directory(path)?;
    Ok(totals)
}

/// Reports progress on a terminal, to standard error: standard output may be the export.
fn tell(what: &'static str) -> impl FnMut(Totals) + Send {
    let is_watched = io::stderr().is_terminal();
    move |totals| {
        if is_watched {
            eprintln!("{what} so far: {totals}");
        }
    }
}

/// Makes the name of a file survive a crash of the machine.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    fs::File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

/// Removes a store's file and the files that SQLite and Windlass put next to it.
fn remove(path: &Path) -> anyhow::Result<()> {
    for end in ["", "-wal", "-shm", "-journal", ".lock"] {
        match fs::remove_file(beside(path, end)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                bail!("cannot remove {}{end}: {error}", path.display());
            }
            _ => {}
        }
    }
    Ok(())
}

/// A path with a suffix.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    name.into()
}

/// Fails when a server was active recently.
async fn ensure_alone(archive: &mut dyn Archive, url: &StoreUrl) -> anyhow::Result<()> {
    if let Some(address) = archive.server().await? {
        bail!(
            "the server at {address} uses {url}: stop all servers first (a killed server counts for 5 s more)"
        );
    }
    Ok(())
}
