//! Kafka: one node that is broker and controller, from the jars that `jars/fetch` fetches.

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

use crate::{
    jars::Jars,
    port::free_port,
    product::{Place, Product, finish},
    server::Server,
};

/// The timeout of one request to a server.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// A small heap and a quick start. A test ends before the optimising compiler would pay off.
const JAVA: &[&str] = &[
    "-Xms128m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
];

/// The settings of every server. Settings of a test follow them and win. In them, `{port}` and `{controller}` stand in for
/// the ports of the two standard listeners.
const SETTINGS: &str = "\
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
auto.create.topics.enable=false
log.cleaner.enable=false
log.segment.bytes=16777216
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
# A killed server is let in again when the controller, which is the same process, has forgotten that it lived.
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=300
";

/// Kafka as `jars/fetch` fetched it to this machine.
#[derive(Debug)]
pub struct KafkaProduct {
    jars: Jars,
}

impl Product for KafkaProduct {
    const NAME: &'static str = "Kafka";
    const PACKAGE: &'static str = "default-jre-headless";
    // Kafka runs as root without complaint, and the jars may be readable by root only.
    const USER: &'static str = "root";
    const SIGNALS: (Signal, &'static str) = (Signal::TERM, "KILL");
    // Kafka never waits for the disk unless a setting demands it.
    const QUICK: &'static [&'static str] = &[];
    const HAS_TEMPLATE: bool = true;

    fn find() -> Option<Self> {
        Some(Self { jars: Jars::find("kafka")? })
    }

    fn how_to_get() -> String {
        Jars::how_to_get()
    }

    fn slot() -> &'static Mutex<Option<&'static Server<Self>>> {
        static SLOT: Mutex<Option<&'static Server<KafkaProduct>>> = Mutex::new(None);
        &SLOT
    }

    fn program(&self) -> &Path {
        &self.jars.java
    }

    fn initialise(&self, run: &dyn Fn(&Path) -> Command, data: &Path) -> Result<()> {
        let file = data.with_file_name("format.properties");
        write_settings(&file, &Place { data, port: 1, settings: &[] }, 2)?;
        let mut command = run(&self.jars.java);
        command.args(JAVA).arg("-cp").arg(self.jars.class_path());
        command.args(["kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER, "--config"]).arg(file);
        finish(command).map(drop)
    }

    fn arrange(&self, command: &mut Command, place: &Place<'_>) -> Result<()> {
        let file = place.data.with_file_name("server.properties");
        write_settings(&file, place, free_port()?)?;
        command.args(JAVA).arg("-cp").arg(self.jars.class_path()).arg("kafka.Kafka").arg(file);
        Ok(())
    }

    fn answers(&self, place: &Place<'_>, _process: u32) -> Result<bool> {
        let answer = ask(place.port, &METADATA)?;
        // Another server has another rack, or none.
        let rack = rack(place);
        if answer.windows(rack.len()).any(|window| window == rack.as_bytes()) {
            return Ok(true);
        }
        // The server answers before the controller has registered it. Then the answer contains no servers.
        ensure!(
            !answer.windows(SERVERS_NONE.len()).any(|window| window == SERVERS_NONE),
            "the controller has not registered the server yet"
        );
        Ok(false)
    }
}

/// All servers use the same id, because two of them never talk to one another.
const CLUSTER: &str = "windlass-test-kit-0000";

/// The request that shows which server answers: version 4 of "metadata", for no topic, from a client called `t`.
const METADATA: [u8; 20] = [
    0, 0, 0, 16, // length
    0, 3, // metadata
    0, 4, // version
    0, 0, 0, 7, // correlation id
    0, 1, b't', // client id
    0, 0, 0, 0, // no topics
    0, // and create none
];

/// The beginning of an answer without servers: the correlation id of the request, no throttling, an empty list.
const SERVERS_NONE: &[u8] = &[0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0];

/// The server's directory, which it reports as the name of its rack. No other server has this directory.
fn rack(place: &Place<'_>) -> String {
    place.data.display().to_string()
}

fn write_settings(file: &Path, place: &Place<'_>, controller: u16) -> Result<()> {
    let (data, port) = (place.data.display(), place.port);
    let mut text = format!(
        "{SETTINGS}log.dirs={data}\nbroker.rack={}\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
         controller.quorum.voters=1@127.0.0.1:{controller}\n",
        rack(place),
    );
    for setting in place.settings {
        text.push_str(
            &setting.replace("{port}", &port.to_string()).replace("{controller}", &controller.to_string()),
        );
        text.push('\n');
    }
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Sends a request to a server and returns the response without its length.
fn ask(port: u16, question: &[u8]) -> Result<Vec<u8>> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.write_all(question)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    ensure!(length < 1 << 20, "another server answers");
    let mut answer = vec![0; length as usize];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

/// A string in the encoding of the protocol.
fn text(text: &str) -> Result<Vec<u8>> {
    let length = i16::try_from(text.len()).context("the name is too long")?;
    Ok([&length.to_be_bytes(), text.as_bytes()].concat())
}

impl Server<KafkaProduct> {
    /// The folder of its jars, among them Kafka's client library for Java.
    #[must_use]
    pub fn jars(&self) -> &Path {
        self.product().jars.folder()
    }

    /// Deletes a topic, even if clients use it.
    ///
    /// # Errors
    /// When the server does not confirm it.
    pub fn delete(&self, topic: &str) -> Result<()> {
        // Version 1 of "delete topics", from a client called `t`.
        let mut question = vec![0, 20, 0, 1, 0, 0, 0, 7, 0, 1, b't', 0, 0, 0, 1];
        question.extend(text(topic)?);
        question.extend(5_000_i32.to_be_bytes());
        let answer = self.ask(&question)?;
        ensure!(answer.ends_with(&[0, 0]), "the server did not delete {topic}: {answer:?}");
        Ok(())
    }

    /// Forbids anonymous clients to describe and to join a group. Needs a server with an authorizer.
    ///
    /// # Errors
    /// When the server does not confirm it.
    pub fn forbid_group(&self, group: &str) -> Result<()> {
        // A group, all operations, deny.
        self.rule([3, 2, 2], group)
    }

    /// Allows anonymous clients to write to a topic, and forbids all other operations. Needs a server with an authorizer.
    ///
    /// # Errors
    /// When the server does not confirm it.
    pub fn allow_to_write_alone(&self, topic: &str) -> Result<()> {
        // A topic, write, allow. Once a resource has a rule, operations without a rule are forbidden.
        self.rule([2, 4, 3], topic)
    }

    /// Adds a rule for anonymous clients. The numbers are the protocol's resource type, operation, and permission.
    fn rule(&self, [thing, deed, verdict]: [u8; 3], name: &str) -> Result<()> {
        // Version 1 of "create ACLs", from a client called `t`, with one rule.
        let mut question = vec![0, 30, 0, 1, 0, 0, 0, 7, 0, 1, b't', 0, 0, 0, 1, thing];
        question.extend(text(name)?);
        // The pattern type: exactly this name.
        question.push(3);
        question.extend(text("User:ANONYMOUS")?);
        question.extend(text("*")?);
        question.extend([deed, verdict]);
        let answer = self.ask(&question)?;
        // After the correlation id, the throttle time and the number of results comes the error code; 0 is success.
        ensure!(answer.get(12..14) == Some(&[0, 0]), "the server did not add a rule for {name}: {answer:?}");
        Ok(())
    }

    /// Sends a request, with its length in front.
    fn ask(&self, question: &[u8]) -> Result<Vec<u8>> {
        let mut whole = u32::try_from(question.len())?.to_be_bytes().to_vec();
        whole.extend(question);
        ask(self.port(), &whole)
    }

    /// Creates a user who may log in with this password by this mechanism, `SCRAM-SHA-256` or `SCRAM-SHA-512`.
    ///
    /// # Errors
    /// When the server does not confirm it.
    pub fn let_in(&self, user: &str, mechanism: &str, password: &str) -> Result<()> {
        self.configure_user(user, "--add-config", &format!("{mechanism}=[password={password}]"))
    }

    /// Removes a user's password for this mechanism. Open connections of the user stay open.
    ///
    /// # Errors
    /// When the server does not confirm it.
    pub fn lock_out(&self, user: &str, mechanism: &str) -> Result<()> {
        self.configure_user(user, "--delete-config", mechanism)
    }

    /// Uses a program of Kafka, because Kafka defines how passwords are stored.
    fn configure_user(&self, user: &str, change: &str, what: &str) -> Result<()> {
        let jars = &self.product().jars;
        let mut command = Command::new(&jars.java);
        command.args(JAVA).arg("-cp").arg(jars.class_path()).arg("kafka.admin.ConfigCommand");
        command.args(["--bootstrap-server", &format!("127.0.0.1:{}", self.port())]);
        command.args(["--alter", "--entity-type", "users", "--entity-name", user, change, what]);
        let said = finish(command)?;
        ensure!(said.contains("Completed updating config"), "the server did not confirm it: {said}");
        Ok(())
    }

    /// The URL of the server.
    pub fn url(&self) -> String {
        format!("kafka://127.0.0.1:{}", self.port())
    }
}
