//! `windlass token`: access tokens, who may do what.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use windlass_api::{AccessRole, AccessToken, CreateAccessToken, Span};
use windlass_client::{Client, Error as ClientError};

use super::{connection::Context, exit::Exit, output::Style};
use crate::cli::output::{table::Table, time::age};

/// Commands for access tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token, and print it: it cannot be shown again
    Create(CreateArgs),
    /// List the tokens, without their secrets
    List,
    /// Revoke a token: servers refuse it within seconds
    Revoke {
        /// Name of the token
        name: String,
    },
}

/// A token to create.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Name of the token; the history shows it as the actor
    name: String,
    /// viewer reads, operator also acts, admin also changes flows and tokens, worker takes attempts and nothing else
    #[arg(long, value_name = "ROLE")]
    role: AccessRole,
    /// Only this queue; may be given more than once. With --queue or --flow the token may use what they name and nothing else
    #[arg(long = "queue", value_name = "MODULE")]
    queues: Vec<String>,
    /// Only this flow and its tasks; may be given more than once
    #[arg(long = "flow", value_name = "FLOW")]
    flows: Vec<String>,
    /// How long it is valid, such as 90d [default: for ever]
    #[arg(long, value_name = "TIME")]
    expires: Option<Span>,
}

impl TokenCommand {
    /// Runs the command.
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<Exit> {
        let client = &context.client;
        match self {
            Self::Create(CreateArgs { name, role, queues, flows, expires }) => {
                let token = CreateAccessToken { name, role, queues, flows, expires_in: expires };
                let created = client.create_access_token(&token).await?;
                for unknown in unknown_names(client, &token).await {
                    eprintln!("warning: {unknown}");
                }
                // Nothing else, so that it can go into a file.
                context.output.show(&created, |created, _| format!("{}\n", created.secret))?;
            }
            Self::List => {
                let tokens = client.access_tokens().await?;
                context.output.show(&tokens, |tokens, style| match tokens.items.as_slice() {
                    [] => "no tokens\n".to_owned(),
                    tokens => render(tokens, Timestamp::now(), style),
                })?;
            }
            Self::Revoke { name } => {
                let token = client.revoke_access_token(&name).await?;
                context.output.show(&token, |token, _| format!("revoked {}\n", token.name))?;
            }
        }
        Ok(Exit::Done)
    }
}

/// The queues and flows of a token that the server does not have, which may be mistakes. A failed call is none: the
/// token exists.
async fn unknown_names(client: &Client, token: &CreateAccessToken) -> Vec<String> {
    let mut unknown = Vec::new();
    for queue in &token.queues {
        if is_missing(client.queue(queue).await) {
            unknown.push(format!(
                "there is no queue {queue} yet: no flow names this module, and no worker serves it"
            ));
        }
    }
    for flow in &token.flows {
        if is_missing(client.flow(flow, None).await) {
            unknown.push(format!("there is no flow {flow} yet"));
        }
    }
    unknown
}

fn is_missing<T>(answer: Result<T, ClientError>) -> bool {
    matches!(answer, Err(ClientError::Refused(problem)) if problem.status == 404)
}

fn render(tokens: &[AccessToken], now: Timestamp, style: Style) -> String {
    let mut table = Table::new(["TOKEN", "ROLE", "CREATED", "EXPIRES", "LAST USE", "LIMITED TO"]);
    for token in tokens {
        table.row([
            (&token.name).into(),
            token.role.as_str().into(),
            age(token.created_at, now).into(),
            token.expires_at.map(|at| expiry(at, now)).unwrap_or_default().into(),
            token.last_used_at.map(|at| age(at, now)).unwrap_or_default().into(),
            limits(token).into(),
        ]);
    }
    table.text(style)
}

fn expiry(at: Timestamp, now: Timestamp) -> String {
    if at <= now { "expired".to_owned() } else { at.strftime("%Y-%m-%d").to_string() }
}

/// The queues and flows that a token is limited to.
fn limits(token: &AccessToken) -> String {
    let queues = token.queues.iter().map(|queue| format!("queue {queue}"));
    let flows = token.flows.iter().map(|flow| format!("flow {flow}"));
    queues.chain(flows).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn tokens_are_a_table() {
        let now = Timestamp::constant(1_900_000_000, 0);
        let admin = AccessToken {
            name: "admin".to_owned(),
            id: "0123456789abcdef".to_owned(),
            role: AccessRole::Admin,
            queues: Vec::new(),
            flows: Vec::new(),
            created_at: now - SignedDuration::from_hours(48),
            created_by: None,
            expires_at: None,
            last_used_at: Some(now - SignedDuration::from_secs(60)),
        };
        let shop = AccessToken {
            name: "shop".to_owned(),
            role: AccessRole::Operator,
            queues: vec!["mail".to_owned()],
            flows: vec!["order".to_owned(), "refund".to_owned()],
            expires_at: Some(now + SignedDuration::from_hours(24 * 90)),
            last_used_at: None,
            ..admin.clone()
        };
        let old = AccessToken { name: "old".to_owned(), expires_at: Some(now), ..shop.clone() };
        assert_snapshot!(render(&[admin, shop, old], now, Style { color: false, width: None }), @"
        TOKEN  ROLE      CREATED  EXPIRES     LAST USE  LIMITED TO
        admin  admin     2d ago               1m ago
        shop   operator  2d ago   2030-06-15            queue mail, flow order, flow refund
        old    operator  2d ago   expired               queue mail, flow order, flow refund
        ");
    }
}
