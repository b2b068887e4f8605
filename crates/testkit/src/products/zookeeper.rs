//! ZooKeeper, from the jars that `jars/fetch` fetches.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    process::Command,
    sync::Mutex,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use super::ensemble::{Clustered, NODES};
use crate::{
    jars::Jars,
    missing,
    port::free_port,
    product::{Place, Product, finish},
    server::Server,
};

/// The timeout of one request to a server.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// A small heap and a quick start.
const JAVA: &[&str] = &[
    "-Xms64m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.net.preferIPv4Stack=true",
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.4lw.commands.whitelist=conf,srvr",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
];

/// The settings of every server. Settings of a test follow them and win.
const SETTINGS: &str = "\
tickTime=500
initLimit=20
syncLimit=6
minSessionTimeout=1000
maxSessionTimeout=60000
maxClientCnxns=0
clientPortAddress=127.0.0.1
";

/// The setting that becomes the content of the file `myid`, and is not a line of the settings.
const NUMBER: &str = "myid=";

/// ZooKeeper as `jars/fetch` fetched it to this machine.
#[derive(Debug)]
pub struct ZooKeeperProduct {
    jars: Jars,
}

impl Product for ZooKeeperProduct {
    const NAME: &'static str = "ZooKeeper";
    const PACKAGE: &'static str = "default-jre-headless";
    // ZooKeeper runs as root without complaint, and the jars may be readable by root only.
    const USER: &'static str = "root";
    const SIGNALS: (Signal, &'static str) = (Signal::TERM, "KILL");
    const QUICK: &'static [&'static str] = &["forceSync=no"];
    // ZooKeeper needs only an empty directory.
    const HAS_TEMPLATE: bool = false;

    fn find() -> Option<Self> {
        Some(Self { jars: Jars::find("zookeeper")? })
    }

    fn how_to_get() -> String {
        Jars::how_to_get()
    }

    fn slot() -> &'static Mutex<Option<&'static Server<Self>>> {
        static SLOT: Mutex<Option<&'static Server<ZooKeeperProduct>>> = Mutex::new(None);
        &SLOT
    }

    fn program(&self) -> &Path {
        &self.jars.java
    }

    fn initialise(&self, run: &dyn Fn(&Path) -> Command, data: &Path) -> Result<()> {
        let mut command = run(Path::new("mkdir"));
        command.arg("--").arg(data);
        finish(command).map(drop)
    }

    fn arrange(&self, command: &mut Command, place: &Place<'_>) -> Result<()> {
        let file = place.data.with_file_name("zoo.cfg");
        let mut text = format!("{SETTINGS}dataDir={}\nclientPort={}\n", place.data.display(), place.port);
        for setting in place.settings {
            match setting.strip_prefix(NUMBER) {
                Some(number) => fs::write(place.data.join("myid"), number)?,
                None => text.push_str(&format!("{setting}\n")),
            }
        }
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        command.args(JAVA).arg("-cp").arg(self.jars.class_path());
        command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(file);
        Ok(())
    }

    fn answers(&self, place: &Place<'_>, _process: u32) -> Result<bool> {
        let state = ask(place.port, "srvr")?;
        ensure!(state.contains("\nMode: "), "the server does not serve yet: {state}");
        // Only this server has the directory.
        Ok(ask(place.port, "conf")?.contains(&format!("dataDir={}/", place.data.display())))
    }
}

impl Clustered for ZooKeeperProduct {
    fn nodes() -> Result<Vec<Vec<String>>> {
        let mut cluster = Vec::new();
        for number in 1..=NODES {
            cluster.push(format!("server.{number}=127.0.0.1:{}:{}", free_port()?, free_port()?));
        }
        let settings = |number: usize| [&[format!("{NUMBER}{number}")], cluster.as_slice()].concat();
        Ok((1..=NODES).map(settings).collect())
    }
}

/// Sends a four-letter command and returns the response.
fn ask(port: u16, word: &str) -> Result<String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.write_all(word.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

impl Server<ZooKeeperProduct> {
    /// Whether this server leads its ensemble.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn is_leader(&self) -> Result<bool> {
        let state = ask(self.port(), "srvr")?;
        ensure!(state.contains("\nMode: "), "the server does not serve: {state}");
        Ok(state.contains("\nMode: leader"))
    }

    /// Runs a command of ZooKeeper's own client, for example `ls /`, and returns its output.
    ///
    /// # Errors
    /// When the client fails, with its output.
    pub fn ask(&self, words: &[&str]) -> Result<String> {
        let jars = &self.product().jars;
        let mut command = Command::new(&jars.java);
        command.args(JAVA).arg("-cp").arg(jars.class_path()).arg("org.apache.zookeeper.ZooKeeperMain");
        command.args(["-server", &format!("127.0.0.1:{}", self.port())]).args(words);
        finish(command)
    }

    /// A command that runs a Java program from its source, with the jars beside the server, Apache Curator included.
    /// Returns nothing if there is no Java compiler.
    ///
    /// # Errors
    /// When there is no Java compiler and `CI` is set.
    pub fn java(&self, source: &Path) -> Result<Option<Command>> {
        let jars = &self.product().jars;
        let compiler = jars.java.canonicalize()?.with_file_name("javac");
        if !compiler.is_file() {
            missing::skip("Java's compiler", "apt-get install default-jdk-headless")?;
            return Ok(None);
        }
        let mut command = Command::new(&jars.java);
        command.args(JAVA).arg("-cp").arg(jars.class_path()).arg(source);
        Ok(Some(command))
    }
}
