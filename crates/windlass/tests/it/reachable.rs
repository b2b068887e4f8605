//! A server at an address that is not loopback, in a network namespace of the test.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Output, Stdio},
};

use windlass_testkit::skip;

use super::{
    site::{PROGRAM, script, text, until},
    tls::{ADMIN, make_authority, make_certificate},
};

/// An address for documentation, which the namespace has beside loopback.
const ADDRESS: &str = "192.0.2.1";

const PORT: u16 = 7743;

const FLOWS: &str = "
flow: shop
steps: [ { name: one, run: m.echo } ]
---
flow: depot
steps: [ { name: one, run: m.echo } ]
";

/// A network namespace. It ends with the process that holds it.
struct Network {
    holder: Child,
}

impl Network {
    /// `None` if the test is skipped.
    fn open() -> Option<Self> {
        let holder = Command::new("unshare").args(["--net", "sleep", "600"]).spawn();
        let Ok(holder) = holder else {
            skip("unshare, of a network namespace", "apt-get install util-linux, and run the test as root")
                .unwrap();
            return None;
        };
        let network = Self { holder };
        let host = fs::read_link("/proc/self/ns/net").unwrap();
        let of_holder = format!("/proc/{}/ns/net", network.holder.id());
        until("the namespace is there", || {
            fs::read_link(&of_holder).ok().filter(|namespace| *namespace != host).map(drop)
        });
        let address = format!("{ADDRESS}/32");
        for arguments in [&["addr", "add", &address, "dev", "lo"][..], &["link", "set", "lo", "up"]] {
            let output = network.command("ip").args(arguments).output().unwrap();
            assert!(output.status.success(), "apt-get install iproute2: {output:?}");
        }
        Some(network)
    }

    /// A command in this network. It becomes the program, under the same process id.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.holder.id())).arg(program);
        command
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.holder.kill().unwrap();
        self.holder.wait().unwrap();
    }
}

/// Programs that end with the test.
struct Programs(Vec<Child>);

impl Drop for Programs {
    fn drop(&mut self) {
        for program in &mut self.0 {
            program.kill().unwrap();
            program.wait().unwrap();
        }
    }
}

struct Reachable {
    network: Network,
    folder: tempfile::TempDir,
}

impl Reachable {
    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn server(&self, arguments: &[&str]) -> Command {
        let mut command = self.network.command(PROGRAM);
        command
            .args(["server", "--store", "memory:", "--listen", &format!("{ADDRESS}:{PORT}")])
            .args(arguments);
        command
    }

    /// A command for people, with a token.
    fn run(&self, token: &str, arguments: &[&str]) -> Output {
        let mut command = self.network.command(PROGRAM);
        command.args(arguments).env("WINDLASS_SERVER", format!("https://{ADDRESS}:{PORT}"));
        command.env("WINDLASS_CA_FILE", self.file("authority.pem")).env("WINDLASS_TOKEN", token);
        command.output().unwrap()
    }

    #[track_caller]
    fn works(&self, token: &str, arguments: &[&str]) -> String {
        let output = self.run(token, arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
        text(&output.stdout).trim().to_owned()
    }

    fn worker(&self, token: &str) -> Command {
        let mut command = self.network.command(PROGRAM);
        command.args([
            "worker",
            "--modules",
            &self.file("modules"),
            "--ca-file",
            &self.file("authority.pem"),
        ]);
        command.args(["--server", &format!("https://{ADDRESS}:{PORT}")]).env("WINDLASS_TOKEN", token);
        command.stderr(Stdio::piped());
        command
    }

    /// The status of a submit of this flow, as curl sends it.
    fn status_of_submit(&self, token: &str, flow: &str) -> String {
        let mut curl = self.network.command("curl");
        curl.args(["-sS", "--cacert", &self.file("authority.pem"), "-o", "/dev/null", "-w", "%{http_code}"]);
        curl.args(["-H", &format!("Authorization: Bearer {token}"), "-H", "Content-Type: application/json"]);
        curl.args(["-d", &format!("{{\"flow\":\"{flow}\"}}")]);
        let output = curl.arg(format!("https://{ADDRESS}:{PORT}/v1/tasks")).output().unwrap();
        text(&output.stdout) + &text(&output.stderr)
    }
}

#[test]
fn a_server_that_others_reach_lets_in_those_with_the_right_token_alone() {
    let Some(network) = Network::open() else { return };
    let here = Reachable { network, folder: tempfile::tempdir().unwrap() };
    make_authority(here.folder.path(), "authority");
    make_certificate(here.folder.path(), "server", "authority", &format!("IP:{ADDRESS}"), "2");
    fs::write(here.file("admin-token"), ADMIN).unwrap();
    fs::write(here.file("flows.yaml"), FLOWS).unwrap();
    let module = here.folder.path().join("modules/m");
    fs::create_dir_all(&module).unwrap();
    script(&module.join("echo"), "echo '{}'");

    // Without tokens, or without TLS, nothing listens there.
    let (certificate, key, token) =
        (here.file("server.pem"), here.file("server.key"), here.file("admin-token"));
    let encrypted = ["--tls-cert", &*certificate, "--tls-key", &*key];
    let guarded = ["--require-tokens", "--admin-token-file", &*token];
    for (arguments, missing) in
        [(&[][..], "--require-tokens"), (&guarded[..], "--tls-cert"), (&encrypted[..], "--require-tokens")]
    {
        let output = here.server(arguments).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(missing), "{arguments:?}: {said}");
    }

    let mut server = here.server(&[&encrypted[..], &guarded].concat());
    let mut server = server.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut programs = Programs(vec![server]);
    assert_eq!(line.trim(), format!("listening on https://{ADDRESS}:{PORT}"));
    until("the server answers", || here.run(ADMIN, &["flow", "list"]).status.success().then_some(()));

    here.works(ADMIN, &["flow", "apply", &here.file("flows.yaml")]);
    let create = |arguments: &[&str]| here.works(ADMIN, &[&["token", "create"], arguments].concat());
    let operator = create(&["ops", "--role", "operator", "--flow", "shop"]);
    let hands = create(&["hands", "--role", "worker", "--queue", "m"]);
    let worker = here.worker(&hands).stderr(Stdio::null()).spawn().unwrap();
    programs.0.push(worker);
    here.works(&operator, &["task", "start", "shop", "--wait"]);
    assert_eq!(here.status_of_submit(&operator, "shop"), "202");

    let (viewer, revoked) = (create(&["eyes", "--role", "viewer"]), create(&["gone", "--role", "operator"]));
    here.works(ADMIN, &["token", "revoke", "gone"]);
    let brief = create(&["brief", "--role", "operator", "--expires", "1s"]);
    until("it expires", || {
        text(&here.run(&brief, &["flow", "list"]).stderr).contains("has expired").then_some(())
    });
    let elsewhere = create(&["elsewhere", "--role", "worker", "--queue", "other"]);
    let last = if operator.ends_with('0') { '1' } else { '0' };
    let altered = format!("{}{last}", &operator[..operator.len() - 1]);
    let wrong = [
        ("", "401", "asks for an access token"),
        ("secret", "401", "wl_ID_SECRET"),
        (&*altered, "401", "never was one of this server"),
        (&*revoked, "401", "revoked"),
        (&*brief, "401", "has expired"),
        (&*viewer, "403", "needs the role"),
        (&*hands, "403", "needs the role"),
        (&*elsewhere, "403", "needs the role"),
    ];
    for (token, status, why) in wrong {
        assert_eq!(here.status_of_submit(token, "shop"), status, "{why}");
        let output = here.run(token, &["task", "start", "shop"]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(why), "{why:?} is not in {said}");
    }
    assert_eq!(here.status_of_submit(&operator, "depot"), "403", "the flow is not in its scope");
    for (token, why) in [
        ("", "asks for an access token"),
        (&*revoked, "revoked"),
        (&*brief, "has expired"),
        (&*operator, "needs the role worker"),
        (&*elsewhere, "is not in it"),
    ] {
        let output = here.worker(token).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(why), "{why:?} is not in {said}");
    }
    // Nothing but the two right ones has started a task.
    let tasks = here.works(ADMIN, &["task", "list", "-o", "json"]);
    assert_eq!(tasks.matches("\"id\"").count(), 2, "{tasks}");
}
