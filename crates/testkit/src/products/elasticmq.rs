//! ElasticMQ, a server for the protocol of SQS, from the jars that `jars/fetch` fetches.

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

/// The timeout of one request to a server.
const ANSWER_MAX: Duration = Duration::from_secs(5);

const JAVA: &[&str] = &["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

/// ElasticMQ as `jars/fetch` fetched it to this machine.
#[derive(Debug)]
pub struct ElasticMqProduct {
    jars: Jars,
}

impl Product for ElasticMqProduct {
    const NAME: &'static str = "ElasticMQ";
    const PACKAGE: &'static str = "default-jre-headless";
    // ElasticMQ runs as root without complaint, and the jars may be readable by root only.
    const USER: &'static str = "root";
    const SIGNALS: (Signal, &'static str) = (Signal::TERM, "KILL");
    const QUICK: &'static [&'static str] =
        &["messages-storage.enabled=false", "queues-storage.enabled=false"];
    // ElasticMQ needs only an empty directory.
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
        // The URL of a queue contains the account, and the server of another test has another account.
        let answer = ask(place.port, &format!("Action=GetQueueUrl&QueueName={MARK}"))?;
        Ok(answer.contains(&account))
    }
}

/// A queue that exists on every server, to check which server answers.
const MARK: &str = "windlass-test-kit";

/// An account number in the form that SQS uses. It is derived from the directory, which only this server has.
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

/// Sends a request to a server and returns the complete response.
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
        bail!("the server closed the connection");
    }
    Ok(answer)
}

impl Server<ElasticMqProduct> {
    /// Sends a request of the form `Action=…&QueueUrl=…` and returns the complete response.
    ///
    /// # Errors
    /// When the server does not respond. An error that the server reports is a response.
    pub fn ask(&self, question: &str) -> Result<String> {
        ask(self.port(), question)
    }

    /// The URL of the server, with credentials: ElasticMQ accepts any.
    pub fn url(&self) -> String {
        self.url_at(self.port())
    }

    /// The beginning of the URLs of its queues, up to the account, as clients of SQS know it.
    ///
    /// # Errors
    /// When the server does not respond as expected.
    pub fn queue_urls(&self) -> Result<String> {
        let answer = self.ask(&format!("Action=GetQueueUrl&QueueName={MARK}"))?;
        let url = answer.split_once("<QueueUrl>").and_then(|(_, rest)| rest.split_once(&format!("/{MARK}<")));
        Ok(url.with_context(|| format!("no URL of a queue in {answer}"))?.0.to_owned())
    }

    /// The URL by way of another port, such as that of a [`Proxy`](crate::Proxy).
    pub fn url_at(&self, port: u16) -> String {
        format!("sqs+http://key:secret@127.0.0.1:{port}")
    }
}
