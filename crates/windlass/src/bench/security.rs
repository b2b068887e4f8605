//! TLS and access tokens for a benchmark: how its clients reach the servers.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use tokio::process::Command;
use windlass_client::Client;
use windlass_tls::ClientFiles;

/// Environment variables for the worker.
const AUTHORITY_VARIABLE: &str = "WINDLASS_BENCH_AUTHORITY";
const TOKEN_VARIABLE: &str = "WINDLASS_BENCH_TOKEN";

/// What clients need to reach the servers: nothing, or the authority of their certificate and an access token.
#[derive(Debug, Clone, Default)]
pub(super) struct Entry(Option<Secured>);

#[derive(Debug, Clone)]
struct Secured {
    authority: PathBuf,
    token: String,
}

impl Entry {
    /// Makes certificates and a token of an admin in this folder. `openssl` must be installed.
    pub(super) async fn secured(dir: &Path) -> anyhow::Result<Self> {
        // Instead of what the system would add to every certificate.
        write(dir, "empty.cnf", "[req]\ndistinguished_name=name\n[name]\n")?;
        certify(dir, "authority", &["-addext", "basicConstraints=critical,CA:TRUE"]).await?;
        let by_authority = ["-CA", "authority.pem", "-CAkey", "authority.key"];
        certify(dir, "server", &[&by_authority[..], &["-addext", "subjectAltName=IP:127.0.0.1"]].concat())
            .await?;
        let token = crate::http::new_secret()?.text().to_owned();
        write(dir, "admin-token", &token)?;
        Ok(Self(Some(Secured { authority: dir.join("authority.pem"), token })))
    }

    /// The same in a process that [`Entry::pass_to`] was called for.
    pub(super) fn from_environment() -> Self {
        let authority = env::var_os(AUTHORITY_VARIABLE).map(PathBuf::from);
        let token = env::var(TOKEN_VARIABLE).ok();
        Self(authority.zip(token).map(|(authority, token)| Secured { authority, token }))
    }

    pub(super) fn pass_to(&self, worker: &mut Command) {
        if let Some(Secured { authority, token }) = &self.0 {
            worker.env(AUTHORITY_VARIABLE, authority).env(TOKEN_VARIABLE, token);
        }
    }

    /// Sets the certificate of a server and the tokens that it asks for.
    pub(super) fn arrange(&self, server: &mut Command, dir: &Path) {
        if self.0.is_none() {
            server.arg("--require-tokens=false");
            return;
        }
        server.arg("--require-tokens").arg("--admin-token-file").arg(dir.join("admin-token"));
        server.arg("--tls-cert").arg(dir.join("server.pem")).arg("--tls-key").arg(dir.join("server.key"));
    }

    pub(super) fn client(&self, server: &str) -> anyhow::Result<Client> {
        Ok(match &self.0 {
            None => Client::new(server)?,
            Some(Secured { authority, token }) => {
                let files = ClientFiles { authorities: Some(authority.clone()), identity: None };
                Client::with_tls(server, &files)?.with_token(token.as_str())
            }
        })
    }
}

fn write(dir: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    std::fs::write(dir.join(name), text).with_context(|| format!("cannot write {name}"))
}

/// Makes a certificate and its key.
async fn certify(dir: &Path, name: &str, more: &[&str]) -> anyhow::Result<()> {
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-config", "empty.cnf", "-newkey", "ec", "-nodes", "-days", "1"]);
    openssl.args(["-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", &format!("/CN={name}")]).args(more);
    openssl.args(["-keyout", &format!("{name}.key"), "-out", &format!("{name}.pem")]);
    let output = openssl.current_dir(dir).output().await.context("install the package openssl")?;
    ensure!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
