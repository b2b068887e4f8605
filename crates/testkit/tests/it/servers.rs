//! All products keep to the same promises.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use windlass_testkit::{MariaDb, Postgres, Product as _, Redis, RedisProduct, Server, SqlProduct};

const PATIENCE: Duration = Duration::from_secs(30);

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "{what} within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn is_alive(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// What is written is there after a kill and after a stop, on the same port.
fn keeps_its_data<P: SqlProduct>() {
    let Some(server) = Server::<P>::start().unwrap() else { return };
    let database = server.database().unwrap();
    database.ask("create table notes (note int)").unwrap();
    let (port, directory) = (server.port(), server.directory().to_owned());

    database.ask("insert into notes values (1)").unwrap();
    let first = server.process_id().unwrap();
    server.kill().unwrap();
    assert!(!is_alive(first));
    database.ask("select 1").unwrap_err();
    server.restart().unwrap();
    server.restart().unwrap_err();
    assert_ne!(server.process_id(), Some(first));

    database.ask("insert into notes values (2)").unwrap();
    server.stop().unwrap();
    database.ask("select 1").unwrap_err();
    server.restart().unwrap();

    assert_eq!(server.port(), port);
    assert_eq!(database.ask("select note from notes order by note").unwrap(), "1\n2");
    let last = server.process_id().unwrap();
    drop(database);
    drop(server);
    assert!(!is_alive(last));
    assert!(!directory.exists());
}

#[test]
fn postgres_keeps_its_data() {
    keeps_its_data::<windlass_testkit::PostgresProduct>();
}

#[test]
fn mariadb_keeps_its_data() {
    keeps_its_data::<windlass_testkit::MariaDbProduct>();
}

/// The same of Redis, with a password.
#[test]
fn redis_keeps_its_data() {
    let Some(server) = Redis::start_with(&["requirepass=open sesame"]).unwrap() else { return };
    let (port, directory) = (server.port(), server.directory().to_owned());
    server.ask(&["SET", "one", "1"]).unwrap();
    let first = server.process_id().unwrap();
    server.kill().unwrap();
    assert!(!is_alive(first));
    server.ask(&["PING"]).unwrap_err();
    server.restart().unwrap();
    server.ask(&["SET", "two", "2"]).unwrap();
    server.stop().unwrap();
    server.restart().unwrap();
    assert_eq!((server.port(), server.ask(&["MGET", "one", "two"]).unwrap().as_str()), (port, "1\n2"));
    let last = server.process_id().unwrap();
    drop(server);
    assert!(!is_alive(last));
    assert!(!directory.exists());
}

#[test]
fn redis_has_neighbours() {
    let Some(shared) = Redis::shared().unwrap() else { return };
    assert!(std::ptr::eq(shared, Redis::shared().unwrap().unwrap()));
    let other = Redis::start_with(RedisProduct::QUICK).unwrap().unwrap();
    assert_ne!(shared.port(), other.port());
    other.ask(&["SET", "note", "1"]).unwrap();
    assert_eq!(shared.ask(&["EXISTS", "note"]).unwrap(), "0");
    let error = other.ask(&["LPUSH", "note", "2"]).unwrap_err();
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
}

/// Two of the same product do not know of one another, and neither do databases of one.
fn has_neighbours<P: SqlProduct>() {
    let Some(shared) = Server::<P>::shared().unwrap() else { return };
    let again = Server::<P>::shared().unwrap().unwrap();
    assert!(std::ptr::eq(shared, again));
    let other = Server::<P>::start_with(P::QUICK).unwrap().unwrap();
    assert_ne!(shared.port(), other.port());
    let directory = |server: &Server<P>| server.ask(P::DATABASE, P::DIRECTORY).unwrap();
    assert_eq!(Path::new(&directory(shared)), shared.directory().join("data"));
    assert_eq!(Path::new(&directory(&other)), other.directory().join("data"));

    let (one, two) = (shared.database().unwrap(), shared.database().unwrap());
    one.ask("create table notes (note int)").unwrap();
    two.ask("create table notes (note int)").unwrap();
    let error = two.ask("create table notes (note int)").unwrap_err();
    assert!(error.to_string().contains("exists"), "{error}");
    let name = one.name().to_owned();
    drop(one);
    shared.ask(&name, "select 1").unwrap_err();
}

#[test]
fn postgres_has_neighbours() {
    has_neighbours::<windlass_testkit::PostgresProduct>();
}

#[test]
fn mariadb_has_neighbours() {
    has_neighbours::<windlass_testkit::MariaDbProduct>();
}

/// A paused server says nothing until it goes on.
#[test]
fn a_paused_server_does_not_answer() {
    let Some(server) = Postgres::start_with(windlass_testkit::PostgresProduct::QUICK).unwrap() else {
        return;
    };
    server.pause().unwrap();
    let answer = thread::scope(|scope| {
        let asking = scope.spawn(|| server.ask("postgres", "select 7"));
        thread::sleep(Duration::from_millis(300));
        assert!(!asking.is_finished());
        server.resume().unwrap();
        asking.join().unwrap()
    });
    assert_eq!(answer.unwrap(), "7");
}

/// Set for the program of this test when it is run again, to be killed.
const VICTIM: &str = "TESTKIT_VICTIM";

/// Not a test by itself: starts servers, says where, and waits to be killed.
#[test]
fn a_victim() {
    if std::env::var_os(VICTIM).is_none() {
        return;
    }
    // From a thread that ends: the servers belong to the program, not to the thread that wanted them.
    let servers = thread::spawn(|| (Postgres::shared().unwrap(), MariaDb::start().unwrap())).join().unwrap();
    let (Some(postgres), Some(mariadb)) = servers else { return };
    for (process, directory) in
        [(postgres.process_id(), postgres.directory()), (mariadb.process_id(), mariadb.directory())]
    {
        println!("victim {} {}", process.unwrap(), directory.display());
    }
    println!("victim ready");
    thread::sleep(PATIENCE * 10);
}

/// Servers and directories of a test that is killed go with it.
#[test]
fn nothing_outlives_a_killed_test() {
    if Postgres::shared().unwrap().is_none() || MariaDb::shared().unwrap().is_none() {
        return;
    }
    let mut test = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "servers::a_victim", "--nocapture"])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut left = Vec::new();
    for line in BufReader::new(test.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let Some((_, said)) = line.split_once("victim ") else { continue };
        match said.split_once(' ') {
            Some((process, directory)) => left.push((process.parse::<u32>().unwrap(), directory.to_owned())),
            None => break,
        }
    }
    assert_eq!(left.len(), 2);
    assert!(left.iter().all(|(process, directory)| is_alive(*process) && Path::new(directory).is_dir()));
    test.kill().unwrap();
    assert_eq!(test.wait().unwrap().signal(), Some(9));
    for (process, directory) in left {
        until("the server ends", || !is_alive(process));
        until("its directory goes", || !Path::new(&directory).exists());
    }
}

#[test]
fn mosquitto_comes_back() {
    crate::java::comes_back::<windlass_testkit::MosquittoProduct>();
}
