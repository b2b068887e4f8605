//! `windlass doctor`: what may be wrong with this machine and its store.

use clap::Args;

/// What to look at.
#[derive(Debug, Clone, Args)]
pub(crate) struct DoctorArgs {
    /// The store to look at: sqlite:PATH
    #[arg(
        long,
        value_name = "URL",
        env = "WINDLASS_SERVER_STORE",
        hide_env_values = true,
        default_value = "sqlite:windlass.db"
    )]
    pub(crate) store: String,
}
