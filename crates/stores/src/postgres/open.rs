//! Opening: from a URL to a database that is checked and has today's schema.

use std::{
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use tokio_postgres::{
    Client, Config,
    config::{Host, SslMode},
    error::SqlState,
};
use windlass_tls::{ClientFiles, Names};

use super::{
    connection::{Connection, Database, SETTINGS, SNAPSHOT},
    error::describe,
    migrate::migrate,
    tls::{self, Tls},
};
use crate::{
    OpenError,
    rows::{
        Link as _, SNAPSHOT_LOST,
        policy::{CONNECT_MAX, CONNECTIONS_MAX, STATEMENT_MAX, WAIT_MAX},
        random_bytes,
    },
};

/// What to do about a server that takes no writes.
const PRIMARY: &str = "give the address of the primary server";

/// The parameters of libpq that name files.
const FILES: Names = ["sslrootcert", "sslcert", "sslkey"];

/// The name of our connections, as the database lists them.
const APPLICATION_NAME: &str = "windlass";

/// Where the database is, and how to get there.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    config: Config,
    files: ClientFiles,
    verify: bool,
    /// Connections at most.
    pub connections: usize,
    /// How long a statement may take.
    pub statement_max: Duration,
}

impl FromStr for PostgresOptions {
    type Err = OpenError;

    /// Reads `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, with the parameters that libpq knows; of those about TLS
    /// `sslmode`, `sslrootcert`, `sslcert` and `sslkey`.
    fn from_str(url: &str) -> Result<Self, OpenError> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (files, mut parameters) = ClientFiles::split(query, FILES).map_err(wrong_url)?;
        let mut verify = false;
        for parameter in &mut parameters {
            if ["sslmode=verify-full", "sslmode=verify-ca"].contains(parameter) {
                verify = true;
                *parameter = "sslmode=require";
            }
        }
        let url =
            if parameters.is_empty() { base.to_owned() } else { format!("{base}?{}", parameters.join("&")) };
        // The error says what is wrong and has nothing of the URL in it.
        let mut config: Config =
            url.parse().map_err(|error: tokio_postgres::Error| wrong_url(describe(&error)))?;
        if config.get_dbname().is_none_or(str::is_empty) {
            return Err(wrong_url("it names no database: end it with /DATABASE".to_owned()));
        }
        if config.get_hosts().is_empty() {
            return Err(wrong_url("it names no host".to_owned()));
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_MAX);
        }
        if config.get_application_name().is_none() {
            config.application_name(APPLICATION_NAME);
        }
        config.keepalives_idle(Duration::from_secs(10)).keepalives_interval(Duration::from_secs(5));
        config.keepalives_retries(3).tcp_user_timeout(Duration::from_secs(15));
        verify |= files.authorities.is_some() && config.get_ssl_mode() != SslMode::Disable;
        Ok(Self { config, files, verify, connections: CONNECTIONS_MAX, statement_max: STATEMENT_MAX })
    }
}

fn wrong_url(why: String) -> OpenError {
    let example = "postgres://USER:PASSWORD@HOST:PORT/DATABASE";
    OpenError::Url { product: Connection::PRODUCT, why, example }
}

impl PostgresOptions {
    /// Where it is, without anything secret.
    #[must_use]
    pub fn place(&self) -> String {
        let ports = self.config.get_ports();
        let hosts = self.config.get_hosts().iter().enumerate().map(|(index, host)| {
            let port = ports.get(index).or(ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(host) => format!("{host}:{port}"),
                Host::Unix(path) => format!("{}:{port}", path.display()),
            }
        });
        let hosts: Vec<String> = hosts.collect();
        let user = self.config.get_user().unwrap_or("?");
        format!("{user}@{}/{}", hosts.join(","), self.config.get_dbname().unwrap_or("?"))
    }

    /// Makes a connection that is not in the pool.
    pub(super) async fn connect(
        &self,
    ) -> Result<(Client, tokio_postgres::Connection<tokio_postgres::Socket, tls::Stream>), OpenError> {
        let connected = self.config.connect(self.tls()?).await;
        connected.map_err(|error| refused(self, &error))
    }

    fn tls(&self) -> Result<Tls, OpenError> {
        tls::connector(self.verify, &self.files).map_err(|error| OpenError::Tls(error.to_string()))
    }
}

/// Why the server at this address was not connected to.
fn refused(options: &PostgresOptions, error: &tokio_postgres::Error) -> OpenError {
    let product = Connection::PRODUCT;
    let (place, message) = (options.place(), describe(error));
    let advice = match error.code().map(SqlState::code) {
        Some("28P01" | "28000") => "look at the user, the password and pg_hba.conf",
        Some("3D000") => "create the database first",
        Some("42501") => "GRANT CONNECT on the database to this user",
        Some("53300") => "let it have more connections (max_connections)",
        Some("57P03") => "it is starting or stopping: try again",
        Some(_) => "see the server's log",
        None if message.contains("server does not support TLS") => {
            "give the server a certificate (ssl = on), or leave sslmode out of the URL"
        }
        None if message.contains("TLS handshake") => {
            "look at the server's certificate, and at sslmode, sslrootcert, sslcert and sslkey in the URL"
        }
        None => return OpenError::Unreachable { product, place, message },
    };
    OpenError::Refused { product, place, message, advice }
}

/// Why the tables cannot be made.
pub(super) fn migration(error: &tokio_postgres::Error) -> OpenError {
    let advice = match error.code() {
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            "GRANT CREATE, USAGE on the schema to this user, or let its owner start windlass once"
        }
        Some(&SqlState::DUPLICATE_TABLE) => {
            "something else has tables with these names: give windlass a database or schema of its own"
        }
        _ => "see the server's log",
    };
    OpenError::Migration { message: describe(error), advice }
}

/// A database that was opened.
pub(super) struct Opened {
    pub(super) database: Database,
    pub(super) token_key: [u8; 32],
}

/// Checks the database, brings its schema to today's version, and gives a pool of connections to it.
pub(super) async fn open(options: &PostgresOptions) -> Result<Opened, OpenError> {
    let (mut client, connection) = options.connect().await?;
    let driver = tokio::spawn(connection);
    let checked = check(&mut client, options).await;
    drop(client);
    // It ends with its client.
    let _ = driver.await;
    let database = database(options, options.connections, Hold::Nothing)?;
    Ok(Opened { database, token_key: checked? })
}

/// The database as it is when its one connection is made. Nothing can be written, and when the connection is lost so is
/// that moment.
pub(super) fn snapshot(options: &PostgresOptions) -> Result<Database, OpenError> {
    database(options, 1, Hold::OneMoment)
}

/// What connections hold on to, from one use to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    Nothing,
    /// What the database was when the first one was made; so there is no second one.
    OneMoment,
}

fn database(options: &PostgresOptions, connections: usize, hold: Hold) -> Result<Database, OpenError> {
    let manager = Manager::from_config(
        options.config.clone(),
        options.tls()?,
        ManagerConfig { recycling_method: RecyclingMethod::Fast },
    );
    let settings = format!("SET statement_timeout = {}; {SETTINGS}", options.statement_max.as_millis());
    let connected = Arc::new(AtomicU64::new(0));
    let connecting = connected.clone();
    let set = Hook::async_fn(move |client: &mut deadpool_postgres::ClientWrapper, _| {
        let settings = settings.clone();
        let is_lost = connecting.fetch_add(1, Ordering::Relaxed) > 0 && hold == Hold::OneMoment;
        Box::pin(async move {
            if is_lost {
                return Err(HookError::message(SNAPSHOT_LOST));
            }
            client.batch_execute(&settings).await.map_err(HookError::Backend)?;
            if hold == Hold::OneMoment {
                client.batch_execute(SNAPSHOT).await.map_err(HookError::Backend)?;
            }
            Ok(())
        })
    });
    let pool = Pool::builder(manager)
        .max_size(connections)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(WAIT_MAX))
        .create_timeout(Some(CONNECT_MAX * 2))
        .post_create(set)
        .build();
    let pool = pool.map_err(|error| OpenError::Damaged(error.to_string()))?;
    Ok(Database::new(pool, options.statement_max, connected))
}

async fn check(client: &mut Client, options: &PostgresOptions) -> Result<[u8; 32], OpenError> {
    let unusable = |why: String| Err(OpenError::Unusable { place: options.place(), why });
    let failed = |error: tokio_postgres::Error| refused(options, &error);
    client.batch_execute("SET statement_timeout = '60s'; SET lock_timeout = '30s'").await.map_err(failed)?;
    let sql = "SELECT current_setting('server_version_num')::int4, current_setting('server_version'),
        pg_is_in_recovery(), current_setting('transaction_read_only') = 'on',
        current_setting('server_encoding'), version()";
    let row = client.query_one(sql, &[]).await.map_err(failed)?;
    let get = |column: usize| row.try_get::<_, String>(column).map_err(failed);
    if let Some(found) = other_engine(&get(5)?) {
        return unusable(format!(
            "is {found}, which does not lock rows as PostgreSQL does, so attempts could be claimed twice; use PostgreSQL 13 or newer"
        ));
    }
    if row.try_get::<_, i32>(0).map_err(failed)? < 130_000 {
        return unusable(format!("has version {}: PostgreSQL 13 or newer is needed", get(1)?));
    }
    if row.try_get(2).map_err(failed)? {
        return unusable(format!("takes no writes (the server is a replica): {PRIMARY}"));
    }
    if row.try_get(3).map_err(failed)? {
        return unusable(format!("takes no writes (its transactions are read-only): {PRIMARY}"));
    }
    if get(4)? != "UTF8" {
        return unusable(format!("has encoding {}: make a database with ENCODING 'UTF8'", get(4)?));
    }
    migrate(client, random_bytes()?).await
}

/// Databases that speak the protocol of PostgreSQL, by a part of what `version()` returns in lower case, and their names.
const OTHER_ENGINES: [(&str, &str); 5] = [
    ("cockroachdb", "CockroachDB"),
    ("-yb-", "YugabyteDB"),
    ("redshift", "Amazon Redshift"),
    ("greenplum", "Greenplum"),
    ("materialize", "Materialize"),
];

fn other_engine(version: &str) -> Option<&'static str> {
    let version = version.to_ascii_lowercase();
    OTHER_ENGINES.iter().find(|(part, _)| version.contains(part)).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_databases_are_known_by_their_version() {
        let postgres =
            "PostgreSQL 16.4 (Debian 16.4-1) on x86_64-pc-linux-gnu, compiled by gcc 12.2.0, 64-bit";
        assert_eq!(other_engine(postgres), None);
        for (version, name) in [
            ("CockroachDB CCL v22.1.0 (x86_64-pc-linux-gnu)", "CockroachDB"),
            ("PostgreSQL 11.2-YB-2.20.1.0-b0 on x86_64-pc-linux-gnu", "YugabyteDB"),
            ("PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC, Redshift 1.0.2", "Amazon Redshift"),
        ] {
            assert_eq!(other_engine(version), Some(name), "{version}");
        }
    }
}
