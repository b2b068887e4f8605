//! RabbitMQ, from Debian's package `rabbitmq-server`.

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
    port::free_port,
    process::{LOOK_EVERY, Process},
    product::{self, Place, Product, finish},
    server::Server,
};

/// Debian's folder for the programs of RabbitMQ. The ones in the `PATH` run only as root or as RabbitMQ's own user.
const PROGRAMS: &str = "/usr/lib/rabbitmq/bin";

/// Debian's folder for the programs of Erlang.
const MACHINE: &str = "/usr/lib/erlang/bin";

/// The cookie: nodes that talk to one another share it.
const COOKIE: &str = "windlass-testkit";

/// The timeout of one request to a server. Joining a cluster takes longest.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(180);

/// The timeout of the first answer of a server.
const GREETING_MAX: Duration = Duration::from_secs(5);

/// The settings of every server. Settings of a test follow them and win.
const SETTINGS: &str = "\
log.console = true
log.console.level = info
vm_memory_high_watermark.absolute = 1GB
disk_free_limit.absolute = 50MB
";

/// Few threads that do not spin while they wait, because several servers share this machine. A node that does not answer
/// is given up after ten seconds instead of a minute. The kit runs the registry of names (`epmd`) itself.
const MACHINE_SETTINGS: &str = "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1} -kernel net_ticktime 10 \
                                +S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none";

/// RabbitMQ as it is installed on this machine.
#[derive(Debug)]
pub struct RabbitMqProduct {
    server: PathBuf,
    /// The folder with the programs of Erlang.
    machine: PathBuf,
}

impl Product for RabbitMqProduct {
    const NAME: &'static str = "RabbitMQ";
    const PACKAGE: &'static str = "rabbitmq-server";
    const USER: &'static str = "rabbitmq";
    const SIGNALS: (Signal, &'static str) = (Signal::TERM, "KILL");
    const QUICK: &'static [&'static str] = &[];
    // Starting takes the time, and a copy of the data does not make it shorter.
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
        // With this variable the script becomes the server, instead of a parent that forwards signals.
        command.env("RUNNING_UNDER_SYSTEMD", "true");
        Ok(())
    }

    fn answers(&self, place: &Place<'_>, _process: u32) -> Result<bool> {
        // Only this node has this name. It is the default name of the cluster, which the greeting contains.
        let node = node(place.port);
        let name = node.split('@').next().unwrap_or(&node).as_bytes();
        Ok(greeting(place.port)?.windows(name.len()).any(|window| window == name))
    }
}

impl RabbitMqProduct {
    /// Runs an Erlang expression on the server and returns its value.
    fn evaluate(&self, port: u16, expression: &str) -> Result<String> {
        // The server accepts one client of a name at a time.
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let asker = format!("a{}x{}", COUNT.fetch_add(1, Ordering::Relaxed), std::process::id());
        let mut command = Command::new(self.machine.join("erl_call"));
        command.args(["-c", COOKIE, "-h", &asker, "-sname"]).arg(node(port));
        command.arg("-timeout").arg(ANSWER_MAX.as_secs().to_string()).arg("-e");
        command.env("ERL_EPMD_PORT", registry(self)?.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start erl_call")?;
        // `erl_call` runs the expression when its input is closed.
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
    /// The URL for the administrator.
    pub fn url(&self) -> String {
        self.url_at(self.port())
    }

    /// The URL by way of another port, such as that of a [`Proxy`](crate::Proxy) or of [`HaProxy`](crate::HaProxy).
    pub fn url_at(&self, port: u16) -> String {
        format!("amqp://guest:guest@127.0.0.1:{port}/%2F")
    }

    /// The name of this node in a cluster.
    pub fn node(&self) -> String {
        node(self.port())
    }

    /// Runs an Erlang expression on the server, without the full stop, and returns its value. It replaces `rabbitmqctl`,
    /// which takes a second for each command.
    ///
    /// # Errors
    /// When the expression fails, with RabbitMQ's output.
    pub fn evaluate(&self, expression: &str) -> Result<String> {
        self.product().evaluate(self.port(), expression)
    }

    /// Writes the list of quorum queues to disk. Version 3.10 does this only every three minutes. A single server that is
    /// killed before has lost such a queue, with messages that it confirmed.
    ///
    /// # Errors
    /// When the expression fails.
    pub fn sync(&self) -> Result<()> {
        self.evaluate("[ok = dets:sync(Table) || Table <- dets:all()], ok").map(drop)
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// The name of a node that listens on this port. Nodes of other test programs have other names.
fn node(port: u16) -> String {
    format!("w{port}x{}@localhost", std::process::id())
}

/// The properties that a server sends to a client at the start of its protocol.
fn greeting(port: u16) -> Result<Vec<u8>> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, GREETING_MAX)?;
    stream.set_read_timeout(Some(GREETING_MAX))?;
    stream.write_all(b"AMQP\0\0\x09\x01")?;
    // A frame begins with type, channel and length.
    let mut head = [0; 7];
    stream.read_exact(&mut head)?;
    let length = u32::from_be_bytes([head[3], head[4], head[5], head[6]]);
    ensure!(head[0] == 1 && length < 1 << 17, "another server answers");
    let mut said = vec![0; length as usize];
    stream.read_exact(&mut said)?;
    Ok(said)
}

/// The port of the registry in which nodes find one another by name. All nodes of this program share one registry, which is
/// started before the first node. A node would start one that outlives the program.
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
        ensure!(ended.is_none() && Instant::now() < until, "epmd is not running: {}", process.last_words());
        thread::sleep(LOOK_EVERY);
    }
    *registry = Some((port, process));
    Ok(port)
}
