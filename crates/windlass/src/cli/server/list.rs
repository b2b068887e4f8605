//! `windlass server list`: lists the servers on the store.

use jiff::Timestamp;
use windlass_api::{Server, ServerState};

use crate::cli::{
    connection::Context,
    exit::Exit,
    output::{Style, table::Table, time::age},
};

/// Lists all servers on the store of the server that answers.
pub(crate) async fn run(context: &Context) -> anyhow::Result<Exit> {
    let servers = context.client.servers().await?;
    context.output.show(&servers, |servers, style| render(&servers.items, Timestamp::now(), style))?;
    Ok(Exit::Done)
}

fn render(servers: &[Server], now: Timestamp, style: Style) -> String {
    let mut table = Table::new(["SERVER", "ADDRESS", "VERSION", "STATE", "STARTED", "SEEN"]);
    for server in servers {
        let state = match (server.state, server.answers) {
            (ServerState::Up, true) => "up, answers",
            (ServerState::Up, false) => "up",
            (ServerState::Silent, _) => "silent",
        };
        table.row([
            (&server.id).into(),
            (&server.address).into(),
            (&server.version).into(),
            state.into(),
            age(server.started_at, now).into(),
            age(server.last_seen_at, now).into(),
        ]);
    }
    table.text(style)
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn servers_are_listed_with_how_they_are() {
        let now = Timestamp::constant(1_900_000_000, 0);
        let server = |id: &str, state, answers, seen| Server {
            id: id.to_owned(),
            version: "0.1.0".to_owned(),
            address: "http://10.0.0.1:7700".to_owned(),
            level: 1,
            state,
            answers,
            started_at: now - SignedDuration::from_hours(2),
            last_seen_at: now - SignedDuration::from_secs(seen),
        };
        let servers =
            [server("one", ServerState::Up, true, 1), server("two", ServerState::Silent, false, 90)];
        let style = Style { color: false, width: None };
        assert_snapshot!(render(&servers, now, style), @"
        SERVER  ADDRESS               VERSION  STATE        STARTED  SEEN
        one     http://10.0.0.1:7700  0.1.0    up, answers  2h ago   1s ago
        two     http://10.0.0.1:7700  0.1.0    silent       2h ago   1m ago
        ");
    }
}
