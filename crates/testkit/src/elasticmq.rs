//! ElasticMQ, which speaks the protocol of SQS, from the jars that `jars/fetch` fetches.

use std::{
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    process::Command,
    sync::Mutex,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;

use crate::{
    jars::Jars,
    product::{Place, Product, finish},
    server::Server,
};

/// How long one question to a server may take.
const ANSWER_MAX: Duration = Duration::from_secs(5);

const JAVA: &[&str] = &["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

/// ElasticMQ as it was fetched to this machine.
#[derive(Debug)]
pub struct ElasticMqProduct {
    jars: Jars,
}

impl Product for ElasticMqProduct {
    const NAME: &'static str = "ElasticMQ";
    const PACKAGE: &'static str = "default-jre-headless";
    // It does not mind running as root, and its jars may be where only root can read them.
    const USER: &'static str = "root";
    const SIGNALS: (Signal, &'static str) = (Signal::TERM, "KILL");
    const QUICK: &'static [&'static str] =
        &["messages-storage.enabled=false", "queues-storage.enabled=false"];
    // An empty directory will do.
    const HAS_TEMPLATE: bool = false;

    fn find() -> Option<Self> {
        Some(Self { jars: Jars::find("elasticmq")? })
    }

    fn how_to_get() -> String {
        Jars::how_to_get()
    }

    fn slot() -> &'static Mutex<Option<&'static Server<Self>>> {
        static SLOT: Mutex<Option<&'static Server<ElasticMqProduct>>> = Mutex::new(None);
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
        let file = place.data.with_file_name("server.conf");
        fs::write(&file, settings(place)).with_context(|| format!("cannot write {}", file.display()))?;
        command.args(JAVA).arg(format!("-Dconfig.file={}", file.display()));
        command.arg("-cp").arg(self.jars.class_path()).arg("org.elasticmq.server.Main");
        Ok(())
    }

    fn answers(&self, place: &Place<'_>, _process: u32) -> Result<bool> {
        let account = account(place);
        // A queue's address has the account in it, and a stranger's is another one.
        let answer = ask(place.port, &format!("Action=GetQueueUrl&QueueName={MARK}"))?;
        Ok(answer.contains(&account))
    }
}

/// A queue that every server has, and nobody uses.
const MARK: &str = "windlass-test-kit";

/// A number in the form that accounts of SQS have, from its directory, which nobody else has.
fn account(place: &Place<'_>) -> String {
    let mut hasher = DefaultHasher::new();
    place.data.hash(&mut hasher);
    format!("{:012}", hasher.finish() % 1_000_000_000_000)
}

fn settings(place: &Place<'_>) -> String {
    let Place { data, port, settings } = place;
    let data = data.display();
    let account = account(place);
    let mut text = format!(
        r#"include classpath("application.conf")
pekko.loglevel = "WARNING"
node-address {{ protocol = http, host = 127.0.0.1, port = {port}, context-path = "" }}
generate-node-address = false
rest-sqs {{ enabled = true, bind-port = {port}, bind-hostname = "127.0.0.1", sqs-limits = strict }}
rest-stats {{ enabled = false }}
aws {{ accountId = "{account}" }}
queues {{ {MARK} {{ }} }}
messages-storage {{ enabled = true, driver-class = "org.h2.Driver", uri = "jdbc:h2:{data}/messages", username = "", password = "" }}
queues-storage {{ enabled = true, path = "{data}/queues.conf" }}
"#
    );
    for setting in *settings {
        text.push_str(setting);
        text.push('\n');
    }
    text
}

/// Puts a question to a server and gives the whole answer.
fn ask(port: u16, question: &str) -> Result<String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    let request = format!(
        "GET /?{question}&Version=2012-11-05 HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer.is_empty() {
        bail!("it closed the connection");
    }
    Ok(answer)
}

impl Server<ElasticMqProduct> {
    /// Puts a question in the form `Action=…&QueueUrl=…` and gives the whole answer.
    ///
    /// # Errors
    /// When it does not answer. What it says against the question is an answer.
    pub fn ask(&self, question: &str) -> Result<String> {
        ask(self.port(), question)
    }

    /// Where it is, with credentials: any will do.
    pub fn url(&self) -> String {
        self.url_at(self.port())
    }

    /// Where it is by way of another port: a [`Proxy`](crate::Proxy)'s.
    pub fn url_at(&self, port: u16) -> String {
        format!("sqs+http://key:secret@127.0.0.1:{port}")
    }
}
