//! From one store into another, by way of a file: `windlass export` and `windlass import`.

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

/// Writes all that is in a store that no server works on, as it is at one moment.
pub(crate) async fn export(url: &StoreUrl, to: &mut (dyn Write + Send)) -> anyhow::Result<Totals> {
    let schema = wire::schema(url).await.with_context(|| format!("cannot export {url}"))?;
    ensure!(schema.found > 0, "there is no store at {url}, so nothing can be exported");
    let clock = SystemClock::new(windlass_core::Timestamp(0));
    let mut snapshot = wire::snapshot(url, &clock).await.with_context(|| format!("cannot export {url}"))?;
    let mut now = wire::beside_servers(url).await?;
    ensure_taken_in(snapshot.enqueued().await?, url)?;
    ensure_left_alone(now.as_deref_mut(), url).await?;
    let totals = archive::export(&mut *snapshot, to, &mut tell("exported"), clock.now()).await?;
    // What came since is not in it, and would be missed.
    ensure_left_alone(now.as_deref_mut(), url).await?;
    Ok(totals)
}

/// Fails when somebody adds to a database.
async fn ensure_left_alone(now: Option<&mut (dyn Archive + 'static)>, url: &StoreUrl) -> anyhow::Result<()> {
    let Some(now) = now else { return Ok(()) };
    ensure_alone(now, url).await?;
    ensure_taken_in(now.enqueued().await?, url)
}

/// Fails when applications enqueued tasks by SQL that are no tasks of the store yet.
fn ensure_taken_in(enqueued: u64, url: &StoreUrl) -> anyhow::Result<()> {
    ensure!(
        enqueued == 0,
        "applications enqueued {enqueued} tasks in {url} that no server has taken in yet: stop them, and start a server for a moment"
    );
    Ok(())
}

/// Fills an empty store. It is whole afterwards, or as it was.
pub(crate) async fn import(url: &StoreUrl, from: &mut (dyn BufRead + Send)) -> anyhow::Result<Totals> {
    if let StoreUrl::Sqlite(path) = url {
        return import_file(path, from).await;
    }
    let mut archive = wire::to_fill(url).await.with_context(|| format!("cannot fill {url}"))?;
    match archive.stage().await? {
        ImportStage::None => {}
        // It was broken off before it put anything there.
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
    // From here on no server opens it; what one has done that did before is not the import's to delete.
    if let Err(error) = ensure_untouched(&mut *archive, url).await {
        archive.set_stage(ImportStage::None).await?;
        return Err(error);
    }
    archive.set_stage(ImportStage::Filling).await?;
    let filled = archive::import(&*store, from, &mut tell("imported"), clock.now()).await;
    if filled.is_err() {
        empty(&mut *archive, url)
            .await
            .with_context(|| format!("{url} is not empty again: run the import again"))?;
    } else {
        archive.set_stage(ImportStage::None).await?;
    }
    Ok(filled?)
}

async fn ensure_untouched(archive: &mut dyn Archive, url: &StoreUrl) -> anyhow::Result<()> {
    ensure_alone(archive, url).await?;
    ensure!(archive.is_empty().await?, "a server has begun to work on {url} just now: stop it");
    Ok(())
}

/// Deletes what an import has filled in that did not come to its end.
async fn empty(archive: &mut dyn Archive, url: &StoreUrl) -> anyhow::Result<()> {
    ensure_alone(archive, url).await?;
    archive.clear().await?;
    Ok(archive.set_stage(ImportStage::None).await?)
}

/// Fills a file under another name, and gives it its own when it is whole.
async fn import_file(path: &Path, from: &mut (dyn BufRead + Send)) -> anyhow::Result<Totals> {
    // A server that made a store there meanwhile would go on in a file without a name.
    let _reserved = wire::reserve(path)?;
    ensure!(
        !path.exists(),
        "{} is there already: an import makes a new file, so give another name",
        path.display()
    );
    for end in ["-wal", "-shm", "-journal"] {
        let left = beside(path, end);
        ensure!(
            !left.exists(),
            "{} is left of another store, or of an import that was broken off, and SQLite would take it for the new one's: remove it, or give another name",
            left.display()
        );
    }
    let partial = beside(path, ".importing");
    let url = StoreUrl::Sqlite(partial.clone());
    let clock = SystemClock::new(windlass_core::Timestamp(0));
    if partial.exists() {
        // Whoever gets its lock is alone with it.
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
    sync_directory(path)?;
    Ok(totals)
}

/// Says on a terminal how far it is: the standard output may be the export.
fn tell(what: &'static str) -> impl FnMut(Totals) + Send {
    let is_watched = io::stderr().is_terminal();
    move |totals| {
        if is_watched {
            eprintln!("{what} so far: {totals}");
        }
    }
}

/// Makes the name of a file outlast a crash of the machine.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    fs::File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
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

/// Fails when a server was heard of lately.
async fn ensure_alone(archive: &mut dyn Archive, url: &StoreUrl) -> anyhow::Result<()> {
    if let Some(address) = archive.server().await? {
        bail!(
            "the server at {address} works on {url}: stop all servers first (one that was killed counts for 5 s more)"
        );
    }
    Ok(())
}
