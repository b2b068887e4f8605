//! From the URL of a store to an open store. Which databases there are is known to `windlass_stores::connect`.

use std::{fmt, path::PathBuf, str::FromStr, sync::Arc};

use anyhow::Context as _;
use windlass_core::Millis;
use windlass_engine::loops::StoreClock as _;
use windlass_store::{
    Archive, Clock as _, Snapshot, Store,
    memory::MemorySink,
    resident::{BodyPolicy, Resident, RestPolicy, RowSink},
};
use windlass_stores::{OpenError, connect};

#[cfg(feature = "sqlite")]
use crate::doctor::FileDiagnosis;
use crate::{clock::SystemClock, doctor::Diagnosis, http};

/// The store of the tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreUrl {
    /// A SQLite file.
    Sqlite(PathBuf),
    /// A database that servers share: its URL, which may contain a password.
    Shared(String),
    /// In memory only: lost with the process.
    Memory,
}

impl FromStr for StoreUrl {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text.split_once(':') {
            Some(("sqlite", path)) if !path.is_empty() => {
                anyhow::ensure!(cfg!(feature = "sqlite"), OpenError::NotBuiltIn { product: "SQLite" });
                Ok(Self::Sqlite(path.into()))
            }
            Some(("memory", "")) => Ok(Self::Memory),
            Some((_, rest)) if windlass_stores::is_shared(text)? => {
                check_at(rest).map(|()| Self::Shared(text.to_owned()))
            }
            _ => anyhow::bail!(
                "invalid store {:?}: use sqlite:PATH, postgres://USER:PASSWORD@HOST/DATABASE, \
                 mysql://USER:PASSWORD@HOST/DATABASE or memory:",
                hide_secrets(text)
            ),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Shared(url) => f.write_str(&hide_secrets(url)),
            Self::Memory => f.write_str("memory:"),
        }
    }
}

/// Refuses a URL in which the password, and so the part that may be shown, is ambiguous.
fn check_at(rest: &str) -> anyhow::Result<()> {
    let rest = rest.trim_start_matches("//");
    let (authority, behind) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    anyhow::ensure!(
        authority.matches('@').count() <= 1 && !behind.contains('@'),
        "the URL of the store has too many @: in a user or a password write @ as %40, : as %3A, / as %2F, \
         ? as %3F and # as %23"
    );
    Ok(())
}

/// A URL without its password, which may be before the host or among the parameters.
fn hide_secrets(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) if check_at(rest).is_err() => return format!("{scheme}://…"),
        Some(_) => {}
        // The value is a list such as `host=db password=secret`: any part of it may be the password.
        None if url.contains(['=', '@']) => {
            let scheme = url.split_once(':').map(|(scheme, _)| scheme);
            let scheme = scheme.filter(|scheme| scheme.bytes().all(|byte| byte.is_ascii_alphabetic()));
            return scheme.map_or_else(|| "…".to_owned(), |scheme| format!("{scheme}:…"));
        }
        None => {}
    }
    let url = url.split(['?', '#', ';']).next().unwrap_or_default();
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(host)) if scheme < host => format!("{}://…@{}", &url[..scheme], &url[host + 1..]),
        _ => url.to_owned(),
    }
}

/// Refuses a store that no server can open, as far as its URL and the folder of its file show that. Connects to nothing and
/// changes nothing.
///
/// # Errors
/// When the store cannot be opened; the error is that of [`open`].
pub(crate) fn check(url: &StoreUrl) -> anyhow::Result<()> {
    match url {
        StoreUrl::Memory => Ok(()),
        StoreUrl::Shared(address) => connect(address).map(drop).with_context(|| cannot_open(url)),
        #[cfg(feature = "sqlite")]
        StoreUrl::Sqlite(path) => windlass_stores::sqlite::check_path(path).with_context(|| cannot_open(url)),
        #[cfg(not(feature = "sqlite"))]
        StoreUrl::Sqlite(_) => anyhow::bail!("this build has no such store"),
    }
}

fn cannot_open(url: &StoreUrl) -> String {
    format!("cannot open the store {url}")
}

/// Opens the store. Afterwards `clock` is not behind the times in it. `server` names this process in the error that a
/// second server gets. Over a file, `bodies` decides which parameters and results of active tasks are kept in memory.
#[cfg_attr(not(feature = "sqlite"), expect(unused_variables, reason = "only files say who has them"))]
pub(crate) async fn open(
    url: &StoreUrl,
    clock: &SystemClock,
    server: &str,
    bodies: BodyPolicy,
) -> anyhow::Result<Arc<dyn Store>> {
    let sink: Arc<dyn RowSink> = match url {
        StoreUrl::Shared(address) => {
            let opened = async { connect(address)?.open().await }.await;
            let store = opened.with_context(|| cannot_open(url))?;
            if let Some(cluster) = store.cluster()
                && let Some(time) = cluster.time().await?
            {
                // Rather behind than ahead: other servers follow the latest time that any of them has used.
                clock.follow(time, Millis(0));
            }
            return Ok(store);
        }
        StoreUrl::Memory => Arc::new(MemorySink::new(token_key()?)),
        #[cfg(feature = "sqlite")]
        StoreUrl::Sqlite(path) => {
            let options = windlass_stores::sqlite::SqliteOptions {
                lock_hint: server.to_owned(),
                ..windlass_stores::sqlite::SqliteOptions::default()
            };
            let sink = windlass_stores::sqlite::SqliteSink::open(path, options);
            Arc::new(sink.with_context(|| cannot_open(url))?)
        }
        #[cfg(not(feature = "sqlite"))]
        StoreUrl::Sqlite(_) => anyhow::bail!("this build has no such store"),
    };
    // Rows in memory are no other place.
    let bodies = if *url == StoreUrl::Memory { BodyPolicy::ALL } else { bodies };
    let store = Resident::open_with(sink, clock.now(), RestPolicy { bodies, ..RestPolicy::default() }).await;
    let store = store.with_context(|| format!("cannot read the store {url}"))?;
    clock.not_before(store.latest_at());
    store.begin_grace(clock.now());
    Ok(Arc::new(store))
}

/// Which version a store's tables are of; nothing is changed.
pub(crate) async fn schema(url: &StoreUrl) -> anyhow::Result<windlass_stores::Schema> {
    match url {
        #[cfg(feature = "sqlite")]
        StoreUrl::Sqlite(path) => Ok(windlass_stores::sqlite::schema(path)?),
        StoreUrl::Shared(address) => Ok(connect(address)?.schema().await?),
        _ => anyhow::bail!("it has no tables, or this build has no such store"),
    }
}

/// Brings a store's tables to the version of this program, as opening them does.
pub(crate) async fn migrate(url: &StoreUrl) -> anyhow::Result<()> {
    let clock = SystemClock::new(windlass_core::Timestamp(0));
    open(url, &clock, "windlass migrate", BodyPolicy::default()).await?;
    Ok(())
}

/// Keeps servers from creating a store at `path` until this is dropped.
#[cfg(feature = "sqlite")]
pub(crate) fn reserve(path: &std::path::Path) -> anyhow::Result<windlass_stores::sqlite::Reserved> {
    let reserved = windlass_stores::sqlite::Reserved::new(path, "windlass import");
    reserved.with_context(|| format!("cannot make the store {}", path.display()))
}

#[cfg(not(feature = "sqlite"))]
pub(crate) fn reserve(_: &std::path::Path) -> anyhow::Result<std::convert::Infallible> {
    anyhow::bail!("this build has no SQLite store")
}

/// A snapshot of a store. Brings its tables to the current version first.
#[cfg_attr(
    not(feature = "sqlite"),
    expect(unused_variables, reason = "only files are opened as a server does")
)]
pub(crate) async fn snapshot(url: &StoreUrl, clock: &SystemClock) -> anyhow::Result<Box<dyn Snapshot>> {
    match url {
        #[cfg(feature = "sqlite")]
        StoreUrl::Sqlite(path) => {
            use windlass_stores::sqlite::{self, SqliteSnapshot};
            let store = open(url, clock, "windlass export", BodyPolicy::default()).await.map_err(|error| {
                if matches!(error.downcast_ref(), Some(sqlite::OpenError::Locked { .. })) {
                    return error.context("stop all servers first, so that nothing changes meanwhile");
                }
                error
            });
            Ok(Box::new(SqliteSnapshot::new(store?, path)?))
        }
        StoreUrl::Shared(address) => Ok(connect(address)?.snapshot().await?),
        _ => anyhow::bail!("{url} keeps nothing"),
    }
}

/// A connection past the servers of a database, to look at it; `None` for a file, which its lock keeps for one process.
pub(crate) async fn beside_servers(url: &StoreUrl) -> anyhow::Result<Option<Box<dyn Archive>>> {
    match url {
        StoreUrl::Shared(address) => Ok(Some(connect(address)?.to_look().await?)),
        _ => Ok(None),
    }
}

/// A connection past the servers of a database, to fill it.
pub(crate) async fn to_fill(url: &StoreUrl) -> anyhow::Result<Box<dyn Archive>> {
    match url {
        StoreUrl::Shared(address) => Ok(connect(address)?.to_fill().await?),
        _ => anyhow::bail!("{url} keeps nothing"),
    }
}

/// A store with less free space than this is in danger.
#[cfg(feature = "sqlite")]
const FREE_BYTES_MIN: u64 = 256 << 20;

/// Reads a whole store without changing it.
pub(crate) async fn examine(url: &StoreUrl) -> anyhow::Result<Diagnosis> {
    #[cfg(feature = "sqlite")]
    if let StoreUrl::Sqlite(path) = url {
        return examine_file(url, path);
    }
    // Opening it would upgrade older tables.
    let schema = schema(url).await.with_context(|| format!("cannot look at {url}"))?;
    anyhow::ensure!(
        !schema.is_older(),
        "{url} has the older format {}: start a server on it once",
        schema.found
    );
    let StoreUrl::Shared(address) = url else { anyhow::bail!("{url} keeps nothing that could be looked at") };
    let mut snapshot = connect(address)?.snapshot().await?;
    let servers = snapshot.store().servers().await?;
    let time = match snapshot.store().cluster() {
        Some(cluster) => cluster.time().await?,
        None => None,
    };
    let now = time.map_or(0, |time| time.0.unsigned_abs());
    let up = servers.iter().filter(|server| server.is_up(windlass_core::Millis(now)));
    let up: Vec<&str> = up.map(|server| &*server.address).collect();
    let found = windlass_store::examine(&mut *snapshot).await?;
    Ok(Diagnosis {
        store: url.to_string(),
        format: schema.found,
        file: None,
        opened_by: (!up.is_empty()).then(|| format!("by {}", up.join(", "))),
        active: found.active,
        ended: found.ended.into_iter().map(|(status, count)| (http::status(status), count)).collect(),
        flows: found.flows,
        open_alarms: found.open_alarms,
        problems: found.problems,
    })
}

/// Reads a file whole, without changing it.
#[cfg(feature = "sqlite")]
fn examine_file(url: &StoreUrl, path: &std::path::Path) -> anyhow::Result<Diagnosis> {
    let report = windlass_stores::sqlite::doctor(path)?;
    let file_system =
        rustix::fs::statvfs(path).context("the file system does not say how much space is left")?;
    let free_bytes = file_system.f_bavail.saturating_mul(file_system.f_frsize);
    let mut problems = report.problems;
    if free_bytes < FREE_BYTES_MIN {
        problems.push(format!("only {} MiB are left on the file system: make room", free_bytes >> 20));
    }
    Ok(Diagnosis {
        store: url.to_string(),
        format: report.format.into(),
        file: Some(FileDiagnosis {
            created_at: jiff::Timestamp::from_millisecond(report.created_at.0).ok(),
            opened: report.epoch,
            file_bytes: report.file_bytes,
            wal_bytes: report.wal_bytes,
            free_bytes,
        }),
        opened_by: report.opened_by,
        active: report.active,
        ended: report.ended.into_iter().map(|(status, count)| (http::status(status), count)).collect(),
        flows: report.flows,
        open_alarms: report.open_alarms,
        problems,
    })
}

/// A new key for signing tokens.
fn token_key() -> anyhow::Result<[u8; 32]> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).context("cannot get random bytes from the operating system")?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_urls() {
        assert_eq!("sqlite:a/b.db".parse::<StoreUrl>().unwrap(), StoreUrl::Sqlite("a/b.db".into()));
        assert_eq!("memory:".parse::<StoreUrl>().unwrap().to_string(), "memory:");
        for bad in ["", "sqlite:", "memory", "redis://h", "a.db"] {
            assert!(bad.parse::<StoreUrl>().unwrap_err().to_string().contains("sqlite:PATH"), "{bad}");
        }
        let error = "redis://me:secret@host/db".parse::<StoreUrl>().unwrap_err().to_string();
        assert!(!error.contains("secret") && error.contains("host/db"), "{error}");
        for url in [
            "mysql://me:secret@host/db",
            "mariadb://me:secret@host/db",
            "postgres://me:secret@host/db",
            "postgresql://host/db?user=me&password=secret",
            "postgresql://host/db;password=secret",
        ] {
            let shown = url.parse::<StoreUrl>().unwrap().to_string();
            assert!(!shown.contains("secret") && shown.contains("host/db"), "{shown}");
        }
        let shown = "postgres:host=db password=secret".parse::<StoreUrl>().unwrap().to_string();
        assert_eq!(shown, "postgres:…");
        for url in [
            "postgres://me:very@secret@host/db",
            "postgres://me:very?secret@host/db",
            "mysql://me:very/secret@host/db",
            "postgres://host/db?password=very@secret",
            "redis://me:very?secret@host/db",
            "host=db user=me password=very-secret",
            "Server=db;Pwd=very-secret",
            "me:very-secret@tcp(db:3306)/name",
            "oracle://host/db;password=very-secret",
        ] {
            let error = url.parse::<StoreUrl>().unwrap_err().to_string();
            assert!(!error.contains("secret") && !error.contains("very"), "{error}");
        }
    }
}
