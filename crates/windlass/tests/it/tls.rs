//! A server with TLS and tokens: what has the right certificate and the right token works, and everything else is refused
//! with what is wrong.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

use windlass_testkit::HaProxy;

use crate::site::{PROGRAM, Site, store, text, until_within};

pub(super) const ADMIN: &str =
    "wl_00000000000000ad_000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// Files are compared every ten seconds.
const PATIENCE: Duration = Duration::from_secs(60);

const FLOW: &str = "flow: f\nsteps: [{ name: one, run: m.echo }]\n";

/// Makes `NAME.pem` and `NAME.key`.
fn make(folder: &Path, name: &str, more: &[&str]) {
    // Instead of what the system would add to every certificate.
    fs::write(folder.join("empty.cnf"), "[req]\ndistinguished_name=name\n[name]\n").unwrap();
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-config", "empty.cnf", "-newkey", "ec", "-nodes"]);
    command.args(["-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", &format!("/CN={name}")]).args(more);
    command.arg("-keyout").arg(format!("{name}.key")).arg("-out").arg(format!("{name}.pem"));
    let output = command.current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// A CA.
pub(super) fn make_authority(folder: &Path, name: &str) {
    make(folder, name, &["-days", "2", "-addext", "basicConstraints=critical,CA:TRUE"]);
}

/// A certificate that a CA has issued for these names.
pub(super) fn make_certificate(folder: &Path, name: &str, authority: &str, names: &str, days: &str) {
    let (certificate, key) = (format!("{authority}.pem"), format!("{authority}.key"));
    let names = format!("subjectAltName={names}");
    make(folder, name, &["-days", days, "-CA", &certificate, "-CAkey", &key, "-addext", &names]);
}

/// A folder with a CA and the certificate of a server.
pub(super) fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    make_authority(dir.path(), "authority");
    make_certificate(dir.path(), "server", "authority", "IP:127.0.0.1", "2");
    dir
}

/// A server with tokens and the certificate `server.pem`.
fn encrypted(dir: tempfile::TempDir, more: &[(&str, &str)]) -> Site {
    let file = |name: &str| dir.path().join(name).display().to_string();
    fs::write(file("admin-token"), ADMIN).unwrap();
    let (certificate, key, token) = (file("server.pem"), file("server.key"), file("admin-token"));
    let variables = [
        ("WINDLASS_ACCESS_TOKENS", "true"),
        ("WINDLASS_ACCESS_ADMIN_TOKEN_FILE", &*token),
        ("WINDLASS_SERVER_TLS_CERT", &*certificate),
        ("WINDLASS_SERVER_TLS_KEY", &*key),
    ];
    let store = store(dir.path());
    Site::open(dir, &store, &[&variables, more].concat())
}

/// Runs a command with the token of the admin and these variables, of which some are names of files.
fn run(site: &Site, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).env("WINDLASS_SERVER", &site.url).env("WINDLASS_TOKEN", ADMIN);
    for (name, value) in variables {
        let is_file = site.dir.path().join(value).exists();
        command.env(name, if is_file { site.path(value) } else { (*value).to_owned() });
    }
    command.output().unwrap()
}

#[track_caller]
fn refused(site: &Site, variables: &[(&str, &str)], why: &str) {
    let output = run(site, &["flow", "list"], variables);
    let said = text(&output.stderr);
    assert!(
        output.status.code().is_some_and(|code| code != 0) && said.contains(why),
        "{why:?} is not in {output:?}"
    );
}

/// A worker of the flow's module that trusts this CA.
fn worker(site: &Site, url: &str, authority: &str) -> Command {
    let module = site.dir.path().join("modules/m");
    fs::create_dir_all(&module).unwrap();
    crate::site::script(&module.join("echo"), "echo '{}'");
    let mut worker = Command::new(PROGRAM);
    worker.args(["worker", "--modules", &site.path("modules"), "--ca-file", &site.path(authority)]);
    worker.env("WINDLASS_SERVER", url).env("WINDLASS_TOKEN", ADMIN);
    worker
}

/// Copies a certificate and its key.
fn replace_certificate(site: &Site, from: &str, to: &str) {
    for kind in ["pem", "key"] {
        fs::copy(site.path(&format!("{from}.{kind}")), site.path(&format!("{to}.{kind}"))).unwrap();
    }
}

/// Starts a worker of the flow's module.
fn work(site: &mut Site) {
    let mut worker = worker(site, &site.url, "authority.pem");
    site.children.push(worker.stderr(Stdio::null()).spawn().unwrap());
}

const TRUSTED: (&str, &str) = ("WINDLASS_CA_FILE", "authority.pem");

#[test]
fn the_right_certificate_and_token_work_and_others_are_refused() {
    let dir = folder();
    make_authority(dir.path(), "stranger");
    let mut site = encrypted(dir, &[]);
    assert!(site.url.starts_with("https://127.0.0.1:"), "{}", site.url);
    fs::write(site.dir.path().join("flow.yaml"), FLOW).unwrap();
    let applied = run(&site, &["flow", "apply", &site.path("flow.yaml")], &[TRUSTED]);
    assert_eq!(applied.status.code(), Some(0), "{applied:?}");

    refused(&site, &[], "--ca-file");
    refused(&site, &[("WINDLASS_CA_FILE", "stranger.pem")], "--ca-file");
    refused(&site, &[("WINDLASS_CA_FILE", "flow.yaml")], "it contains none in PEM format");
    refused(&site, &[("WINDLASS_CA_FILE", "missing.pem")], "missing.pem");
    refused(&site, &[TRUSTED, ("WINDLASS_TOKEN", "wl_wrong")], "token");
    let other_name = site.url.replace("127.0.0.1", "localhost");
    refused(&site, &[TRUSTED, ("WINDLASS_SERVER", &other_name)], "another host name");
    let plain = site.url.replace("https", "http");
    refused(&site, &[("WINDLASS_SERVER", &plain)], "use https://");

    work(&mut site);
    let task = run(&site, &["task", "start", "f", "--wait"], &[TRUSTED]);
    assert_eq!(task.status.code(), Some(0), "{task:?}");
    let url = format!("{}/v1/flows", site.url);
    let curl = |more: &[&str]| Command::new("curl").args(["-sS", &url]).args(more).output().unwrap();
    let (authority, token) = (site.path("authority.pem"), format!("Authorization: Bearer {ADMIN}"));
    assert!(text(&curl(&["--cacert", &authority, "-H", &token]).stdout).contains("\"f\""));
    assert!(text(&curl(&["--cacert", &authority]).stdout).contains("\"status\":401"));
    assert_eq!(curl(&["-H", &token]).status.code(), Some(60), "curl does not trust the server");

    let led = run(&site, &["lead", "name", "--", "true"], &[TRUSTED]);
    assert_eq!(led.status.code(), Some(0), "{led:?}");
}

#[test]
fn a_worker_that_cannot_trust_its_server_ends_at_its_start_like_a_command() {
    let dir = folder();
    make_authority(dir.path(), "stranger");
    // One of the same name, as after somebody has made the CA again.
    let again = tempfile::tempdir().unwrap();
    make_authority(again.path(), "authority");
    fs::copy(again.path().join("authority.pem"), dir.path().join("again.pem")).unwrap();
    let mut site = encrypted(dir, &[]);
    let (url, other_name) = (site.url.clone(), site.url.replace("127.0.0.1", "localhost"));
    for (url, authority, why) in [
        (&*url, "stranger.pem", "no CA that is trusted here has issued the server's certificate"),
        (&url, "again.pem", "no CA that is trusted here has issued the server's certificate"),
        (&other_name, "authority.pem", "the server's certificate is for another host name"),
    ] {
        let log = site.path("worker.log");
        let mut worker = worker(&site, url, authority);
        site.children.push(worker.stderr(fs::File::create(&log).unwrap()).spawn().unwrap());
        let worker = site.children.last_mut().unwrap();
        let ended = until_within(PATIENCE, "the worker ends", || worker.try_wait().unwrap());
        let listed =
            run(&site, &["flow", "list"], &[("WINDLASS_SERVER", url), ("WINDLASS_CA_FILE", authority)]);
        let said = fs::read_to_string(&log).unwrap();
        assert_eq!((ended.code(), listed.status.code()), (Some(5), Some(5)), "{said}");
        assert!(said.contains(why) && !said.contains("retrying"), "{said}");
        assert!(said.ends_with(&text(&listed.stderr)), "the worker says what a command says: {said}");
    }
}

#[test]
fn a_running_worker_says_once_why_it_cannot_trust_its_server_and_goes_on_when_it_can() {
    let dir = folder();
    make_authority(dir.path(), "stranger");
    let mut site = encrypted(dir, &[]);
    fs::write(site.path("flow.yaml"), FLOW).unwrap();
    let applied = run(&site, &["flow", "apply", &site.path("flow.yaml")], &[TRUSTED]);
    assert_eq!(applied.status.code(), Some(0), "{applied:?}");
    let log = site.path("worker.log");
    let mut worker = worker(&site, &site.url, "authority.pem");
    site.children.push(worker.stderr(fs::File::create(&log).unwrap()).spawn().unwrap());
    let logged = |what: &str| {
        let text = fs::read_to_string(&log).unwrap();
        text.lines().filter(|line| line.contains(what)).count()
    };
    until_within(PATIENCE, "the worker is connected", || (logged("connected") > 0).then_some(()));
    // The server is started again with a certificate that the worker does not trust.
    make_certificate(site.dir.path(), "wrong", "stranger", "IP:127.0.0.1", "2");
    replace_certificate(&site, "server", "right");
    replace_certificate(&site, "wrong", "server");
    site.children[0].kill().unwrap();
    site.children.remove(0).wait().unwrap();
    let mut server = Command::new(PROGRAM);
    server.args(["server", "--listen", site.url.strip_prefix("https://").unwrap()]);
    server.args(["--store", &store(site.dir.path())]);
    server.args(["--tls-cert", &site.path("server.pem"), "--tls-key", &site.path("server.key")]);
    server.args(["--require-tokens", "--admin-token-file", &site.path("admin-token")]);
    site.children.insert(0, server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let why = "no CA that is trusted here has issued";
    until_within(PATIENCE, "the worker does not trust it", || (logged(why) > 0).then_some(()));
    // Several calls later.
    std::thread::sleep(Duration::from_secs(7));
    assert_eq!(logged(why), 1);
    replace_certificate(&site, "right", "server");
    hang_up(&site);
    until_within(PATIENCE, "the worker is back", || (logged("succeed again") > 0).then_some(()));
    let task = run(&site, &["task", "start", "f", "--wait"], &[TRUSTED]);
    assert_eq!(task.status.code(), Some(0), "{task:?}");
}

/// The configuration of `docs/operate/several-servers.md`.
#[test]
fn a_load_balancer_decrypts_requests_and_encrypts_them_again() {
    let dir = folder();
    make_certificate(dir.path(), "balancer", "authority", "IP:127.0.0.1", "2");
    let read = |name: &str| fs::read(dir.path().join(name)).unwrap();
    fs::write(dir.path().join("pair.pem"), [read("balancer.pem"), read("balancer.key")].concat()).unwrap();
    let mut site = encrypted(dir, &[]);
    let port = site.url.rsplit(':').next().unwrap().parse().unwrap();
    let file = |name: &str| site.dir.path().join(name);
    let Some(balancer) = HaProxy::encrypting(&[port], &file("pair.pem"), &file("authority.pem")).unwrap()
    else {
        return;
    };
    site.url = format!("https://127.0.0.1:{}", balancer.port());
    fs::write(file("flow.yaml"), FLOW).unwrap();
    let applied = run(&site, &["flow", "apply", &site.path("flow.yaml")], &[TRUSTED]);
    assert_eq!(applied.status.code(), Some(0), "{applied:?}");
    work(&mut site);
    let task = run(&site, &["task", "start", "f", "--wait"], &[TRUSTED]);
    assert_eq!(task.status.code(), Some(0), "{task:?}");
    refused(&site, &[], "--ca-file");
    refused(&site, &[TRUSTED, ("WINDLASS_TOKEN", "wl_wrong")], "token");
}

#[test]
fn a_client_without_the_right_certificate_is_refused_where_one_is_asked_for() {
    let dir = folder();
    make_authority(dir.path(), "clients");
    make_authority(dir.path(), "stranger");
    make_certificate(dir.path(), "ann", "clients", "DNS:ann", "2");
    make_certificate(dir.path(), "mallory", "stranger", "DNS:mallory", "2");
    let clients = dir.path().join("clients.pem").display().to_string();
    let site = encrypted(dir, &[("WINDLASS_SERVER_TLS_CLIENT_CA", &clients)]);
    let shown = |name: &'static str| {
        [("WINDLASS_CLIENT_CERT", format!("{name}.pem")), ("WINDLASS_CLIENT_KEY", format!("{name}.key"))]
    };
    let with = |files: &[(&'static str, String); 2]| {
        let [certificate, key] = files;
        run(&site, &["flow", "list"], &[TRUSTED, (certificate.0, &certificate.1), (key.0, &key.1)])
    };
    let output = with(&shown("ann"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    refused(&site, &[TRUSTED], "--client-cert");
    let said = with(&shown("mallory"));
    assert!(text(&said.stderr).contains("does not trust the client certificate"), "{said:?}");
    let mixed =
        [("WINDLASS_CLIENT_CERT", "ann.pem".to_owned()), ("WINDLASS_CLIENT_KEY", "mallory.key".to_owned())];
    let said = with(&mixed);
    assert!(text(&said.stderr).contains("belongs to another certificate"), "{said:?}");
}

#[test]
fn a_replaced_certificate_is_used_and_a_bad_one_is_not() {
    let dir = folder();
    make_authority(dir.path(), "next");
    make_certificate(dir.path(), "renewed", "next", "IP:127.0.0.1", "2");
    let site = encrypted(dir, &[]);
    let works = |authority: &str| {
        run(&site, &["flow", "list"], &[("WINDLASS_CA_FILE", authority)]).status.code() == Some(0)
    };
    assert!(works("authority.pem") && !works("next.pem"));
    // A key that belongs to another certificate: the last pair stays.
    fs::copy(site.path("renewed.key"), site.path("server.key")).unwrap();
    hang_up(&site);
    assert!(works("authority.pem"));
    fs::copy(site.path("renewed.pem"), site.path("server.pem")).unwrap();
    hang_up(&site);
    until_within(PATIENCE, "the renewed certificate is used", || works("next.pem").then_some(()));
    assert!(!works("authority.pem"));
    // Without a signal as well.
    make_certificate(site.dir.path(), "server", "authority", "IP:127.0.0.1", "2");
    until_within(PATIENCE, "the next one is used", || works("authority.pem").then_some(()));
}

/// Signs a certificate again, so that it expired yesterday.
fn expire(folder: &Path, name: &str, authority: &str) {
    let file = |name: &str, kind: &str| format!("{name}.{kind}");
    let openssl = |arguments: &[&str]| {
        let mut command = Command::new("openssl");
        command.args(["x509", "-copy_extensions", "copy"]).args(arguments).current_dir(folder);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    let (certificate, request) = (file(name, "pem"), file(name, "csr"));
    openssl(&["-x509toreq", "-in", &certificate, "-signkey", &file(name, "key"), "-out", &request]);
    let (issuer, key) = (file(authority, "pem"), file(authority, "key"));
    let expired = ["-days", "-1", "-out", &certificate];
    openssl(&[&["-req", "-in", &request, "-CA", &issuer, "-CAkey", &key][..], &expired].concat());
}

#[test]
fn an_expired_certificate_is_refused_and_its_time_is_a_metric() {
    let dir = folder();
    make_authority(dir.path(), "clients");
    make_certificate(dir.path(), "ann", "clients", "DNS:ann", "2");
    let clients = dir.path().join("clients.pem").display().to_string();
    let site = encrypted(dir, &[("WINDLASS_SERVER_TLS_CLIENT_CA", &clients)]);
    let ann = [TRUSTED, ("WINDLASS_CLIENT_CERT", "ann.pem"), ("WINDLASS_CLIENT_KEY", "ann.key")];
    let metrics = format!("{}/metrics", site.url);
    let scrape = || {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--insecure", &metrics, "-H", &format!("Authorization: Bearer {ADMIN}")]);
        curl.args(["--cert", &site.path("ann.pem"), "--key", &site.path("ann.key")]);
        let answer = text(&curl.output().unwrap().stdout);
        let lines =
            answer.lines().filter_map(|line| line.strip_prefix("windlass_certificate_expiry_time_seconds "));
        lines.map(|time| time.parse::<u64>().unwrap()).next()
    };
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    assert!(scrape().is_some_and(|time| (now + 86_400..=now + 3 * 86_400).contains(&time)), "{:?}", scrape());

    expire(site.dir.path(), "server", "authority");
    hang_up(&site);
    until_within(PATIENCE, "the metric changes", || scrape().filter(|time| *time < now));
    refused(&site, &ann, "the server's certificate has expired: renew it");

    make_certificate(site.dir.path(), "server", "authority", "IP:127.0.0.1", "2");
    hang_up(&site);
    let listed = || run(&site, &["flow", "list"], &ann).status.code() == Some(0);
    until_within(PATIENCE, "the renewed certificate is used", || listed().then_some(()));
    expire(site.dir.path(), "ann", "clients");
    refused(&site, &ann, "or it has expired");
}

fn hang_up(site: &Site) {
    let server = site.children[0].id().to_string();
    assert!(Command::new("kill").args(["-HUP", &server]).status().unwrap().success());
}

#[test]
fn connections_that_never_finish_their_handshake_keep_nobody_out() {
    let site = encrypted(folder(), &[]);
    let address = site.url.strip_prefix("https://").unwrap();
    let stalled: Vec<TcpStream> = (0..300)
        .map(|number| {
            let mut stream = TcpStream::connect(address).unwrap();
            // The first bytes of a handshake, or nothing.
            stream.write_all(if number % 2 == 0 { &[22, 3, 1, 2, 0] } else { &[] }).unwrap();
            stream
        })
        .collect();
    let output = run(&site, &["flow", "list"], &[TRUSTED]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    // Each of them is ended in time.
    for mut stream in stalled {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut end = Vec::new();
        match stream.read_to_end(&mut end) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
}

#[test]
fn a_server_with_half_of_what_it_needs_does_not_start() {
    let dir = folder();
    make_certificate(dir.path(), "other", "authority", "IP:127.0.0.1", "2");
    let file = |name: &str| dir.path().join(name).display().to_string();
    let start = |listen: &str, more: &[&str]| {
        let store = store(dir.path());
        let output =
            Command::new(PROGRAM).args(["server", "--store", &store, "--listen", listen]).args(more).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        text(&output.stderr)
    };
    let (certificate, key) = (file("server.pem"), file("server.key"));
    for (more, why) in [
        (&["--tls-cert", &*certificate][..], "tls_key"),
        (&["--tls-key", &*key], "tls_cert"),
        (&["--tls-client-ca", &*certificate], "tls_cert"),
        (&["--tls-cert", &*file("missing.pem"), "--tls-key", &*key], "missing.pem"),
        (&["--tls-cert", &*certificate, "--tls-key", &*certificate], "a private key"),
        (&["--tls-cert", &*certificate, "--tls-key", &*file("other.key")], "belongs to another certificate"),
    ] {
        let said = start("127.0.0.1:0", more);
        assert!(said.contains(why), "{why:?} is not in {said}");
    }
    let said = start("0.0.0.0:0", &["--require-tokens"]);
    assert!(said.contains("--tls-cert"), "{said}");
}

#[test]
fn without_tls_a_hangup_ends_neither_the_server_nor_a_worker() {
    let site = Site::with_worker();
    site.start_task_and_wait("good");
    for child in &site.children {
        assert!(Command::new("kill").args(["-HUP", &child.id().to_string()]).status().unwrap().success());
    }
    site.start_task_and_wait("good");
    for child in &site.children {
        assert!(
            fs::read_to_string(format!("/proc/{}/stat", child.id())).is_ok_and(|stat| !stat.contains(") Z"))
        );
    }
}
