//! ZooKeeper with candidates of Apache Curator in the same election.

use std::{
    io::{BufRead as _, BufReader, Lines, Write as _},
    path::Path,
    process::{Child, ChildStdout, Stdio},
    time::Instant,
};

use tokio::time::{sleep, timeout};
use windlass_coordinators::{
    Campaign, Coordinator as _, ZooKeeper,
    conformance::{elect, renew, resign, until_answered},
};
use windlass_testkit::ZooKeeper as Server;

use crate::servers::LEASE;

/// A candidate of Curator. It is killed when this is dropped.
struct Curator {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Curator {
    fn start(server: &Server, path: &str, id: &str) -> Option<Self> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/curator/Latch.java");
        let mut command = server.java(&source).unwrap()?;
        command.args([&format!("127.0.0.1:{}", server.port()), path, id]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Some(Self { child, output })
    }

    fn next(&mut self) -> String {
        self.output.next().expect("it runs").unwrap()
    }

    fn resign(&mut self) {
        self.child.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert_eq!(self.next(), "resigned");
    }
}

impl Drop for Curator {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn campaign(id: &str) -> Campaign {
    Campaign::new("shared/election", id, LEASE)
}

/// Ours leads, Curator's waits behind it, and ours behind that one.
#[tokio::test]
async fn candidates_of_curator_take_turns_with_ours() {
    let Some(server) = Server::shared().unwrap() else { return };
    let coordinator = ZooKeeper::new(&format!("zookeeper://127.0.0.1:{}/shared", server.port())).unwrap();
    let coordinator = &coordinator;
    let first = elect(coordinator, &campaign("first")).await;
    let Some(mut curator) = Curator::start(server, "/shared/shared/election", "curator") else { return };
    let entered = tokio::task::spawn_blocking(move || (curator.next(), curator));
    tokio::pin!(entered);
    let (said, mut curator) = loop {
        tokio::select! {
            entered = &mut entered => break entered.unwrap(),
            () = sleep(LEASE / 6) => renew(&*first).await,
        }
    };
    assert_eq!(said, "enters behind first");
    // A renewal must not use up the watch by which the other one waits.
    renew(&*first).await;
    let begun = Instant::now();
    resign(&*first).await;
    assert_eq!(curator.next(), "leads");
    println!("TAKEOVER by Curator after a resignation: {:.0} ms", begun.elapsed().as_secs_f64() * 1e3);

    let leader = until_answered(|| coordinator.leader("shared/election")).await.unwrap();
    let leader = leader.expect("Curator's leads");
    assert_eq!(leader.id, "curator");
    assert!(leader.fence > first.fence());
    let second = campaign("second");
    let waiting = elect(coordinator, &second);
    tokio::pin!(waiting);
    let early = timeout(LEASE / 2, &mut waiting).await;
    assert!(early.is_err(), "Curator's leads");
    let resigning = tokio::task::spawn_blocking(move || curator.resign());
    let second = waiting.await;
    assert!(second.fence() > leader.fence);
    resigning.await.unwrap();
    resign(&*second).await;
}
