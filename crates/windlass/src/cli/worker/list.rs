//! `windlass worker list`: lists the connected workers.

use jiff::Timestamp;
use windlass_api::Worker;

use crate::cli::{
    connection::Context,
    exit::Exit,
    output::{
        Style,
        table::{Cell, Color, Table},
        time::age,
    },
};

/// Lists the connected workers.
pub(crate) async fn run(context: &Context) -> anyhow::Result<Exit> {
    let workers = context.client.workers().await?;
    context.output.show(&workers, |workers, style| render(&workers.items, Timestamp::now(), style))?;
    Ok(Exit::Done)
}

fn render(workers: &[Worker], now: Timestamp, style: Style) -> String {
    let mut table = Table::new(["WORKER", "HOST", "VERSION", "RUNNING", "SEEN", "STATE", "MODULES"]);
    for worker in workers {
        table.row([
            (&worker.name).into(),
            (&worker.host).into(),
            (&worker.version).into(),
            worker.running.to_string().into(),
            age(worker.last_seen_at, now).into(),
            if worker.draining { Cell::colored("draining", Some(Color::Warning)) } else { Cell::default() },
            worker.modules.join(", ").into(),
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
    fn modules_wrap_on_a_narrow_terminal() {
        let now = Timestamp::constant(1_900_000_000, 0);
        let worker = Worker {
            id: "7f9c24e8-3b12-4a6f-9d2e-5c1b8a7f6e3d".to_owned(),
            name: "worker-1".to_owned(),
            host: "db1".to_owned(),
            version: "0.1.0".to_owned(),
            attached: true,
            draining: false,
            modules: ["mysql", "resource", "monitor", "backup"].map(str::to_owned).to_vec(),
            running: 2,
            last_seen_at: now - SignedDuration::from_secs(1),
        };
        let style = Style { color: false, width: Some(66) };
        assert_snapshot!(render(std::slice::from_ref(&worker), now, style), @"
        WORKER    HOST  VERSION  RUNNING  SEEN    MODULES
        worker-1  db1   0.1.0    2        1s ago  mysql, resource,
                                                  monitor, backup
        ");
        let draining = Worker { draining: true, modules: vec!["mysql".to_owned()], ..worker };
        assert_snapshot!(render(&[draining], now, style), @"
        WORKER    HOST  VERSION  RUNNING  SEEN    STATE     MODULES
        worker-1  db1   0.1.0    2        1s ago  draining  mysql
        ");
    }
}
