//! Files that are not a store, or cannot be one, are refused with a reason and left unchanged.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use rusqlite::Connection;
use windlass_core::OnFailure;
use windlass_store::resident::{Room, RowSink as _};
use windlass_stores::sqlite::{OpenError, Reserved, SqliteSink, doctor};

use crate::story::{Place, flow, flow_change, options, wait, write};

fn refusal(path: &Path) -> OpenError {
    SqliteSink::open(path, options()).unwrap_err()
}

#[test]
fn a_second_server_is_refused_and_told_who_has_the_file() {
    let place = Place::new();
    let mut first = options();
    first.lock_hint = "listens on 127.0.0.1:7700".to_owned();
    let sink = SqliteSink::open(&place.path(), first).unwrap();
    let error = refusal(&place.path());
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
    assert!(text.contains("127.0.0.1:7700"), "{text}");
    sink.close();
    // The lock went with the store, though its file is still there.
    SqliteSink::open(&place.path(), options()).unwrap();
}

/// The lock file keeps servers away that know the database by the same name, the lock on the database all others.
#[test]
fn a_second_server_is_refused_by_another_name_and_without_the_lock_file() {
    let place = Place::new();
    let sink = SqliteSink::open(&place.path(), options()).unwrap();
    wait(sink.recover(Room::ENDLESS)).unwrap();
    let flow = flow("line", 1, OnFailure::Rollback);
    write(&sink, vec![flow_change(&flow)]);
    let (hard, soft) = (place.directory.path().join("hard.db"), place.directory.path().join("soft.db"));
    fs::hard_link(place.path(), &hard).unwrap();
    std::os::unix::fs::symlink(place.path(), &soft).unwrap();
    for path in [&hard, &soft] {
        assert!(matches!(refusal(path), OpenError::Locked { .. }), "{path:?}");
    }
    fs::remove_file(place.directory.path().join("windlass.db.lock")).unwrap();
    assert!(matches!(refusal(&place.path()), OpenError::Locked { .. }));
    // The store works on after these attempts.
    write(&sink, Vec::new());
    sink.close();
    SqliteSink::open(&soft, options()).unwrap().close();
    SqliteSink::open(&hard, options()).unwrap().close();
}

#[test]
fn a_database_behind_a_symbolic_link_opens_with_its_log_beside_it() {
    let (place, elsewhere) = (Place::new(), Place::new());
    SqliteSink::open(&place.path(), options()).unwrap().close();
    let link = elsewhere.directory.path().join("link.db");
    std::os::unix::fs::symlink(place.path(), &link).unwrap();
    let sink = SqliteSink::open(&link, options()).unwrap();
    wait(sink.recover(Room::ENDLESS)).unwrap();
    write(&sink, vec![flow_change(&flow("line", 1, OnFailure::Rollback))]);
    assert_eq!(doctor(&link).unwrap().flows, (1, 1));
    sink.close();
    let left = fs::read_dir(elsewhere.directory.path()).unwrap().count();
    assert_eq!(left, 1, "nothing is beside the link");
}

#[test]
fn the_doctor_leaves_nothing_beside_a_backup() {
    let (place, elsewhere) = (Place::new(), Place::new());
    SqliteSink::open(&place.path(), options()).unwrap().close();
    let copy = elsewhere.directory.path().join("50 % of #1?.db");
    fs::copy(place.path(), &copy).unwrap();
    assert_eq!(doctor(&copy).unwrap().problems, [""; 0]);
    assert_eq!(fs::read_dir(elsewhere.directory.path()).unwrap().count(), 1);
}

#[test]
fn where_a_store_is_about_to_be_no_server_makes_one() {
    let place = Place::new();
    let reserved = Reserved::new(&place.path(), "an import").unwrap();
    let text = refusal(&place.path()).to_string();
    assert!(text.contains("an import"), "{text}");
    assert!(!place.path().exists());
    drop(reserved);
    SqliteSink::open(&place.path(), options()).unwrap().close();
}

#[test]
fn a_file_that_is_something_else_is_left_as_it_is() {
    let place = Place::new();
    for garbage in [&b"flow: create_instance\n"[..], &[0xff; 100_000], b"SQLite format 2"] {
        fs::write(place.path(), garbage).unwrap();
        let error = refusal(&place.path());
        assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
        assert_eq!(fs::read(place.path()).unwrap(), garbage);
        let left = fs::read_dir(place.directory.path()).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["windlass.db"], "nothing was left beside it");
    }
    // A header that is right with nothing behind it that is.
    let mut broken = b"SQLite format 3\0".to_vec();
    broken.extend([0xee; 8_000]);
    fs::write(place.path(), &broken).unwrap();
    let error = refusal(&place.path());
    assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
    assert_eq!(fs::read(place.path()).unwrap(), broken);
}

#[test]
fn a_database_of_another_program_is_left_as_it_is() {
    let place = Place::new();
    let other = Connection::open(place.path()).unwrap();
    other.execute_batch("CREATE TABLE notes (text TEXT); INSERT INTO notes VALUES ('mine')").unwrap();
    let error = refusal(&place.path());
    assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
    let mode: String = other.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "delete");
    let text: String = other.query_row("SELECT text FROM notes", [], |row| row.get(0)).unwrap();
    assert_eq!(text, "mine");
}

#[test]
fn a_newer_format_is_refused_with_both_versions() {
    let place = Place::new();
    place.open().0.close();
    let connection = Connection::open(place.path()).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    let error = refusal(&place.path());
    assert!(matches!(error, OpenError::Newer { found: 99, .. }), "{error}");
    assert!(error.to_string().contains("newer"), "{error}");
}

#[test]
fn a_path_that_cannot_hold_a_file_is_refused() {
    let place = Place::new();
    let directory = place.directory.path();
    let error = refusal(directory);
    assert!(matches!(error, OpenError::NotAFile { .. }), "{error}");
    let error = refusal(&directory.join("missing").join("windlass.db"));
    assert!(matches!(error, OpenError::NoDirectory { .. }), "{error}");
    // A path below a file, which even the superuser cannot make.
    fs::write(directory.join("file"), "").unwrap();
    let error = refusal(&directory.join("file").join("windlass.db"));
    assert!(matches!(error, OpenError::NoDirectory { .. }), "{error}");
    // A lock file that cannot be opened for writing.
    fs::create_dir(directory.join("windlass.db.lock")).unwrap();
    let error = refusal(&place.path());
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
    assert!(!place.path().exists());
}

/// Whatever the umask is. The mode of a file that exists is its owner's decision.
#[test]
fn a_new_store_is_for_its_owner_and_the_mode_of_another_stays() {
    let place = Place::new();
    let file = |end: &str| place.directory.path().join(format!("windlass.db{end}"));
    let mode = |end: &str| fs::metadata(file(end)).unwrap().permissions().mode() & 0o777;
    SqliteSink::open(&place.path(), options()).unwrap().close();
    assert_eq!(["", "-wal", "-shm"].map(mode), [0o600; 3]);
    for end in ["-wal", "-shm"] {
        fs::remove_file(file(end)).unwrap();
    }
    fs::set_permissions(file(""), fs::Permissions::from_mode(0o640)).unwrap();
    SqliteSink::open(&place.path(), options()).unwrap().close();
    assert_eq!(["", "-wal", "-shm"].map(mode), [0o640; 3]);
}

#[test]
fn the_log_has_its_size_from_the_start_and_keeps_it() {
    let place = Place::new();
    let wal = place.directory.path().join("windlass.db-wal");
    let (sink, _) = place.open();
    let size = || fs::metadata(&wal).unwrap().len();
    assert_eq!(size(), options().wal_bytes);
    sink.close();
    assert_eq!(size(), options().wal_bytes);
    // Somebody looked at it with a shell, which removes the log.
    let shell = Connection::open(place.path()).unwrap();
    shell.query_row("SELECT count(*) FROM task", [], |row| row.get::<_, i64>(0)).unwrap();
    drop(shell);
    assert!(!wal.exists());
    let (_sink, recovered) = place.open();
    assert_eq!(size(), options().wal_bytes);
    assert_eq!(recovered.epoch, 2);
}

#[test]
fn a_store_that_was_closed_has_a_log_that_was_started_over() {
    let place = Place::new();
    let salts = || fs::read(place.directory.path().join("windlass.db-wal")).unwrap()[16..24].to_vec();
    let (sink, _) = place.open();
    let flow = flow("line", 1, OnFailure::Rollback);
    write(&sink, vec![flow_change(&flow)]);
    let before = salts();
    sink.close();
    assert!(salts() != before, "the next start has nothing of it to read");
}
