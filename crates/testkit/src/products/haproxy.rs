//! HAProxy: one address in front of several servers.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;

use crate::{
    product::{Place, Product, finish},
    server::Server,
};

/// The timeout of one query to HAProxy's socket.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The checks of servers behind it, and the handling of connections to a server that is down.
const SETTINGS: &str = "\
defaults
  mode tcp
  timeout connect 1s
  timeout client 1m
  timeout server 1m
  timeout check 1s
  retries 3
  option redispatch
  option clitcpka
  option srvtcpka
";

/// For HTTP servers: the configuration of `docs/operate/several-servers.md`, with shorter intervals between checks.
const HTTP_SETTINGS: &str = "\
defaults
  mode http
  timeout connect 2s
  timeout client 75s
  timeout server 75s
  timeout check 1s
  option abortonclose
  option redispatch 1
";

const SETTING_NAMES: [&str; 4] = ["server=", "balance=", "certificate=", "authority="];

/// HAProxy as it is installed on this machine. Its settings are `server=PORT`, one for each server behind it. If they are
/// HTTP servers that report their state at `/readyz`, there is also `balance=ALGORITHM`. If connections on both sides are
/// encrypted, there are `certificate=FILE`, its own certificate with its key, and `authority=FILE`, the CA certificate of
/// the servers.
#[derive(Debug)]
pub struct HaProxyProduct {
    program: PathBuf,
}

impl Product for HaProxyProduct {
    const NAME: &'static str = "HAProxy";
    const PACKAGE: &'static str = "haproxy";
    const USER: &'static str = "haproxy";
    const SIGNALS: (Signal, &'static str) = (Signal::TERM, "KILL");
    const QUICK: &'static [&'static str] = &[];
    const HAS_TEMPLATE: bool = false;

    fn find() -> Option<Self> {
        let in_path = std::env::var_os("PATH").unwrap_or_default();
        let mut folders: Vec<PathBuf> = std::env::split_paths(&in_path).collect();
        // Servers are in `/usr/sbin`, which is not in the `PATH` of every account.
        folders.push("/usr/sbin".into());
        let program = folders.iter().map(|folder| folder.join("haproxy")).find(|path| path.is_file())?;
        Some(Self { program })
    }

    fn slot() -> &'static Mutex<Option<&'static Server<Self>>> {
        static SLOT: Mutex<Option<&'static Server<HaProxyProduct>>> = Mutex::new(None);
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
        if let Some(unknown) =
            place.settings.iter().find(|text| !SETTING_NAMES.iter().any(|name| text.starts_with(name)))
        {
            bail!("invalid setting {unknown}: write one of {} with its value", SETTING_NAMES.join(", "));
        }
        let setting = |name: &str| place.settings.iter().find_map(|setting| setting.strip_prefix(name));
        let (settings, name, check, balance) = match setting("balance=") {
            Some(balance) => (HTTP_SETTINGS, "windlass", "httpchk GET /readyz", balance),
            None => (SETTINGS, "broker", "tcp-check", "leastconn"),
        };
        let copy = |name: &str, to: &str| -> Result<Option<PathBuf>> {
            let Some(file) = setting(name) else { return Ok(None) };
            // Its own user cannot read the folder of the test.
            let copy = place.data.join(to);
            fs::copy(file, &copy).with_context(|| format!("cannot copy {file}"))?;
            Ok(Some(copy))
        };
        let bind = copy("certificate=", "certificate.pem")?;
        let bind = bind.map(|file| format!(" ssl crt {}", file.display())).unwrap_or_default();
        let trust = copy("authority=", "authority.pem")?;
        let trust =
            trust.map(|file| format!(" ssl verify required ca-file {}", file.display())).unwrap_or_default();
        let mut text = format!(
            "global\n  maxconn 2000\n  stats socket unix@{} mode 600 level admin\n{settings}\
             listen {name}\n  bind 127.0.0.1:{}{bind}\n  balance {balance}\n  option {check}\n  \
             default-server check inter 1s fastinter 300ms fall 2 rise 2 on-marked-down shutdown-sessions\n",
            place.data.join("stats").display(),
            place.port
        );
        let servers = place.settings.iter().filter_map(|setting| setting.strip_prefix("server="));
        for (number, server) in servers.enumerate() {
            text.push_str(&format!("  server s{number} 127.0.0.1:{server}{trust}\n"));
        }
        let file = place.data.join("haproxy.cfg");
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        // Stay in the foreground.
        command.arg("-db").arg("-f").arg(file);
        Ok(())
    }

    fn answers(&self, place: &Place<'_>, process: u32) -> Result<bool> {
        let about = ask(place, "show info")?;
        ensure!(about.lines().any(|line| line == format!("Pid: {process}")), "another HAProxy answers");
        let servers = ask(place, "show servers state")?;
        ensure!(servers.lines().any(is_up), "none of its servers is up");
        Ok(true)
    }
}

/// Whether a line of "show servers state" is of a server that passed its check: its sixth field is 2, and its twelfth is
/// 3 or more.
fn is_up(line: &str) -> bool {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u32>().ok());
    number(0).is_some() && number(5) == Some(2) && number(11) >= Some(3)
}

/// Sends a command to HAProxy's socket and returns the answer.
fn ask(place: &Place<'_>, question: &str) -> Result<String> {
    let mut stream = UnixStream::connect(place.data.join("stats"))?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    writeln!(stream, "{question}")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

impl Server<HaProxyProduct> {
    /// Starts HAProxy in front of the servers on these ports, and waits until one of them is up.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn in_front_of(ports: &[u16]) -> Result<Option<Self>> {
        Self::start_before(ports, Vec::new())
    }

    /// Starts HAProxy in front of HTTP servers on these ports, and waits until `/readyz` of one of them answers 200.
    /// `balance` is HAProxy's name of the algorithm that selects a server for each request, such as `roundrobin` or
    /// `leastconn`.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn balancing(ports: &[u16], balance: &str) -> Result<Option<Self>> {
        Self::start_before(ports, vec![format!("balance={balance}")])
    }

    /// Starts HAProxy as [`balancing`](Self::balancing), with TLS on both sides. `certificate` is a file with its own
    /// certificate and the private key, `authority` one with the CA certificate of the servers.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn encrypting(ports: &[u16], certificate: &Path, authority: &Path) -> Result<Option<Self>> {
        let files = [("certificate", certificate), ("authority", authority)];
        let files = files.map(|(name, file)| format!("{name}={}", file.display()));
        Self::start_before(ports, [vec!["balance=leastconn".to_owned()], files.to_vec()].concat())
    }

    /// Starts HAProxy in front of a server without TLS. Its own connections are encrypted; `certificate` is a file with
    /// its certificate and the private key.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn decrypting(port: u16, certificate: &Path) -> Result<Option<Self>> {
        Self::start_before(&[port], vec![format!("certificate={}", certificate.display())])
    }

    fn start_before(ports: &[u16], more: Vec<String>) -> Result<Option<Self>> {
        let servers = ports.iter().map(|port| format!("server={port}"));
        let settings: Vec<String> = servers.chain(more).collect();
        Self::start_with(&settings.iter().map(String::as_str).collect::<Vec<_>>())
    }
}
