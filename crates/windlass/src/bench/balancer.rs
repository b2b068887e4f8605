//! HAProxy in front of the servers of a benchmark, as `docs/operate/several-servers.md` says.

use std::{net::TcpListener, path::Path, time::Duration};

use anyhow::Context as _;
use tokio::{net::TcpStream, process::Command, time};

use crate::supervisor::Supervisor;

/// How long it may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);

/// Starts HAProxy in front of servers, which sends each request to the one with the fewest connections. Returns its address
/// once it listens.
pub(super) async fn start(
    processes: &mut Supervisor,
    dir: &Path,
    servers: &[String],
) -> anyhow::Result<String> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut text = format!(
        "defaults\n  mode http\n  timeout connect 2s\n  timeout client 75s\n  timeout server 75s\n  \
         option abortonclose\n  option redispatch 1\n\
         listen windlass\n  bind 127.0.0.1:{port}\n  balance leastconn\n  option httpchk GET /readyz\n"
    );
    for (number, server) in servers.iter().enumerate() {
        let address = server.strip_prefix("http://").context("a server's address is no HTTP URL")?;
        text.push_str(&format!("  server s{number} {address} check inter 2s\n"));
    }
    let file = dir.join("haproxy.cfg");
    std::fs::write(&file, text).context("cannot write the configuration of HAProxy")?;
    // Not on the path of everybody.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = std::env::split_paths(&path).collect();
    folders.push("/usr/sbin".into());
    let mut haproxy = Command::new("haproxy");
    haproxy.env("PATH", std::env::join_paths(folders)?).args(["-db", "-q", "-f"]).arg(&file);
    processes.start("HAProxy", haproxy, None).context("install the package haproxy")?;
    let listens = async {
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            processes.check()?;
            time::sleep(Duration::from_millis(10)).await;
        }
        anyhow::Ok(())
    };
    time::timeout(PATIENCE, listens).await.context("HAProxy does not listen")??;
    Ok(format!("http://127.0.0.1:{port}"))
}
