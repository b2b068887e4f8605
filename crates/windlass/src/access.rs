//! The first access tokens of a server: somebody must be able to create the others.

use std::{
    io::{self, Write as _},
    path::Path,
};

use anyhow::{Context as _, bail};
use windlass_core::Name;
use windlass_engine::{AccessRole, AccessSecret, AccessToken, Engine, EngineError};
use windlass_store::Now;

use crate::{cli::read_secret, http::new_secret};

/// The name of the token that a server makes at its first start.
const FIRST: &str = "admin";

/// The name of the token of the file.
const OF_FILE: &str = "admin-file";

/// Reads the file with the token of an admin.
pub(crate) fn read_file(file: &Path) -> anyhow::Result<AccessSecret> {
    let text = read_secret(file, "access token of an admin")?;
    AccessSecret::parse(&text).with_context(|| {
        format!(
            "the file {} has no access token: write one of the form wl_ID_SECRET, with an ID of 16 and a SECRET of 64 random \
             digits 0-9 a-f",
            file.display()
        )
    })
}

/// Sees to it that there is an admin: the one of the file, or one whose token is made and printed now.
pub(crate) async fn ensure_admin(
    engine: &Engine,
    file: Option<AccessSecret>,
    now: Now,
) -> anyhow::Result<()> {
    let ensured = match file {
        Some(secret) => ensure_from_file(engine, &secret, now).await,
        None => ensure_first(engine, now).await,
    };
    ensured.context("cannot create the access token of an admin")
}

/// The token of the file is valid as long as servers start with it. Another one in the file takes its place.
async fn ensure_from_file(engine: &Engine, secret: &AccessSecret, now: Now) -> anyhow::Result<()> {
    let name = Name::new(OF_FILE)?;
    let token = AccessToken::new(name.clone(), secret, AccessRole::Admin, now.wall);
    let tokens = engine.access_tokens().await?;
    match tokens.iter().find(|token| token.id == secret.id() || token.name == name) {
        Some(found) if found.id == secret.id() && found.name != name => bail!(
            "the token of the file has the id of the token {}: write a token into the file that has an id of its own",
            found.name
        ),
        Some(found) if found.hash == token.hash && found.role == AccessRole::Admin => return Ok(()),
        Some(_) => drop(engine.replace_access_token(token, now).await?),
        None => match engine.create_access_token(token, now).await {
            // Another server on the store started with the same file at the same time.
            Ok(_) | Err(EngineError::AccessTokenExists(_)) => {}
            Err(error) => return Err(error.into()),
        },
    }
    tracing::info!(token = OF_FILE, "the token of the file has the role admin");
    Ok(())
}

/// Makes a token where no valid one has the role admin, and prints it.
async fn ensure_first(engine: &Engine, now: Now) -> anyhow::Result<()> {
    let tokens = engine.access_tokens().await?;
    let is_admin = |token: &AccessToken| token.role == AccessRole::Admin && !token.is_expired(now.wall);
    if tokens.iter().any(is_admin) {
        return Ok(());
    }
    let secret = new_secret()?;
    let is_taken = tokens.iter().any(|token| token.name.as_str() == FIRST);
    let name = if is_taken { format!("{FIRST}-{}", secret.id()) } else { FIRST.to_owned() };
    let name = Name::new(&name)?;
    let token = AccessToken::new(name.clone(), &secret, AccessRole::Admin, now.wall);
    match engine.create_access_token(token, now).await {
        Ok(_) => {}
        // Another server on the store started at the same time, and has printed it.
        Err(EngineError::AccessTokenExists(_)) => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    if let Err(error) = print(&name, &secret) {
        // Nobody knows it.
        engine.revoke_access_token(&name).await?;
        return Err(error).context("cannot print it: give one with --admin-token-file");
    }
    Ok(())
}

/// Prints a token to standard output, not to the log.
fn print(name: &Name, secret: &AccessSecret) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "the access token {name} with the role admin, shown only once: {}", secret.text())?;
    out.flush()
}
