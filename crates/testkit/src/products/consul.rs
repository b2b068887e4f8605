//! Consul: a server agent, which `build` builds from its Go module.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
};

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use crate::{
    http,
    jars::cache,
    port::free_port,
    product::{self, Place, Product, finish},
    server::Server,
};

/// The variable that names the folder with the servers that were built.
const VARIABLE: &str = "TESTKIT_SERVERS";

/// The settings of every server, in Consul's configuration language. Settings of a test follow them and win.
const SETTINGS: &str = r#"
server = true
bootstrap_expect = 1
bind_addr = "127.0.0.1"
client_addr = "127.0.0.1"
log_level = "warn"
disable_update_check = true
disable_host_node_id = true
leave_on_terminate = false
session_ttl_min = "500ms"
performance { raft_multiplier = 1 }
connect { enabled = false }
ui_config { enabled = false }
limits { http_max_conns_per_client = 2000 }
"#;

/// Consul as `build` built it on this machine.
#[derive(Debug)]
pub struct ConsulProduct {
    program: PathBuf,
}

impl Product for ConsulProduct {
    const NAME: &'static str = "Consul";
    const PACKAGE: &'static str = "golang-go";
    // Consul runs as root without complaint, and the build may be readable by root only.
    const USER: &'static str = "root";
    const SIGNALS: (Signal, &'static str) = (Signal::INT, "KILL");
    const QUICK: &'static [&'static str] = &[];
    // Consul needs only an empty directory.
    const HAS_TEMPLATE: bool = false;

    fn find() -> Option<Self> {
        let program = cache(VARIABLE, "servers")?.join("consul/program");
        program.is_file().then_some(Self { program })
    }

    fn how_to_get() -> String {
        "apt-get install golang-go, then crates/testkit/build, which takes minutes once".to_owned()
    }

    fn slot() -> &'static Mutex<Option<&'static Server<Self>>> {
        static SLOT: Mutex<Option<&'static Server<ConsulProduct>>> = Mutex::new(None);
        &SLOT
    }

    fn program(&self) -> &Path {
        &self.program
    }

    fn initialise(&self, run: &dyn Fn(&Path) -> Command, data: &Path) -> Result<()> {
        let mut command = run(Path::new("mkdir"));
        command.arg("--").arg(data);
        finish(command).map(drop)
    }

    fn arrange(&self, command: &mut Command, place: &Place<'_>) -> Result<()> {
        let ports = place.data.with_file_name("ports");
        if !ports.exists() {
            // After a restart, a server recognises itself in its data by its address.
            fs::write(&ports, format!("server = {}\nserf_lan = {}\n", free_port()?, free_port()?))?;
        }
        let ports = fs::read_to_string(&ports)?;
        let file = place.data.with_file_name("agent.hcl");
        let text = format!(
            "{SETTINGS}node_name = \"{}\"\ndata_dir = \"{}\"\n\
             ports {{\n{ports}http = {}\nserf_wan = -1\ndns = -1\ngrpc = -1\ngrpc_tls = -1\nhttps = -1\n}}\n",
            product::name(place.data),
            place.data.display(),
            place.port
        );
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        command.arg("-config-file").arg(file);
        for setting in place.settings {
            command.arg("-hcl").arg(setting);
        }
        Ok(())
    }

    fn answers(&self, place: &Place<'_>, _process: u32) -> Result<bool> {
        let node = product::name(place.data);
        let own = format!("\"NodeName\":\"{node}\"");
        if !http::ask(place.port, "GET", "/v1/agent/self", "")?.contains(&own) {
            return Ok(false);
        }
        let leader = http::ask(place.port, "GET", "/v1/status/leader", "")?;
        ensure!(leader.contains(':'), "the server has no leader yet");
        // A session belongs to a node, and a server registers its node only after it has a leader.
        let registered = http::ask(place.port, "GET", &format!("/v1/catalog/node/{node}"), "")?;
        ensure!(registered.contains("\"Node\":{"), "the server has not registered itself yet");
        Ok(true)
    }
}

impl Server<ConsulProduct> {
    /// Sends a request to the API, for example `DELETE` of `/v1/kv/a`, and returns the body of the response.
    ///
    /// # Errors
    /// When there is no response, or its status is not a success.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> Result<String> {
        http::ask(self.port(), method, path, body)
    }
}
