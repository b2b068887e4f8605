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
    product::{Place, Product, finish},
    server::{Server, free_port},
};

/// How long one question to a server may take.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Small and quick to start. What the compiler that optimises would gain, a test does not live to see.
const JAVA: &[&str] = &[
    "-Xms128m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
];

/// What every server is set to. Settings of a test come after these and win; in them `{port}` and `{controller}` are the
/// ports that are listened on anyway.
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

/// Kafka as it was fetched to this machine.
#[derive(Debug)]
pub struct KafkaProduct {
    jars: Jars,
}

impl Product for KafkaProduct {
    const NAME: &'static str = "Kafka";
    const PACKAGE: &'static str = "default-jre-headless";
    // It does not mind running as root, and its jars may be where only root can read them.
    const USER: &'static str = "root";
    const SIGNALS: (Signal, &'static str) = (Signal::TERM, "KILL");
    // By itself it never waits for the disk.
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
        // A stranger has another one, or none.
        let rack = rack(place);
        if answer.windows(rack.len()).any(|window| window == rack.as_bytes()) {
            return Ok(true);
        }
        // It answers before the controller has let it in; then it knows of no server at all.
        ensure!(
            !answer.windows(SERVERS_NONE.len()).any(|window| window == SERVERS_NONE),
            "it is not let in yet"
        );
        Ok(false)
    }
}

/// The same for all: two of them never meet.
const CLUSTER: &str = "windlass-test-kit-0000";

/// What is asked to see who answers: version 4 of "metadata", of no topic, from a client called `t`.
const METADATA: [u8; 20] = [
    0, 0, 0, 16, // length
    0, 3, // metadata
    0, 4, // version
    0, 0, 0, 7, // which question
    0, 1, b't', // whose
    0, 0, 0, 0, // no topics
    0, // and none to be made
];

/// The beginning of an answer that names no server: of this question, not throttled.
const SERVERS_NONE: &[u8] = &[0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0];

/// Where a server says that it stands, in place of the name of a rack: nobody else has this directory.
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

/// Puts a question to a server and gives the answer without its length.
fn ask(port: u16, question: &[u8]) -> Result<Vec<u8>> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.write_all(question)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    ensure!(length < 1 << 20, "a stranger answers");
    let mut answer = vec![0; length as usize];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

/// A text as the protocol has it.
fn text(text: &str) -> Result<Vec<u8>> {
    let length = i16::try_from(text.len()).context("the name is too long")?;
    Ok([&length.to_be_bytes(), text.as_bytes()].concat())
}

impl Server<KafkaProduct> {
    /// Deletes a topic, whoever uses it.
    ///
    /// # Errors
    /// When the server does not say that it did.
    pub fn delete(&self, topic: &str) -> Result<()> {
        // Version 1 of "delete topics", from a client called `t`.
        let mut question = vec![0, 20, 0, 1, 0, 0, 0, 7, 0, 1, b't', 0, 0, 0, 1];
        question.extend(text(topic)?);
        question.extend(5_000_i32.to_be_bytes());
        let answer = self.ask(&question)?;
        ensure!(answer.ends_with(&[0, 0]), "it did not delete {topic}: {answer:?}");
        Ok(())
    }

    /// Forbids to look at a group and to be in it. For a server that has an authorizer.
    ///
    /// # Errors
    /// When the server does not say that it does.
    pub fn forbid_group(&self, group: &str) -> Result<()> {
        // A group, all that is done with it, forbidden.
        self.rule([3, 2, 2], group)
    }

    /// Lets nobody do anything with a topic but write to it. For a server that has an authorizer.
    ///
    /// # Errors
    /// When the server does not say that it does.
    pub fn allow_to_write_alone(&self, topic: &str) -> Result<()> {
        // A topic, writing, allowed. What else there is no rule for is forbidden where there is any.
        self.rule([2, 4, 3], topic)
    }

    /// A rule for who has not said who he is, by the protocol's numbers for things, for what is done with them, and for
    /// whether it may be.
    fn rule(&self, [thing, deed, verdict]: [u8; 3], name: &str) -> Result<()> {
        // Version 1 of "create ACLs", from a client called `t`: one.
        let mut question = vec![0, 30, 0, 1, 0, 0, 0, 7, 0, 1, b't', 0, 0, 0, 1, thing];
        question.extend(text(name)?);
        // Exactly this name.
        question.push(3);
        question.extend(text("User:ANONYMOUS")?);
        question.extend(text("*")?);
        question.extend([deed, verdict]);
        let answer = self.ask(&question)?;
        // Behind which question it was, how long it waits with the answer and how many there are: no error.
        ensure!(answer.get(12..14) == Some(&[0, 0]), "it takes no rule for {name}: {answer:?}");
        Ok(())
    }

    /// Puts a question to the server that has no length before it yet.
    fn ask(&self, question: &[u8]) -> Result<Vec<u8>> {
        let mut whole = u32::try_from(question.len())?.to_be_bytes().to_vec();
        whole.extend(question);
        ask(self.port(), &whole)
    }

    /// Lets a user in who proves by this mechanism, `SCRAM-SHA-256` or `SCRAM-SHA-512`, that he knows the password.
    ///
    /// # Errors
    /// When the server does not say that it does.
    pub fn let_in(&self, user: &str, mechanism: &str, password: &str) -> Result<()> {
        self.configure_user(user, "--add-config", &format!("{mechanism}=[password={password}]"))
    }

    /// Lets a user in by this mechanism no more. Connections that he has stay.
    ///
    /// # Errors
    /// When the server does not say that it does not.
    pub fn lock_out(&self, user: &str, mechanism: &str) -> Result<()> {
        self.configure_user(user, "--delete-config", mechanism)
    }

    /// By a program of the server's own: it knows how a password is kept.
    fn configure_user(&self, user: &str, change: &str, what: &str) -> Result<()> {
        let jars = &self.product().jars;
        let mut command = Command::new(&jars.java);
        command.args(JAVA).arg("-cp").arg(jars.class_path()).arg("kafka.admin.ConfigCommand");
        command.args(["--bootstrap-server", &format!("127.0.0.1:{}", self.port())]);
        command.args(["--alter", "--entity-type", "users", "--entity-name", user, change, what]);
        let said = finish(command)?;
        ensure!(said.contains("Completed updating config"), "it says: {said}");
        Ok(())
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("kafka://127.0.0.1:{}", self.port())
    }
}
