//! What cannot be opened says why, and never a password.

use windlass_stores::OpenError;
use windlass_testkit::{MariaDb, MariaDbProduct, Product as _, SqlProduct as _, certificate};

use super::{database, open};

/// A URL of the same database for somebody else.
fn url_of(url: &str, user: &str) -> String {
    url.replace("root@", user)
}

fn refusal(url: &str) -> String {
    let error = open(url).expect_err("it is refused");
    let text = error.to_string();
    assert!(!text.contains("secret"), "{text}");
    text
}

#[test]
fn whoever_may_not_is_told_what_to_do() {
    let Some(database) = database() else { return };
    let (url, name) = (database.url(), database.name());
    let nobody = url_of(&url, "nobody_here:secret@");
    assert!(refusal(&nobody).contains("look at the user and the password"), "{}", refusal(&nobody));

    database.ask(&format!("create user 'reader_{name}'@'127.0.0.1' identified by 'secret'")).unwrap();
    let reader = url_of(&url, &format!("reader_{name}:secret@"));
    for url in [&reader, &reader.replace(&format!("/{name}"), "/no_such_database")] {
        let refusal = refusal(url);
        assert!(refusal.contains("create the database") && refusal.contains("GRANT"), "{refusal}");
    }
    database.ask(&format!("grant select on {name}.* to 'reader_{name}'@'127.0.0.1'")).unwrap();
    assert!(refusal(&reader).contains("the tables cannot be made"), "{}", refusal(&reader));
    database.ask(&format!("grant all on {name}.* to 'reader_{name}'@'127.0.0.1'")).unwrap();
    assert!(open(&reader).is_ok());

    let gone = url.replace(name, "no_such_database");
    assert!(refusal(&gone).contains("create the database first"), "{}", refusal(&gone));
    database.ask(&format!("drop user 'reader_{name}'@'127.0.0.1'")).unwrap();
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
fn the_key_of_tokens_stays_the_same_and_servers_may_start_at_once() {
    let Some(database) = database() else { return };
    let url = database.url();
    let open = || {
        let url = url.clone();
        std::thread::spawn(move || windlass_store::Store::token_key(&*open(&url).unwrap()))
    };
    let keys: Vec<[u8; 32]> = [open(), open(), open()].map(|opening| opening.join().unwrap()).into();
    assert!(keys.iter().all(|key| *key == keys[0] && *key != [0; 32]));
}

#[test]
fn a_server_that_takes_no_writes_is_no_store() {
    let Some(server) = MariaDb::start_with(MariaDbProduct::QUICK).unwrap() else { return };
    let database = server.database().unwrap();
    open(&database.url()).unwrap();
    server.ask(MariaDbProduct::DATABASE, "set global read_only = 1").unwrap();
    assert!(refusal(&database.url()).contains("read_only is on"));
    server
        .ask(MariaDbProduct::DATABASE, "set global read_only = 0, global max_allowed_packet = 1048576")
        .unwrap();
    assert!(refusal(&database.url()).contains("max_allowed_packet"));
    server.stop().unwrap();
    let refusal = refusal(&database.url());
    assert!(refusal.contains("can be reached") && refusal.contains(&server.port().to_string()), "{refusal}");
}

#[cfg(feature = "sqlite")]
#[test]
fn a_database_of_version_1_goes_on() {
    let Some(database) = database() else { return };
    database.ask(include_str!("../../../src/mysql/migrations/0001.sql")).unwrap();
    database.ask(include_str!("../fixtures/mysql-1.sql")).unwrap();
    let store = open(&database.url()).unwrap();
    assert_eq!(database.ask("select schema_version from windlass_meta").unwrap(), "6");
    crate::outgrown::goes_on(&*store);
}

/// TLS: the server certificate is verified, and the server requires a client certificate.
#[test]
fn certificates_of_servers_and_clients_are_checked() {
    let folder = certificate::folder();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let settings = [
        format!("ssl-cert={}", file("server.pem")),
        format!("ssl-key={}", file("server.key")),
        format!("ssl-ca={}", file("authority.pem")),
    ];
    let mut settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    settings.extend(MariaDbProduct::QUICK);
    let Some(server) = MariaDb::start_with(&settings).unwrap() else { return };
    let database = server.database().unwrap();
    database.ask("create user client@'127.0.0.1' require subject '/CN=client'").unwrap();
    database.ask(&format!("grant all on {}.* to client@'127.0.0.1'", database.name())).unwrap();

    let url = url_of(&database.url(), "client@").replace("127.0.0.1", "localhost");
    let with = |name: &str| {
        let (certificate, key) = (file(&format!("{name}.pem")), file(&format!("{name}.key")));
        format!("{url}?cacert={}&cert={certificate}&key={key}", file("authority.pem"))
    };
    open(&with("client")).unwrap();
    for (url, part) in [
        (format!("{url}?require_ssl=true"), "UnknownIssuer"),
        (with("client").replace("@localhost", "@127.0.0.1"), "not valid for name"),
        (format!("{url}?cacert={}", file("authority.pem")), "look at the user"),
        (with("stranger"), "cert and key in the URL"),
        (with("missing"), "missing.key"),
        (url.clone(), "look at the user"),
    ] {
        let refusal = refusal(&url);
        assert!(refusal.contains(part), "{url}: {refusal}");
    }
}
