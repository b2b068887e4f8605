//! What cannot be opened says why, and never a password.

use windlass_store::{Store as _, StoreError};
use windlass_stores::OpenError;
use windlass_testkit::{Postgres, PostgresProduct, Product as _, SqlProduct as _, certificate};

use super::{database, open};

/// A URL of the same database for somebody else.
fn url_of(url: &str, user: &str) -> String {
    url.replace("postgres@", user)
}

fn refusal(url: &str) -> String {
    let error = open(url).expect_err("it is refused");
    let text = error.to_string();
    assert!(!text.contains("secret"), "{text}");
    text
}

#[test]
fn what_is_no_url_of_a_database_is_told_so() {
    for (url, why) in [
        ("postgres://user:secret@127.0.0.1:5432", "it names no database"),
        ("postgres://user:secret@127.0.0.1:5432/", "it names no database"),
        ("postgres:///windlass", "it names no host"),
        ("postgres://user:secret@127.0.0.1:none/windlass", "invalid value for option `port`"),
        ("postgres://user:secret@127.0.0.1/windlass?no_such=1", "unknown option"),
    ] {
        let refusal = refusal(url);
        assert!(refusal.contains(why) && refusal.contains("postgres://USER:PASSWORD@"), "{refusal}");
    }
}

#[test]
fn whoever_may_not_is_told_what_to_do() {
    let Some(database) = database() else { return };
    let (url, name) = (database.url(), database.name());
    let nobody = refusal(&url_of(&url, "nobody_here:secret@"));
    assert!(nobody.contains("look at the user, the password"), "{nobody}");

    let user = format!("user_{name}");
    database.ask(&format!("create role {user} login password 'secret'")).unwrap();
    database.ask(&format!("revoke connect on database {name} from public")).unwrap();
    database.ask("revoke create on schema public from public").unwrap();
    let theirs = url_of(&url, &format!("{user}:secret@"));
    let wrong = refusal(&url_of(&url, &format!("{user}:secret_of_another@")));
    assert!(wrong.contains("look at the user, the password"), "{wrong}");
    assert!(refusal(&theirs).contains("GRANT CONNECT"), "{}", refusal(&theirs));
    database.ask(&format!("grant connect on database {name} to {user}")).unwrap();
    assert!(refusal(&theirs).contains("GRANT CREATE"), "{}", refusal(&theirs));
    database.ask(&format!("grant create on schema public to {user}")).unwrap();
    assert!(open(&theirs).is_ok());

    let gone = refusal(&url.replace(name, "no_such_database"));
    assert!(gone.contains("create the database first"), "{gone}");
}

#[test]
fn a_schema_of_a_newer_version_is_left_alone() {
    let Some(database) = database() else { return };
    open(&database.url()).unwrap();
    // A newer one that this version may still work on.
    database.ask("update windlass_meta set schema_version = 8").unwrap();
    open(&database.url()).unwrap();
    database.ask("update windlass_meta set readable_from = 7").unwrap();
    let error = open(&database.url()).err().unwrap();
    assert!(matches!(error, OpenError::Newer { found: 8, readable_from: 7, .. }), "{error}");
    assert_eq!(database.ask("select schema_version from windlass_meta").unwrap(), "8");
}

#[test]
fn tables_of_something_else_are_left_alone() {
    let Some(database) = database() else { return };
    database.ask("create table windlass_task (id int)").unwrap();
    let refusal = refusal(&database.url());
    assert!(refusal.contains("something else has tables with these names"), "{refusal}");
    assert_eq!(database.ask("select to_regclass('windlass_meta') is null").unwrap(), "t");
}

#[test]
fn the_key_of_tokens_stays_the_same_and_servers_may_start_at_once() {
    let Some(database) = database() else { return };
    let url = database.url();
    let open = || {
        let url = url.clone();
        std::thread::spawn(move || open(&url).unwrap().token_key())
    };
    let keys: Vec<[u8; 32]> = [open(), open(), open()].map(|opening| opening.join().unwrap()).into();
    assert!(keys.iter().all(|key| *key == keys[0] && *key != [0; 32]));
}

#[test]
fn a_database_that_takes_no_writes_is_no_store() {
    let Some(database) = database() else { return };
    let name = database.name();
    let store = open(&database.url()).unwrap();
    let read_only = |on| format!("alter database {name} set default_transaction_read_only = {on}");
    database.ask(&read_only("on")).unwrap();
    assert!(refusal(&database.url()).contains("its transactions are read-only"));

    // One that was opened before says so as well, and writes again once it may.
    let own = "select count(pg_terminate_backend(pid)) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid()";
    database.ask(own).unwrap();
    let probe = || {
        super::wait({
            let store = store.clone();
            async move { store.commit(vec![windlass_store::Change::Probe]).await }
        })
    };
    let error = probe().unwrap_err();
    assert!(matches!(&error, StoreError::Unavailable(why) if why.contains("read-only")), "{error}");
    let off = format!("set transaction read write; {}", read_only("off"));
    database.ask(&off).unwrap();
    probe().unwrap();
}

#[test]
fn a_replica_is_no_store_until_it_is_promoted() {
    let Some(server) = Postgres::start_with(PostgresProduct::QUICK).unwrap() else { return };
    let database = server.database().unwrap();
    open(&database.url()).unwrap();
    server.stop().unwrap();
    let refused = refusal(&database.url());
    assert!(refused.contains("can be reached") && refused.contains(&server.port().to_string()), "{refused}");

    std::fs::write(server.directory().join("data/standby.signal"), "").unwrap();
    server.restart().unwrap();
    let refused = refusal(&database.url());
    assert!(refused.contains("the server is a replica") && refused.contains("primary"), "{refused}");
    server.ask(PostgresProduct::DATABASE, "select pg_promote()").unwrap();
    open(&database.url()).unwrap();
}

#[test]
fn a_server_without_tls_is_told_from_one_that_is_not_there() {
    let Some(database) = database() else { return };
    let refusal = refusal(&format!("{}?sslmode=require", database.url()));
    assert!(refusal.contains("refuses") && refusal.contains("ssl = on"), "{refusal}");
}

/// TLS: the server certificate is verified, and the server requires a client certificate.
#[test]
fn certificates_of_servers_and_clients_are_checked() {
    let folder = certificate::folder();
    let file = |name: &str| folder.path().join(name).display().to_string();
    // The server takes no key that others can read.
    certificate::private(&folder.path().join("server.key"), PostgresProduct::USER);
    let settings = [
        "ssl=on".to_owned(),
        format!("ssl_cert_file={}", file("server.pem")),
        format!("ssl_key_file={}", file("server.key")),
        format!("ssl_ca_file={}", file("authority.pem")),
    ];
    let mut settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    settings.extend(PostgresProduct::QUICK);
    let Some(server) = Postgres::start_with(&settings).unwrap() else { return };
    let database = server.database().unwrap();
    database.ask("create role client login superuser").unwrap();
    std::fs::write(
        server.directory().join("data/pg_hba.conf"),
        "host all postgres 127.0.0.1/32 trust\nhostssl all client 127.0.0.1/32 cert\n",
    )
    .unwrap();
    database.ask("select pg_reload_conf()").unwrap();

    let url = database.url().replace("postgres@127.0.0.1", "client@localhost");
    let url = |parameters: &str| format!("{url}?sslmode=verify-full{parameters}");
    let authority = format!("&sslrootcert={}", file("authority.pem"));
    let with = |name: &str| {
        format!(
            "{authority}&sslcert={}&sslkey={}",
            file(&format!("{name}.pem")),
            file(&format!("{name}.key"))
        )
    };
    open(&url(&with("client"))).unwrap();
    for (url, part) in [
        (url(&with("client").replace(&authority, "")), "UnknownIssuer"),
        (url(&with("client")).replace("@localhost", "@127.0.0.1"), "certificate"),
        (url(&authority), "certificate"),
        (url(&with("stranger")), "UnknownCA"),
        (url(&with("missing")), "missing.key"),
        (url(&format!("{authority}&sslcert=/secret")), "sslcert and sslkey need each other"),
    ] {
        let refusal = refusal(&url);
        assert!(refusal.contains(part), "{url}: {refusal}");
    }
}

#[cfg(feature = "sqlite")]
#[test]
fn a_database_of_version_1_goes_on() {
    let Some(database) = database() else { return };
    database.ask(include_str!("../../../src/postgres/migrations/0001.sql")).unwrap();
    database.ask(include_str!("../fixtures/postgres-1.sql")).unwrap();
    let store = open(&database.url()).unwrap();
    assert_eq!(database.ask("select schema_version from windlass_meta").unwrap(), "6");
    crate::outgrown::goes_on(&*store);
}
