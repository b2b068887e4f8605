//! Opening: from a URL to a database that is checked and has today's schema.

use std::{collections::HashMap, str::FromStr, time::Duration};

use mysql_async::{Conn, DriverError, Error, IoError, Opts, OptsBuilder, prelude::Queryable as _};
use thiserror::Error;
use tokio::time::timeout;

use super::{connection::Database, migrate::migrate};
use crate::rows::policy::CONNECT_MAX;

/// How long all of it may take, other servers that do the same included.
const OPEN_MAX: Duration = Duration::from_secs(150);

/// What a server must take as one packet: a row with the longest parameters, twice as long as text.
const PACKET_BYTES_MIN: u64 = 16 << 20;

/// Where the database is, and how to get there.
#[derive(Debug, Clone)]
pub struct MySqlOptions {
    options: Opts,
}

impl FromStr for MySqlOptions {
    type Err = OpenError;

    /// Reads `mysql://USER:PASSWORD@HOST:PORT/DATABASE`, or the same with `mariadb://`. With `?require_ssl=true` the
    /// connection is by TLS and the server must show who it is; `&verify_identity=false` and `&verify_ca=false` ask for
    /// less.
    fn from_str(url: &str) -> Result<Self, OpenError> {
        let url = match url.strip_prefix("mariadb://") {
            Some(rest) => format!("mysql://{rest}"),
            None => url.to_owned(),
        };
        // The error says what is wrong and has nothing of user and password in it.
        let options = Opts::from_url(&url).map_err(|error| OpenError::Url(error.to_string()))?;
        if options.db_name().is_none_or(str::is_empty) {
            return Err(OpenError::Url("it names no database: end it with /DATABASE".to_owned()));
        }
        let options = OptsBuilder::from_opts(options)
            // A socket would be another way to the server than the URL says.
            .prefer_socket(false)
            .tcp_nodelay(true)
            .tcp_keepalive(Some(Duration::from_secs(10)))
            // Values are never sent apart from their statements.
            .stmt_cache_size(0);
        Ok(Self { options: options.into() })
    }
}

impl MySqlOptions {
    /// Where it is, without anything secret.
    #[must_use]
    pub fn place(&self) -> String {
        let user = self.options.user().unwrap_or("?");
        let (host, port) = (self.options.ip_or_hostname(), self.options.tcp_port());
        format!("{user}@{host}:{port}/{}", self.options.db_name().unwrap_or("?"))
    }

    /// Makes a connection that is not in the pool.
    pub(super) async fn connect(&self) -> Result<Conn, OpenError> {
        let conn = timeout(CONNECT_MAX, Conn::new(self.options.clone())).await;
        conn.map_err(|_| silent(self))?.map_err(|error| OpenError::connection(self, &error))
    }
}

/// Why a database was not opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The URL is none.
    #[error(
        "it is no URL of a MySQL or MariaDB database: {0}; write mysql://USER:PASSWORD@HOST:PORT/DATABASE"
    )]
    Url(String),
    /// Nobody answers there, or not in time.
    #[error(
        "no MySQL or MariaDB server can be reached at {place}: {message}; see that it runs and listens there"
    )]
    Unreachable {
        /// Where.
        place: String,
        /// What the system says.
        message: String,
    },
    /// The server does not let us in.
    #[error("the server at {place} refuses: {message}; {advice}")]
    Refused {
        /// Where.
        place: String,
        /// What it says.
        message: String,
        /// What to do.
        advice: &'static str,
    },
    /// It is too old.
    #[error("the server at {place} has version {found}: MariaDB 10.6, MySQL 8.0 or newer is needed")]
    TooOld {
        /// Where.
        place: String,
        /// Its version.
        found: String,
    },
    /// It takes no writes.
    #[error(
        "the server at {place} takes no writes ({setting} is on): give the address of the primary server"
    )]
    ReadOnly {
        /// Where.
        place: String,
        /// The setting that says so.
        setting: String,
    },
    /// It speaks the protocol of MySQL and is another database.
    #[error(
        "the server at {place} is {found}, which does not lock rows as MySQL does: it ignores SKIP LOCKED or knows no row locks, so attempts would be handed out twice; use MySQL 8.0, MariaDB 10.6 or newer"
    )]
    Unsupported {
        /// Where.
        place: String,
        /// What it is.
        found: &'static str,
    },
    /// It is a node of a Galera cluster.
    #[error(
        "the server at {place} is a node of a Galera cluster (wsrep_on): rows that one node locks are not locked on the others, so two servers of windlass could hand out the same attempt; use a single primary server with replicas"
    )]
    Galera {
        /// Where.
        place: String,
    },
    /// It takes too short statements.
    #[error(
        "the server at {place} takes packets of {found} bytes, and {PACKET_BYTES_MIN} are needed: SET GLOBAL max_allowed_packet = 67108864, and the same in its configuration"
    )]
    Packets {
        /// Where.
        place: String,
        /// Its limit.
        found: u64,
    },
    /// A newer program made the schema.
    #[error(
        "the tables in the database are of version {found}, which servers read that know version {readable_from} or newer; this one knows {known}: use a newer version of windlass"
    )]
    Newer {
        /// Its version.
        found: i64,
        /// The lowest version that may work on it.
        readable_from: i64,
        /// The newest one known here.
        known: i64,
    },
    /// Another server makes the schema, and does not come to an end.
    #[error("another server has been making the tables for a minute: see what it does, then try again")]
    Locked,
    /// An import is filling it, or did not come to its end.
    #[error("an import into the database is under way or was broken off: wait for its end, or run it again")]
    Importing,
    /// The schema could not be made.
    #[error("the tables cannot be made: {message}; {advice}")]
    Migration {
        /// What the database says.
        message: String,
        /// What to do.
        advice: &'static str,
    },
    /// What is in it cannot be held on to.
    #[error("the database cannot be read as of one moment: {0}")]
    Snapshot(String),
    /// What it holds is not what was written.
    #[error("the database is damaged: {0}")]
    Damaged(String),
    /// The system gives no random bytes.
    #[error("the system gives no random bytes: {0}")]
    Random(String),
}

impl OpenError {
    fn connection(options: &MySqlOptions, error: &Error) -> Self {
        let place = options.place();
        match error {
            Error::Server(error) => {
                let advice = match error.code {
                    1045 | 1698 => "look at the user and the password",
                    // It is the same whether the database is there or not.
                    1044 => "create the database if it is not there, and GRANT ALL ON it to this user",
                    1049 => "create the database first",
                    1130 => "let this user connect from this machine",
                    1040 | 1203 | 1226 => "let it have more connections (max_connections)",
                    _ => "see the server's log",
                };
                Self::Refused { place, message: error.message.clone(), advice }
            }
            Error::Driver(error @ DriverError::NoClientSslFlagFromServer) => {
                let advice = "give the server a certificate, or leave require_ssl out";
                Self::Refused { place, message: error.to_string(), advice }
            }
            Error::Io(IoError::Tls(error)) => {
                let advice = "look at the server's certificate, and at require_ssl and verify_ca in the URL";
                Self::Refused { place, message: error.to_string(), advice }
            }
            other => Self::Unreachable { place, message: other.to_string() },
        }
    }

    pub(super) fn migration(error: &Error) -> Self {
        let advice = match error {
            Error::Server(error) if [1044, 1142, 1143, 1227, 1370].contains(&error.code) => {
                "GRANT CREATE, INDEX, CREATE ROUTINE, ALTER ROUTINE, EXECUTE, SELECT, INSERT, UPDATE, DELETE ON the database to this user"
            }
            Error::Server(error) if [1054, 1146].contains(&error.code) => {
                "something else has tables with these names: give windlass a database of its own"
            }
            _ => "see the server's log",
        };
        let message = match error {
            Error::Server(error) => error.message.clone(),
            other => other.to_string(),
        };
        Self::Migration { message, advice }
    }
}

/// A database that was opened.
pub(super) struct Opened {
    pub(super) database: Database,
    pub(super) token_key: [u8; 32],
}

/// Checks the database and brings its schema to today's version.
pub(super) async fn open(options: &MySqlOptions) -> Result<Opened, OpenError> {
    let opened = timeout(OPEN_MAX, open_in_time(options)).await;
    opened.unwrap_or_else(|_| Err(silent(options)))
}

fn silent(options: &MySqlOptions) -> OpenError {
    OpenError::Unreachable { place: options.place(), message: "it does not answer".to_owned() }
}

async fn open_in_time(options: &MySqlOptions) -> Result<Opened, OpenError> {
    let failed = |error: Error| OpenError::connection(options, &error);
    let mut conn = options.connect().await?;
    let settings: Vec<(String, String)> = conn
        .query(
            "SHOW VARIABLES WHERE variable_name IN ('version', 'version_comment', 'read_only', 'super_read_only',
             'innodb_read_only', 'wsrep_on', 'max_allowed_packet', 'tidb_txn_mode')",
        )
        .await
        .map_err(failed)?;
    let is_mariadb = check(&settings.into_iter().collect(), options)?;
    let mut fresh_key = [0; 32];
    getrandom::fill(&mut fresh_key).map_err(|error| OpenError::Random(error.to_string()))?;
    let token_key = migrate(&mut conn, fresh_key).await?;
    // It has told all that is wanted of it.
    let _ = conn.disconnect().await;
    Ok(Opened { database: Database::new(options.options.clone(), is_mariadb), token_key })
}

/// Whether it is a server that we can work on. Tells whether it is MariaDB.
fn check(settings: &HashMap<String, String>, options: &MySqlOptions) -> Result<bool, OpenError> {
    let place = options.place();
    let get = |name: &str| settings.get(name).map_or("", String::as_str);
    let is_on = |name: &str| matches!(get(name).to_ascii_uppercase().as_str(), "ON" | "1" | "YES");
    let version = get("version");
    if let Some(found) = other_engine(version, get("version_comment"), settings.contains_key("tidb_txn_mode"))
    {
        return Err(OpenError::Unsupported { place, found });
    }
    let is_mariadb = version.to_ascii_lowercase().contains("mariadb");
    let least = if is_mariadb { (10, 6) } else { (8, 0) };
    if numbers(version) < least {
        return Err(OpenError::TooOld { place, found: version.to_owned() });
    }
    for setting in ["read_only", "super_read_only", "innodb_read_only"] {
        if is_on(setting) {
            return Err(OpenError::ReadOnly { place, setting: setting.to_owned() });
        }
    }
    if is_on("wsrep_on") {
        return Err(OpenError::Galera { place });
    }
    let found = get("max_allowed_packet").parse().unwrap_or(u64::MAX);
    if found < PACKET_BYTES_MIN {
        return Err(OpenError::Packets { place, found });
    }
    Ok(is_mariadb)
}

/// Databases that speak the protocol of MySQL and ignore `SKIP LOCKED`, or have no row locks: a part of what they call
/// themselves, in lower case, and their names.
const OTHER_ENGINES: [(&str, &str); 8] = [
    ("tidb", "TiDB"),
    ("oceanbase", "OceanBase"),
    ("polardb-x", "PolarDB-X"),
    ("vitess", "Vitess"),
    ("singlestore", "SingleStore"),
    ("memsql", "SingleStore"),
    ("starrocks", "StarRocks"),
    ("doris", "Doris"),
];

/// The other database that this is, if it is one. TiDB may be set to hide behind a version of MySQL, but has variables of
/// its own.
fn other_engine(version: &str, comment: &str, has_tidb_variables: bool) -> Option<&'static str> {
    let says = format!("{version} {comment}").to_ascii_lowercase();
    let known = OTHER_ENGINES.iter().find(|(part, _)| says.contains(part)).map(|(_, name)| *name);
    known.or(has_tidb_variables.then_some("TiDB"))
}

/// The first two numbers of a version.
fn numbers(version: &str) -> (u32, u32) {
    let mut numbers = version.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(settings: &[(&str, &str)]) -> String {
        let mut all: HashMap<String, String> = [
            ("version", "10.11.6-MariaDB-1"),
            ("read_only", "OFF"),
            ("wsrep_on", "OFF"),
            ("max_allowed_packet", "16777216"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        all.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let options = "mysql://me:secret@db:3307/wind".parse().unwrap();
        check(&all, &options).map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn servers_that_cannot_do_it_are_refused_with_the_reason() {
        assert_eq!(refusal(&[]), "");
        assert_eq!(refusal(&[("version", "8.4.0")]), "");
        for (setting, value, reason) in [
            ("version", "10.5.9-MariaDB", "10.6"),
            ("version", "5.7.44-log", "8.0"),
            ("read_only", "ON", "read_only is on"),
            ("innodb_read_only", "1", "innodb_read_only is on"),
            ("wsrep_on", "ON", "Galera"),
            ("version", "8.0.11-TiDB-v8.5.1", "is TiDB, which"),
            ("version_comment", "TiDB Server (Apache License 2.0)", "is TiDB, which"),
            ("tidb_txn_mode", "pessimistic", "is TiDB, which"),
            ("version", "5.7.25-OceanBase-v4.2.1", "is OceanBase, which"),
            ("version", "8.0.30-Vitess", "is Vitess, which"),
            ("max_allowed_packet", "1048576", "max_allowed_packet"),
        ] {
            let refusal = refusal(&[(setting, value)]);
            assert!(refusal.contains(reason) && refusal.contains("me@db:3307/wind"), "{refusal}");
            assert!(!refusal.contains("secret"), "{refusal}");
        }
    }

    #[test]
    fn urls_are_read() {
        let place = |url: &str| url.parse::<MySqlOptions>().map(|options| options.place());
        assert_eq!(place("mysql://root@127.0.0.1/x").unwrap(), "root@127.0.0.1:3306/x");
        assert_eq!(place("mariadb://a:b@h:1/x?require_ssl=true").unwrap(), "a@h:1/x");
        for url in
            ["mysql://root:secret@h", "postgres://root:secret@h/x", "secret", "mysql://a:secret@h/x?secre=1"]
        {
            let error = place(url).unwrap_err().to_string();
            assert!(error.contains("mysql://USER:PASSWORD@HOST:PORT/DATABASE"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
