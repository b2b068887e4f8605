//! Access tokens as users meet them: the right one works for the command line, for a worker and over raw HTTP; every
//! wrong one is refused with what is wrong.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;
use windlass_testkit::Postgres;

use super::site::{FLOWS, PROGRAM, Site, script, store, text, until};

/// The token of an admin, which the tests write into a file.
const ADMIN: &str = "wl_00000000000000ad_000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// A server that asks for tokens, on this store.
fn guarded(store: impl FnOnce(&Path) -> String) -> Site {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("admin-token");
    fs::write(&file, format!("{ADMIN}\n")).unwrap();
    let store = store(dir.path());
    let file = file.display().to_string();
    let variables = [("WINDLASS_ACCESS_TOKENS", "true"), ("WINDLASS_ACCESS_ADMIN_TOKEN_FILE", &*file)];
    Site::open(dir, &store, &variables)
}

/// Runs a command with a token, or without one.
fn run(site: &Site, token: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command
        .args(arguments)
        .env("WINDLASS_SERVER", &site.url)
        .env("USER", "mallory")
        .env_remove("WINDLASS_TOKEN");
    if !token.is_empty() {
        command.env("WINDLASS_TOKEN", token);
    }
    command.output().unwrap()
}

#[track_caller]
fn works(site: &Site, token: &str, arguments: &[&str]) -> String {
    let output = run(site, token, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    text(&output.stdout)
}

#[track_caller]
fn refused(site: &Site, token: &str, arguments: &[&str], why: &str) {
    let output = run(site, token, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
    let said = text(&output.stderr);
    assert!(said.contains(why), "{arguments:?}: {why:?} is not in {said}");
}

fn create(site: &Site, arguments: &[&str]) -> String {
    works(site, ADMIN, &[&["token", "create"], arguments].concat()).trim().to_owned()
}

/// A request over a connection of its own; gives the answer with its head.
fn raw(site: &Site, request: &str, token: &str) -> String {
    let address = site.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let authorization =
        if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
    write!(stream, "{request} HTTP/1.1\r\nHost: {address}\r\n{authorization}Connection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Starts a worker of the module `m` with a token.
fn start_worker(site: &Site, token: &str) -> Child {
    worker(site).env("WINDLASS_TOKEN", token).stderr(Stdio::piped()).spawn().unwrap()
}

/// A worker of the module `m`.
fn worker(site: &Site) -> Command {
    let module = site.dir.path().join("modules/m");
    fs::create_dir_all(&module).unwrap();
    script(&module.join("echo"), "echo \"{\\\"token\\\": \\\"${WINDLASS_TOKEN:-none}\\\"}\"");
    script(&module.join("fail"), "exit 1");
    let mut worker = Command::new(PROGRAM);
    worker.args(["worker", "--server", &site.url, "--modules", &site.path("modules")]);
    worker
}

#[test]
fn the_right_token_works_for_commands_workers_and_raw_requests() {
    let mut site = guarded(store);
    fs::write(site.dir.path().join("flows.yaml"), FLOWS).unwrap();
    works(&site, ADMIN, &["flow", "apply", &site.path("flows.yaml")]);
    let operator = create(&site, &["ops", "--role", "operator"]);
    let worker = create(&site, &["hands", "--role", "worker", "--queue", "m"]);
    let worker = start_worker(&site, &worker);
    site.children.push(worker);
    let ended = works(&site, &operator, &["task", "start", "good", "--wait", "-o", "json"]);
    let task: Value = serde_json::from_str(&ended).unwrap();
    assert_eq!(task["status"], "succeeded", "{task}");
    // The command did not get the worker's token.
    assert_eq!(
        task["results"]["one"]["token"].as_str().or(task["steps"][0]["result"]["token"].as_str()),
        Some("none"),
        "{task}"
    );
    let id = task["id"].as_str().unwrap();
    let events = works(&site, &operator, &["task", "events", id, "-o", "json"]);
    assert!(events.contains("\"ops\"") && !events.contains("mallory"), "{events}");
    let file = site.path("ops-token");
    fs::write(&file, format!("{operator}\n")).unwrap();
    works(&site, "", &["task", "show", id, "--token-file", &file]);
    works(&site, "", &["task", "show", id, "--token", &operator]);
    let answer = raw(&site, &format!("GET /v1/tasks/{id}"), &operator);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    for open in ["/healthz", "/readyz", "/openapi.json"] {
        assert!(raw(&site, &format!("GET {open}"), "").starts_with("HTTP/1.1 200"), "{open}");
    }
    // Leaders are elected with it.
    let led = works(&site, &operator, &["lead", "report", "--", "sh", "-c", "echo led"]);
    assert!(led.contains("led"), "{led}");
    let listed = works(&site, ADMIN, &["token", "list"]);
    assert!(
        listed.contains("hands") && listed.contains("queue m") && !listed.contains(&operator[20..]),
        "{listed}"
    );
}

#[test]
fn a_token_for_what_does_not_exist_yet_is_created_with_a_warning() {
    let site = guarded(store);
    fs::write(site.dir.path().join("flows.yaml"), FLOWS).unwrap();
    works(&site, ADMIN, &["flow", "apply", &site.path("flows.yaml")]);
    let scope = ["--flow", "good", "--flow", "goood", "--queue", "m", "--queue", "mm"];
    let created =
        run(&site, ADMIN, &[&["token", "create", "some", "--role", "operator"][..], &scope].concat());
    assert!(created.status.success() && text(&created.stdout).starts_with("wl_"), "{created:?}");
    let stderr = text(&created.stderr);
    let warnings: Vec<&str> = stderr.lines().collect();
    assert!(warnings.iter().all(|line| line.starts_with("warning: there is no ")), "{stderr}");
    assert!(
        warnings.len() == 2 && stderr.contains("queue mm ") && stderr.contains("flow goood "),
        "{stderr}"
    );
}

#[test]
fn every_wrong_token_is_refused_with_what_is_wrong() {
    let site = guarded(store);
    fs::write(site.dir.path().join("flows.yaml"), FLOWS).unwrap();
    works(&site, ADMIN, &["flow", "apply", &site.path("flows.yaml")]);
    let list = &["task", "list"][..];
    refused(&site, "", list, "asks for an access token");
    refused(&site, "", list, "windlass token create");
    refused(&site, "secret", list, "wl_ID_SECRET");
    refused(&site, &ADMIN.replace("1e1f", "1e1e"), list, "never was one of this server");
    refused(&site, &ADMIN.replace("00ad", "00ae"), list, "never was one of this server");

    let viewer = create(&site, &["eyes", "--role", "viewer"]);
    works(&site, &viewer, list);
    refused(
        &site,
        &viewer,
        &["task", "start", "good"],
        "\"eyes\" has the role viewer, and this needs the role operator",
    );
    refused(&site, &viewer, &["token", "list"], "needs the role admin");
    let operator = create(&site, &["ops", "--role", "operator"]);
    refused(&site, &operator, &["flow", "apply", &site.path("flows.yaml")], "needs the role admin");
    refused(&site, &operator, &["token", "create", "more", "--role", "viewer"], "needs the role admin");
    let worker = create(&site, &["hands", "--role", "worker"]);
    refused(&site, &worker, list, "\"hands\" has the role worker, and this needs the role viewer");

    let limited = create(&site, &["some", "--role", "operator", "--flow", "good", "--queue", "m"]);
    works(&site, &limited, &["task", "start", "good"]);
    works(&site, &limited, &["task", "list", "--flow", "good"]);
    works(&site, &limited, &["queue", "pause", "m"]);
    refused(&site, &limited, &["task", "start", "bad"], "the flow \"bad\" is not in it");
    refused(&site, &limited, list, "filter by one `flow`");
    refused(&site, &limited, &["queue", "pause", "nobody"], "the queue \"nobody\" is not in it");
    refused(&site, &limited, &["lock", "list"], "belongs to no queue and no flow");

    let brief = create(&site, &["brief", "--role", "viewer", "--expires", "1s"]);
    until("it expires", || {
        text(&run(&site, &brief, list).stderr).contains("\"brief\" has expired").then_some(())
    });
    works(&site, ADMIN, &["token", "revoke", "eyes"]);
    refused(&site, &viewer, list, "it was revoked");
    let answer = raw(&site, "GET /v1/tasks", &viewer);
    assert!(answer.starts_with("HTTP/1.1 401") && answer.contains("www-authenticate: Bearer"), "{answer}");

    // A worker with a wrong token ends, and says why.
    for (token, why) in
        [(&viewer, "revoked"), (&operator, "needs the role worker"), (&limited, "needs the role worker")]
    {
        let ended = start_worker(&site, token).wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        assert!(text(&ended.stderr).contains(why), "{ended:?}");
    }
    let other = create(&site, &["others", "--role", "worker", "--queue", "elsewhere"]);
    let ended = start_worker(&site, &other).wait_with_output().unwrap();
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(
        said.contains("the queue \"m\" is not in it; let the worker offer only modules that are in it"),
        "{said}"
    );
    assert!(said.contains("--module NAME") && !said.contains("retrying"), "it has ended: {said}");
}

#[test]
fn a_worker_whose_token_was_revoked_says_so_once_and_takes_the_next_one_from_its_file() {
    let mut site = guarded(store);
    fs::write(site.dir.path().join("flows.yaml"), FLOWS).unwrap();
    works(&site, ADMIN, &["flow", "apply", &site.path("flows.yaml")]);
    let token = create(&site, &["hands", "--role", "worker"]);
    let (file, log) = (site.path("token"), site.path("worker.log"));
    fs::write(&file, token).unwrap();
    let mut worker = worker(&site);
    worker.args(["--token-file", &file]).stderr(File::create(&log).unwrap());
    site.children.push(worker.spawn().unwrap());
    let logged = |what: &str| {
        let text = fs::read_to_string(&log).unwrap();
        text.lines().filter(|line| line.contains(what)).count()
    };
    until("the worker is connected", || (logged("connected") > 0).then_some(()));
    works(&site, ADMIN, &["token", "revoke", "hands"]);
    until("the worker is refused", || {
        (logged("the server refuses the token of this worker") > 0).then_some(())
    });
    // The next call with the old token is made after some seconds.
    std::thread::sleep(std::time::Duration::from_secs(7));
    assert_eq!(logged("the server refuses the token of this worker"), 1);
    assert_eq!((logged("was revoked"), logged(&file)), (1, 1), "{}", fs::read_to_string(&log).unwrap());
    let next = create(&site, &["hands", "--role", "worker"]);
    fs::write(&file, next).unwrap();
    works(&site, ADMIN, &["task", "start", "good", "--wait"]);
    assert_eq!(logged("calls to the server succeed again"), 1);
    assert_eq!(logged("wl_"), 0, "no token is in the log");
}

#[test]
fn the_token_of_the_file_is_revoked_only_once_another_one_is_in_the_file() {
    let site = guarded(store);
    let other = create(&site, &["other", "--role", "admin"]);
    let revoke = &["token", "revoke", "admin-file"][..];
    let output = run(&site, &other, revoke);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let said = text(&output.stderr);
    assert!(
        said.contains(&site.path("admin-token")) && said.contains("write another token into the file"),
        "{said}"
    );
    works(&site, ADMIN, &["task", "list"]);
    assert!(!works(&site, &other, &["audit", "list"]).contains("revoke_token"), "nothing was changed");
    fs::write(site.path("admin-token"), ADMIN.replace("00ad", "00ae")).unwrap();
    works(&site, &other, revoke);
    refused(&site, ADMIN, &["task", "list"], "it was revoked");
    assert!(works(&site, &other, &["audit", "list"]).contains("revoke_token"));
}

/// A server whose outputs go into files.
struct Recorded {
    server: Child,
    out: String,
    log: String,
}

impl Recorded {
    fn start(site: &Path, name: &str, more: &[&str]) -> Self {
        let (out, log) = (site.join(format!("{name}.out")), site.join(format!("{name}.log")));
        let server = Command::new(PROGRAM)
            .args(["server", "--require-tokens", "--store", &store(site), "--listen"])
            .args(more)
            .env("WINDLASS_LOG", "trace")
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { server, out: out.display().to_string(), log: log.display().to_string() }
    }

    /// What it printed, once it serves.
    fn printed(&self) -> (String, String) {
        until("the server serves", || {
            let printed = fs::read_to_string(&self.out).unwrap();
            let url = printed.lines().find_map(|line| line.strip_prefix("listening on http://"))?.to_owned();
            let mut stream = TcpStream::connect(&url).ok()?;
            write!(stream, "GET /healthz HTTP/1.1\r\nHost: {url}\r\nConnection: close\r\n\r\n").ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).ok()?;
            answer.starts_with("HTTP/1.1 200").then(|| (fs::read_to_string(&self.out).unwrap(), url))
        })
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }
}

#[test]
fn the_first_token_is_printed_once_and_never_logged() {
    let dir = tempfile::tempdir().unwrap();
    let first = Recorded::start(dir.path(), "first", &["127.0.0.1:0"]);
    let (printed, url) = first.printed();
    let line = printed.lines().find(|line| line.contains("shown only once")).expect(&printed);
    let token = line.rsplit(' ').next().unwrap();
    let list = || {
        let mut command = Command::new(PROGRAM);
        command.args(["task", "list", "--server", &format!("http://{url}")]).env("WINDLASS_TOKEN", token);
        command.output().unwrap()
    };
    assert_eq!(list().status.code(), Some(0), "{:?}", list());
    let wrong = ADMIN.to_owned();
    let refused = Command::new(PROGRAM)
        .args(["task", "list", "--server", &format!("http://{url}")])
        .env("WINDLASS_TOKEN", &wrong)
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let log = fs::read_to_string(&first.log).unwrap();
    assert!(log.contains("an access token was refused"), "{log}");
    for secret in [&token[20..], &wrong[20..]] {
        assert!(!log.contains(secret), "a token is in the log");
    }
    drop(first);
    let second = Recorded::start(dir.path(), "second", &["127.0.0.1:0"]);
    let (printed, _) = second.printed();
    assert!(!printed.contains("shown only once"), "{printed}");
}

#[test]
fn another_token_in_the_file_takes_the_place_of_the_first() {
    let mut site = guarded(store);
    works(&site, ADMIN, &["task", "list"]);
    let file = site.path("admin-token");
    let other = ADMIN.replace("00ad", "00ae");
    fs::write(&file, &other).unwrap();
    let (store, file) = (store(site.dir.path()), file.clone());
    site.children[0].kill().unwrap();
    site.children[0].wait().unwrap();
    site.restart_with(
        &store,
        &[("WINDLASS_ACCESS_TOKENS", "true"), ("WINDLASS_ACCESS_ADMIN_TOKEN_FILE", &file)],
    );
    works(&site, &other, &["task", "list"]);
    refused(&site, ADMIN, &["task", "list"], "never was one of this server");
}

#[test]
fn nothing_starts_with_a_file_that_has_no_token() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    let start = |arguments: &[&str]| {
        let output =
            Command::new(PROGRAM).args(["server", "--store", "memory:"]).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        text(&output.stderr)
    };
    let file_option = ["--require-tokens", "--admin-token-file", file.to_str().unwrap()];
    assert!(start(&file_option).contains("cannot read"), "it is missing");
    fs::write(&file, "hunter2\n").unwrap();
    let said = start(&file_option);
    assert!(said.contains("wl_ID_SECRET") && !said.contains("hunter2"), "{said}");
    assert!(start(&file_option[1..]).contains("--require-tokens"), "tokens are off");
    let open = start(&["--listen", "0.0.0.0:0"]);
    assert!(open.contains("--require-tokens") && open.contains("--insecure"), "{open}");
}

#[test]
fn a_server_that_others_can_reach_without_tls_warns() {
    let dir = tempfile::tempdir().unwrap();
    let server = Recorded::start(dir.path(), "open", &["0.0.0.0:0", "--insecure"]);
    let url = until("the server listens", || {
        let printed = fs::read_to_string(&server.out).unwrap();
        printed.lines().find_map(|line| line.strip_prefix("listening on ")).map(str::to_owned)
    });
    let output = Command::new(PROGRAM)
        .args(["task", "list", "--server", &url])
        .env_remove("WINDLASS_TOKEN")
        .output()
        .unwrap();
    assert!(text(&output.stderr).contains("asks for an access token"), "{output:?}");
    assert!(fs::read_to_string(&server.log).unwrap().contains("connections are not encrypted"), "it warns");
}

#[test]
fn a_token_revoked_on_one_server_stops_on_the_others() {
    let Some(postgres) = Postgres::shared().unwrap() else { return };
    let database = postgres.database().unwrap();
    let (first, second) = (guarded(|_| database.url()), guarded(|_| database.url()));
    let token = create(&first, &["eyes", "--role", "viewer"]);
    let list = &["task", "list"][..];
    until("the other server knows the token", || run(&second, &token, list).status.success().then_some(()));
    works(&first, ADMIN, &["token", "revoke", "eyes"]);
    let revoked = std::time::Instant::now();
    refused(&first, &token, list, "revoked");
    until("the other server refuses it", || (!run(&second, &token, list).status.success()).then_some(()));
    // A server reads the tokens again after 2 s. The rest is for starting commands on a busy machine.
    assert!(revoked.elapsed().as_secs() < 15, "{:?}", revoked.elapsed());
}
