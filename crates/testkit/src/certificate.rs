//! Certificates for servers of tests.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use tempfile::TempDir;

use crate::account::Account;

/// Makes an authority, `authority.pem` in this folder, a certificate for `localhost` that it vouches for, `server.pem` with
/// `server.key`, and one for clients, `client.pem` with `client.key`. The one in `stranger.pem` with `stranger.key` has
/// another authority: itself.
///
/// # Panics
/// When `openssl` fails.
pub fn make(folder: &Path) {
    // Instead of what the system would add to every certificate.
    fs::write(folder.join("empty.cnf"), "[req]\ndistinguished_name=name\n[name]\n").unwrap();
    let make = |subject: &str, name: &str, more: &[&str]| {
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-config", "empty.cnf", "-newkey", "ec", "-nodes", "-days", "2"]);
        command.args(["-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", subject]).args(more);
        command.arg("-keyout").arg(format!("{name}.key")).arg("-out").arg(format!("{name}.pem"));
        let output = command.current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    make("/CN=authority", "authority", &["-addext", "basicConstraints=critical,CA:TRUE"]);
    let signed = ["-CA", "authority.pem", "-CAkey", "authority.key"];
    make("/CN=localhost", "server", &[&signed[..], &["-addext", "subjectAltName=DNS:localhost"]].concat());
    // Without an extension it would have a version that is not supported.
    make("/CN=client", "client", &[&signed[..], &["-addext", "extendedKeyUsage=clientAuth"]].concat());
    make("/CN=stranger", "stranger", &["-addext", "basicConstraints=critical,CA:TRUE"]);
    readable(folder, &folder.join("server.key"));
}

/// A folder with the certificates of [`make`], which servers of any user can read.
///
/// # Panics
/// When `openssl` fails.
pub fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    make(folder.path());
    for name in ["server.pem", "authority.pem"] {
        readable(folder.path(), &folder.path().join(name));
    }
    folder
}

/// Lets everybody read a file in a folder: the server has another user.
///
/// # Panics
/// When they do not exist.
pub fn readable(folder: &Path, file: &Path) {
    for path in [folder, file] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// Lets only this user, which a server runs as, read a file.
///
/// # Panics
/// When it does not exist, or neither does the user.
pub fn private(file: &Path, user: &str) {
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    Account::choose(user).and_then(|account| account.own(file)).unwrap();
}
