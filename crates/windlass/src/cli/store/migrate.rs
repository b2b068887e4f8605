//! `windlass migrate`: brings the tables of a store to the version of this program, which a server also does when it
//! opens one.

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;

use crate::cli::{
    exit::Exit,
    output::{Format, Output, Style},
};
use crate::wire::{self, StoreUrl};

/// Which store, and whether only to look.
#[derive(Debug, Clone, Args)]
pub(crate) struct MigrateArgs {
    /// The store: sqlite:PATH, postgres://… or mysql://…
    #[arg(
        long,
        value_name = "URL",
        env = "WINDLASS_SERVER_STORE",
        hide_env_values = true,
        default_value = "sqlite:windlass.db"
    )]
    pub(crate) store: String,

    /// Change nothing; fail when there is something to do
    #[arg(long)]
    pub(crate) check: bool,
}

/// What was found and done.
#[derive(Debug, Serialize)]
struct Migration {
    store: String,
    /// Version of the tables before; 0 = there were none.
    found: i64,
    /// Version of the tables now.
    version: i64,
    /// The version that this program makes.
    known: i64,
}

impl MigrateArgs {
    /// Looks at the tables, changes them unless only to look, and says what was done.
    pub(crate) async fn run(self, format: Format) -> anyhow::Result<Exit> {
        let url: StoreUrl = self.store.parse()?;
        let before = wire::schema(&url).await.with_context(|| format!("cannot look at the store {url}"))?;
        // What is too new is refused with both versions.
        let changes = before.is_too_new() || before.is_older() && !self.check;
        if changes {
            wire::migrate(&url).await?;
        }
        let after = if changes { wire::schema(&url).await? } else { before };
        let migration = Migration {
            store: url.to_string(),
            found: before.found,
            version: after.found,
            known: after.known,
        };
        Output::new(format).show(&migration, |migration, _: Style| render(migration))?;
        Ok(if after.is_older() { Exit::Failed } else { Exit::Done })
    }
}

fn render(Migration { store, found, version, known }: &Migration) -> String {
    let text = match (found, version) {
        (0, 0) => format!("{store} has no tables yet; `windlass migrate` makes them in version {known}"),
        (0, _) => format!("{store} has tables in version {version} now"),
        _ if found != version => format!("{store} was of version {found} and is of version {version} now"),
        _ if version < known => {
            format!("{store} is of version {version}; `windlass migrate` brings it to version {known}")
        }
        _ if version > known => format!(
            "{store} is of version {version}, which this program can work on: it knows version {known}"
        ),
        _ => format!("{store} is of version {version}: there is nothing to do"),
    };
    text + "\n"
}
