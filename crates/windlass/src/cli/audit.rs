//! `windlass audit`: who changed what.

use clap::{Args, Subcommand};
use windlass_api::AuditEntry;

use super::{connection::Context, exit::Exit, output::Style};
use crate::cli::output::table::Table;

/// How many entries are shown unless another number is given.
const ENTRIES_DEFAULT: usize = 100;

/// Commands for the audit log.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// List changes by operators and admins, the newest first
    List(ListArgs),
}

/// Which entries are shown.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only changes of what has this name, or of the task or alarm with this id
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Only changes by this access token, or by this actor
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Only changes by this operation, for example cancel_task
    #[arg(long, value_name = "OPERATION")]
    operation: Option<String>,
    /// Only changes since this time, or since so long ago, for example 7d
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// The most entries
    #[arg(long, value_name = "N", default_value_t = ENTRIES_DEFAULT)]
    limit: usize,
}

impl AuditCommand {
    /// Runs the command.
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let Self::List(ListArgs { name, by, operation, since, limit }) = self;
        let filter = [("name", name), ("by", by), ("operation", operation), ("since", since)];
        let filter: Vec<(&str, String)> =
            filter.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        let log = context.client.audit_log(&filter, limit).await?;
        context.output.show(&log, |log, style| match log.items.as_slice() {
            [] => "no entries\n".to_owned(),
            entries => render(entries, style),
        })?;
        Ok(Exit::Done)
    }
}

fn render(entries: &[AuditEntry], style: Style) -> String {
    let mut table = Table::new(["TIME", "BY", "ADDRESS", "OPERATION", "CHANGED"]);
    for entry in entries {
        table.row([
            entry.at.to_string().into(),
            entry.by.clone().unwrap_or_default().into(),
            entry.address.clone().unwrap_or_default().into(),
            (&entry.operation).into(),
            format!("{} {}", entry.kind, entry.name).into(),
        ]);
    }
    table.text(style)
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn entries_are_a_table() {
        let one = AuditEntry {
            number: 7,
            at: Timestamp::constant(1_900_000_000, 0),
            operation: "pause_queue".to_owned(),
            by: Some("ops".to_owned()),
            address: Some("10.0.0.7".to_owned()),
            kind: "queue".to_owned(),
            name: "mail".to_owned(),
        };
        let other = AuditEntry {
            operation: "revoke_token".to_owned(),
            by: None,
            address: None,
            kind: "access token".to_owned(),
            name: "shop".to_owned(),
            ..one.clone()
        };
        assert_snapshot!(render(&[one, other], Style { color: false, width: None }), @"
        TIME                  BY   ADDRESS   OPERATION     CHANGED
        2030-03-17T17:46:40Z  ops  10.0.0.7  pause_queue   queue mail
        2030-03-17T17:46:40Z                 revoke_token  access token shop
        ");
    }
}
