//! From one store into another, by way of a file: `windlass export` and `windlass import`.

use std::{
    ffi::OsString,
    fs,
    io::{self, BufRead, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use windlass_engine::{
    archive::{self, Totals},
    ports::{Archive, Clock as _, Store},
};

use crate::{
    clock::SystemClock,
    wire::{self, StoreUrl},
};

/// Writes all that is in a store that no server has open.
pub(crate) async fn export(url: &StoreUrl, to: &mut (dyn Write + Send)) -> anyhow::Result<Totals> {
    let schema = wire::schema(url).await.with_context(|| format!("cannot export {url}"))?;
    ensure!(schema.found > 0, "there is no store at {url}, so nothing can be exported");
    let clock = SystemClock::new(windlass_core::Timestamp(0));
    let store = wire::open(url, &clock, "windlass export").await?;
    ensure_alone(&*store, &clock, url).await?;
    let mut archive = wire::archive(url, false).await?;
    let enqueued = archive.enqueued().await?;
    ensure!(
        enqueued == 0,
        "applications enqueued {enqueued} tasks in {url} that no server has taken in yet: start one for a moment"
    );
    let totals = archive::export(&*store, &mut *archive, to, clock.now()).await?;
    // One that came meanwhile has changed what was read.
    ensure_alone(&*store, &clock, url).await?;
    Ok(totals)
}

/// Fills an empty store. It is whole afterwards, or as it was.
pub(crate) async fn import(url: &StoreUrl, from: &mut (dyn BufRead + Send)) -> anyhow::Result<Totals> {
    if let StoreUrl::Sqlite(path) = url {
        return import_file(path, from).await;
    }
    let mut archive = wire::archive(url, true).await.with_context(|| format!("cannot fill {url}"))?;
    let clock = SystemClock::new(windlass_core::Timestamp(0));
    let store = wire::open(url, &clock, "windlass import").await?;
    ensure!(
        archive.is_empty().await?,
        "{url} is not empty: an import needs a database without tasks and flows"
    );
    archive.begin().await?;
    let filled = fill(&*store, &mut *archive, &clock, url, from).await;
    if filled.is_err() {
        archive.clear().await.with_context(|| format!("{url} is not empty again: run the import again"))?;
    }
    archive.finish().await?;
    filled
}

async fn fill(
    store: &dyn Store,
    archive: &mut dyn Archive,
    clock: &SystemClock,
    url: &StoreUrl,
    from: &mut (dyn BufRead + Send),
) -> anyhow::Result<Totals> {
    // From here on no server opens it; one that did before may have begun something.
    ensure_alone(store, clock, url).await?;
    ensure!(archive.is_empty().await?, "a server has begun to work on {url} just now: stop it");
    Ok(archive::import(store, from, clock.now()).await?)
}

/// Fills a file under another name, and gives it its own when it is whole.
async fn import_file(path: &Path, from: &mut (dyn BufRead + Send)) -> anyhow::Result<Totals> {
    ensure!(
        !path.exists(),
        "{} is there already: an import makes a new file, so give another name",
        path.display()
    );
    let partial = beside(path, ".importing");
    let url = StoreUrl::Sqlite(partial.clone());
    let clock = SystemClock::new(windlass_core::Timestamp(0));
    if partial.exists() {
        // Whoever gets its lock is alone with it.
        drop(wire::open(&url, &clock, "windlass import").await?);
        remove(&partial)?;
    }
    let store = wire::open(&url, &clock, "windlass import").await?;
    let imported = archive::import(&*store, from, clock.now()).await;
    drop(store);
    let totals = match imported {
        Ok(totals) => totals,
        Err(error) => {
            remove(&partial)?;
            return Err(error.into());
        }
    };
    // What is still in its log goes with it, and first: SQLite drops a log without a file.
    for end in ["-wal", ""] {
        let from = beside(&partial, end);
        if from.exists() {
            fs::File::open(&from)?.sync_all()?;
            let named = fs::rename(&from, beside(path, end));
            named.with_context(|| format!("cannot name the new store {}", path.display()))?;
        }
    }
    remove(&partial)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    fs::File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(totals)
}

/// Removes a store's file and what SQLite and we put beside it.
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

/// A path with something behind it.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    name.into()
}

/// Fails when a server was heard of lately. On a file the lock has told already.
async fn ensure_alone(store: &dyn Store, clock: &SystemClock, url: &StoreUrl) -> anyhow::Result<()> {
    let now = clock.now();
    if let Some(server) = store.servers().await?.iter().find(|server| server.is_up(now.mono)) {
        bail!(
            "the server at {} works on {url}: stop all servers first (one that was killed counts for 5 s more)",
            server.address
        );
    }
    Ok(())
}
