//! RabbitMQ, as Debian's package `rabbitmq-server` has it.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use crate::{
    home,
    process::{LOOK_EVERY, Process},
    product::{self, Place, Product, finish},
    server::{Server, free_port},
};

/// Where Debian has its programs. Those on the path refuse to run as anybody but root and their own user.
const PROGRAMS: &str = "/usr/lib/rabbitmq/bin";

/// Where Debian has those of the machine that it runs on.
const MACHINE: &str = "/usr/lib/erlang/bin";

/// Nodes that talk to one another share it.
const COOKIE: &str = "windlass-testkit";

/// How long one question to a server may take. Joining a cluster is the longest.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(60);

/// How long the first answer of a server may take.
const GREETING_MAX: Duration = Duration::from_secs(5);

/// What every server is set to. Settings of a test come after these and win.
const SETTINGS: &str = "\
log.console = true
log.console.level = info
vm_memory_high_watermark.absolute = 1GB
disk_free_limit.absolute = 50MB
";

/// Few threads that do not spin while they wait: there is not one machine to each server here. A node that does not
/// answer is given up after ten seconds instead of a minute. The registry of names is this kit's.
const MACHINE_SETTINGS: &str = "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1} -kernel net_ticktime 10 \
                                +S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none";

/// RabbitMQ as it is installed on this machine.
#[derive(Debug)]
pub struct RabbitMqProduct {
    server: PathBuf,
    /// Where the programs of the machine are.
    machine: PathBuf,
}

impl Product for RabbitMqProduct {
    const NAME: &'static str = "RabbitMQ";
    const PACKAGE: &'static str = "rabbitmq-server";
    const USER: &'static str = "rabbitmq";
    const SIGNALS: (Signal, &'static str) = (Signal::TERM, "KILL");
    const QUICK: &'static [&'static str] = &[];
    // What takes long is starting, which no copy makes shorter.
    const HAS_TEMPLATE: bool = false;

    fn find() -> Option<Self> {
        let server = Path::new(PROGRAMS).join("rabbitmq-server");
        let machine = PathBuf::from(MACHINE);
        let is_there = server.is_file() && machine.join("erl_call").is_file();
        is_there.then_some(Self { server, machine })
    }

    fn slot() -> &'static Mutex<Option<&'static Server<Self>>> {
        static SLOT: Mutex<Option<&'static Server<RabbitMqProduct>>> = Mutex::new(None);
        &SLOT
    }

    fn program(&self) -> &Path {
        &self.server
    }

    fn initialise(&self, run: &dyn Fn(&Path) -> Command, data: &Path) -> Result<()> {
        let mut command = run(Path::new("sh"));
        let script =
            "mkdir -- \"$1\" && cd -- \"$1\" && printf %s \"$2\" >.erlang.cookie && chmod 400 .erlang.cookie";
        command.arg("-c").arg(script).arg("initialise").arg(data).arg(COOKIE);
        finish(command).map(drop)
    }

    fn arrange(&self, command: &mut Command, place: &Place<'_>) -> Result<()> {
        let data = place.data;
        let mut settings = SETTINGS.to_owned();
        for setting in place.settings {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            settings.push_str(&format!("{name} = {value}\n"));
        }
        let write = |name: &str, text: &str| {
            let path = data.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            anyhow::Ok(path)
        };
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LANG", "C.UTF-8");
        command.env("RABBITMQ_CONFIG_FILE", write("rabbitmq.conf", &settings)?);
        command.env("RABBITMQ_ENABLED_PLUGINS_FILE", write("enabled_plugins", "[].\n")?);
        command.env("RABBITMQ_CONF_ENV_FILE", data.join("none"));
        command.env("HOME", data).env("RABBITMQ_BASE", data).env("RABBITMQ_MNESIA_BASE", data.join("mnesia"));
        command.env("RABBITMQ_LOG_BASE", data).env("RABBITMQ_LOGS", "-");
        command.env("RABBITMQ_PID_FILE", data.join("pid"));
        command.env("RABBITMQ_NODENAME", node(place.port));
        command.env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1");
        command.env("RABBITMQ_NODE_PORT", place.port.to_string());
        command.env("RABBITMQ_DIST_PORT", free_port()?.to_string());
        command.env("ERL_EPMD_PORT", registry(self)?.to_string());
        command.env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", MACHINE_SETTINGS);
        // The script becomes the server then, instead of a parent that passes signals on.
        command.env("RUNNING_UNDER_SYSTEMD", "true");
        Ok(())
    }

    fn answers(&self, place: &Place<'_>, _process: u32) -> Result<bool> {
        // Nobody else has this name. It is the cluster's by default.
        let node = node(place.port);
        let name = node.split('@').next().unwrap_or(&node).as_bytes();
        Ok(greeting(place.port)?.windows(name.len()).any(|window| window == name))
    }
}

impl RabbitMqProduct {
    /// Runs an expression in the language of the server on it, and gives its value.
    fn evaluate(&self, port: u16, expression: &str) -> Result<String> {
        // A server knows those who ask by their names, and lets one of a name in at a time.
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let asker = format!("a{}x{}", COUNT.fetch_add(1, Ordering::Relaxed), std::process::id());
        let mut command = Command::new(self.machine.join("erl_call"));
        command.args(["-c", COOKIE, "-h", &asker, "-sname"]).arg(node(port));
        command.arg("-timeout").arg(ANSWER_MAX.as_secs().to_string()).arg("-e");
        command.env("ERL_EPMD_PORT", registry(self)?.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start erl_call")?;
        // Closed behind the expression: that is its end.
        let mut input = child.stdin.take().context("erl_call has no input")?;
        writeln!(input, "{expression}.")?;
        drop(input);
        let output = child.wait_with_output()?;
        let (said, complaint) = (lossy(&output.stdout), lossy(&output.stderr));
        ensure!(output.status.success(), "erl_call: {}: {said} {complaint}", output.status);
        let value = said.strip_prefix("{ok, ").and_then(|said| said.strip_suffix('}'));
        value.map(str::to_owned).with_context(|| format!("{expression}: {said} {complaint}"))
    }
}

impl Server<RabbitMqProduct> {
    /// Where it is, for the administrator.
    pub fn url(&self) -> String {
        self.url_at(self.port())
    }

    /// Where it is by way of another port: a [`Proxy`](crate::Proxy)'s, or [`HaProxy`](crate::HaProxy)'s.
    pub fn url_at(&self, port: u16) -> String {
        format!("amqp://guest:guest@127.0.0.1:{port}/%2F")
    }

    /// The name that it has among the nodes of a cluster.
    pub fn node(&self) -> String {
        node(self.port())
    }

    /// Runs an expression in the language of the server on it, without the full stop, and gives its value. For what
    /// `rabbitmqctl` does, which takes a second for each word.
    ///
    /// # Errors
    /// When it does not run, and what it says.
    pub fn evaluate(&self, expression: &str) -> Result<String> {
        self.product().evaluate(self.port(), expression)
    }

    /// Writes down which quorum queues there are, which version 3.10 does every three minutes by itself. A server alone
    /// that is killed before has lost such a queue, with messages that it confirmed.
    ///
    /// # Errors
    /// When it does not run.
    pub fn sync(&self) -> Result<()> {
        self.evaluate("[ok = dets:sync(Table) || Table <- dets:all()], ok").map(drop)
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// What a node is called that listens on this port, and none of another test program.
fn node(port: u16) -> String {
    format!("w{port}x{}@localhost", std::process::id())
}

/// What a server says about itself to whoever wants to speak its protocol.
fn greeting(port: u16) -> Result<Vec<u8>> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, GREETING_MAX)?;
    stream.set_read_timeout(Some(GREETING_MAX))?;
    stream.write_all(b"AMQP\0\0\x09\x01")?;
    // A frame: type, channel, length.
    let mut head = [0; 7];
    stream.read_exact(&mut head)?;
    let length = u32::from_be_bytes([head[3], head[4], head[5], head[6]]);
    ensure!(head[0] == 1 && length < 1 << 17, "a stranger answers");
    let mut said = vec![0; length as usize];
    stream.read_exact(&mut said)?;
    Ok(said)
}

/// The port of the registry in which nodes find one another by name. All nodes of this program share one, which is
/// started before the first of them: they would start one that outlives them.
fn registry(product: &RabbitMqProduct) -> Result<u16> {
    static REGISTRY: Mutex<Option<(u16, Process)>> = Mutex::new(None);
    let mut registry = REGISTRY.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some((port, _)) = &*registry {
        return Ok(*port);
    }
    let account = product::account::<RabbitMqProduct>()?;
    let log = home::directory("epmd", &account)?.join("log");
    let port = free_port()?;
    let mut command = account.command("KILL", &product.machine.join("epmd"));
    command.arg("-port").arg(port.to_string()).args(["-address", "127.0.0.1"]);
    let mut process = Process::spawn(command, &log)?;
    let until = Instant::now() + GREETING_MAX;
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        let ended = process.ended()?;
        ensure!(ended.is_none() && Instant::now() < until, "epmd does not run: {}", process.last_words());
        thread::sleep(LOOK_EVERY);
    }
    *registry = Some((port, process));
    Ok(port)
}
