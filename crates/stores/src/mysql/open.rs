//! Opening: from a URL to a database that is checked and has today's schema.

use std::{collections::HashMap, str::FromStr, time::Duration};

use mysql_async::{Conn, DriverError, Error, IoError, Opts, OptsBuilder, prelude::Queryable as _};
use tokio::time::timeout;
use windlass_tls::UrlError;

use super::{
    connection::{Connection, Database},
    migrate::migrate,
};
use crate::{
    OpenError,
    rows::{Link as _, policy::CONNECT_MAX, random_bytes},
};

/// How long all of it may take, other servers that do the same included.
const OPEN_MAX: Duration = Duration::from_secs(150);

/// Why a Galera cluster is refused.
const GALERA: &str = "is a node of a Galera cluster (wsrep_on): rows that one node locks are not locked on the others, so two \
    servers of windlass could claim the same attempt; use a single primary server with replicas";

/// What a server must take as one packet: a row with the longest parameters, twice as long as text.
const PACKET_BYTES_MIN: u64 = 16 << 20;

/// Where the database is, and how to get there.
#[derive(Debug, Clone)]
pub struct MySqlOptions {
    options: Opts,
}

impl FromStr for MySqlOptions {
    type Err = OpenError;

    /// Reads `mysql://USER:PASSWORD@HOST:PORT/DATABASE`, or the same with `mariadb://`. With `?require_ssl=true`, or a file
    /// with CA certificates, `?cacert=FILE`, the connection uses TLS and the server must show who it is;
    /// `&verify_identity=false` and `&verify_ca=false` ask for less. `&cert=FILE&key=FILE` is what the client shows.
    fn from_str(url: &str) -> Result<Self, OpenError> {
        let options = windlass_tls::mysql_options(url).map_err(|error| match error {
            UrlError::Invalid(why) => wrong_url(why),
            UrlError::Tls(error) => OpenError::Tls(error.to_string()),
        })?;
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

fn wrong_url(why: String) -> OpenError {
    let example = "mysql://USER:PASSWORD@HOST:PORT/DATABASE";
    OpenError::Url { product: Connection::PRODUCT, why, example }
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
        conn.map_err(|_| silent(self))?.map_err(|error| refused(self, &error))
    }
}

/// Why the server at this address was not connected to.
fn refused(options: &MySqlOptions, error: &Error) -> OpenError {
    let product = Connection::PRODUCT;
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
            OpenError::Refused { product, place, message: error.message.clone(), advice }
        }
        Error::Driver(error @ DriverError::NoClientSslFlagFromServer) => {
            let advice = "give the server a certificate, or leave require_ssl and cacert out of the URL";
            OpenError::Refused { product, place, message: error.to_string(), advice }
        }
        // The library hides some refusals in errors of the connection.
        error if matches!(error, Error::Io(IoError::Tls(_))) || windlass_tls::refused(error).is_some() => {
            let advice = "look at the server's certificate, and at cacert, cert and key in the URL";
            OpenError::Refused { product, place, message: error.to_string(), advice }
        }
        other => OpenError::Unreachable { product, place, message: other.to_string() },
    }
}

/// Why the tables cannot be made.
pub(super) fn migration(error: &Error) -> OpenError {
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
    OpenError::Migration { message, advice }
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
    OpenError::Unreachable {
        product: Connection::PRODUCT,
        place: options.place(),
        message: "it does not answer".to_owned(),
    }
}

async fn open_in_time(options: &MySqlOptions) -> Result<Opened, OpenError> {
    let failed = |error: Error| refused(options, &error);
    let mut conn = options.connect().await?;
    let settings: Vec<(String, String)> = conn
        .query(
            "SHOW VARIABLES WHERE variable_name IN ('version', 'version_comment', 'read_only', 'super_read_only',
             'innodb_read_only', 'wsrep_on', 'max_allowed_packet', 'tidb_txn_mode')",
        )
        .await
        .map_err(failed)?;
    let is_mariadb = check(&settings.into_iter().collect(), options)?;
    let token_key = migrate(&mut conn, random_bytes()?).await?;
    // It has returned all that is wanted of it.
    let _ = conn.disconnect().await;
    Ok(Opened { database: Database::new(options.options.clone(), is_mariadb), token_key })
}

/// Whether it is a server that we can work on. Returns whether it is MariaDB.
fn check(settings: &HashMap<String, String>, options: &MySqlOptions) -> Result<bool, OpenError> {
    let unusable = |why: String| Err(OpenError::Unusable { place: options.place(), why });
    let get = |name: &str| settings.get(name).map_or("", String::as_str);
    let is_on = |name: &str| matches!(get(name).to_ascii_uppercase().as_str(), "ON" | "1" | "YES");
    let version = get("version");
    if let Some(found) = other_engine(version, get("version_comment"), settings.contains_key("tidb_txn_mode"))
    {
        return unusable(format!(
            "is {found}, which does not lock rows as MySQL does: it ignores SKIP LOCKED or has no row locks, so attempts would be claimed twice; use MySQL 8.0, MariaDB 10.6 or newer"
        ));
    }
    let is_mariadb = version.to_ascii_lowercase().contains("mariadb");
    let least = if is_mariadb { (10, 6) } else { (8, 0) };
    if numbers(version) < least {
        return unusable(format!("has version {version}: MariaDB 10.6, MySQL 8.0 or newer is needed"));
    }
    for setting in ["read_only", "super_read_only", "innodb_read_only"] {
        if is_on(setting) {
            return unusable(format!(
                "takes no writes ({setting} is on): give the address of the primary server"
            ));
        }
    }
    if is_on("wsrep_on") {
        return unusable(GALERA.to_owned());
    }
    let found = get("max_allowed_packet").parse().unwrap_or(u64::MAX);
    if found < PACKET_BYTES_MIN {
        return unusable(format!(
            "takes packets of {found} bytes, and {PACKET_BYTES_MIN} are needed: SET GLOBAL max_allowed_packet = 67108864, and the same in its configuration"
        ));
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
