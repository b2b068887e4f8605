//! What Windlass is deployed with: the image, the composition and the chart are valid, and the program runs with their arguments
//! and variables.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;
use windlass_testkit::{certificate, deploy, free_port};

use super::site::{PROGRAM, store, text, until};

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

/// Runs a check. `None` if the test is skipped.
fn check(arguments: &[&str]) -> Option<Output> {
    Some(deploy().unwrap()?.args(arguments).output().unwrap())
}

/// The document that a check prints.
fn checked(arguments: &[&str]) -> Option<Value> {
    let output = check(arguments)?;
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// The program with the arguments and variables of a container. `places` are replaced in all of them.
fn contained(container: &Value, places: &[(&str, &str)]) -> Command {
    let replaced = |text: &Value| {
        let text = text.as_str().unwrap().to_owned();
        places.iter().fold(text, |text, (place, other)| text.replace(place, other))
    };
    let mut command = Command::new(PROGRAM);
    let arguments = container["command"].as_array().or(container["args"].as_array()).unwrap();
    command.args(arguments.iter().map(replaced));
    match (&container["environment"], &container["env"]) {
        (Value::Object(variables), _) => {
            command.envs(variables.iter().map(|(name, value)| (name, replaced(value))));
        }
        (_, Value::Array(variables)) => {
            let pair = |each: &Value| (each["name"].as_str().unwrap().to_owned(), replaced(&each["value"]));
            command.envs(variables.iter().map(pair));
        }
        _ => panic!("no variables in {container}"),
    }
    command
}

struct Running(Vec<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        for child in self.0.iter_mut().rev() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

#[test]
fn the_image_can_be_parsed() {
    let file = packaging("Containerfile");
    let Some(output) = check(&["containerfile", file.to_str().unwrap()]) else { return };
    assert!(output.status.success(), "{}", text(&output.stderr));
    let ignored = fs::read_to_string(packaging("../.containerignore")).unwrap();
    assert!(ignored.lines().any(|line| line == "target"), "{ignored}");
}

#[test]
fn server_and_worker_of_the_composition_run_and_its_health_check_sees_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    // As somebody does it with a copy of the folder.
    for name in ["compose.yaml", "secrets.sh"] {
        fs::copy(packaging("compose").join(name), dir.path().join(name)).unwrap();
    }
    let secrets = || Command::new("sh").arg(path("secrets.sh")).output().unwrap();
    assert!(secrets().status.success());
    let kept = fs::read(path("secrets/admin-token")).unwrap();
    assert!(!secrets().status.success(), "they are made once");
    assert_eq!(fs::read(path("secrets/admin-token")).unwrap(), kept);
    let Some(project) = checked(&["compose", &path("compose.yaml")]) else { return };
    let (server, worker) = (&project["services"]["server"], &project["services"]["worker"]);
    assert_eq!(server["ports"][0]["host_ip"], "127.0.0.1", "nobody else reaches it");

    // The store of the composition is PostgreSQL; here it is a file.
    let shown =
        contained(server, &[("/run/secrets", &path("secrets"))]).arg("--print-config").output().unwrap();
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    assert!(text(&shown.stdout).contains("postgres/windlass"), "{}", text(&shown.stdout));
    fs::write(path("secrets/store"), store(dir.path())).unwrap();
    let port = free_port().unwrap().to_string();
    let places = [("/run/secrets", path("secrets")), ("0.0.0.0:7700", format!("127.0.0.1:{port}"))];
    let more = [
        ("http://server:7700", format!("http://127.0.0.1:{port}")),
        ("/modules", packaging("compose/modules").display().to_string()),
        ("/dev/tcp/127.0.0.1/7700", format!("/dev/tcp/127.0.0.1/{port}")),
    ];
    let places: Vec<(&str, &str)> =
        places.iter().chain(&more).map(|(from, to)| (*from, to.as_str())).collect();
    let mut running = Running(Vec::new());
    let mut child = contained(server, &places).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    running.0.push(child);
    assert!(line.starts_with("listening on"), "{line}");
    let health: Vec<String> = server["healthcheck"]["test"].as_array().unwrap()[1..]
        .iter()
        .map(|word| word.as_str().unwrap().replace("/127.0.0.1/7700", &format!("/127.0.0.1/{port}")))
        .collect();
    let healthy = || Command::new(&health[0]).args(&health[1..]).output().unwrap().status.success();
    until("the health check sees it", || healthy().then_some(()));

    running.0.push(contained(worker, &places).stderr(Stdio::null()).spawn().unwrap());
    fs::write(path("flow.yaml"), "flow: f\nsteps:\n  - { name: greet, run: hello.greet }\n").unwrap();
    let ask = |arguments: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).env("WINDLASS_SERVER", format!("http://127.0.0.1:{port}"));
        command.env("WINDLASS_TOKEN_FILE", path("secrets/admin-token")).output().unwrap()
    };
    for arguments in [&["flow", "apply", &path("flow.yaml")][..], &["task", "start", "f", "--wait"]] {
        let output = ask(arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let mut server = running.0.remove(0);
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(!healthy());
}

#[test]
fn the_chart_gives_servers_what_they_need_and_refuses_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let chart = packaging("helm").display().to_string();
    let chart =
        |values: &[&str]| check(&[&["chart", &chart, "image.repository=example/windlass"], values].concat());
    let objects = |values: &[&str]| {
        let output = chart(values)?;
        assert!(output.status.success(), "{}", text(&output.stderr));
        Some(serde_json::from_slice::<Value>(&output.stdout).unwrap())
    };
    let places = [("/etc/windlass", path("")), ("/data", path(""))];
    let places: Vec<(&str, &str)> = places.iter().map(|(from, to)| (*from, to.as_str())).collect();
    let print = |objects: &Value, kind: &str| {
        let config = objects["ConfigMap"]["data"]["windlass.toml"].as_str().unwrap();
        fs::write(path("windlass.toml"), config).unwrap();
        let container = &objects[kind]["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["image"], "example/windlass:0.1.0");
        let output = contained(container, &places).arg("--print-config").output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };

    // One server with a file.
    let Some(single) = objects(&["insecure=true"]) else { return };
    assert_eq!(single["StatefulSet"]["spec"]["replicas"], 1);
    assert!(single["Deployment"].is_null() && single["PodDisruptionBudget"].is_null(), "{single}");
    let shown = print(&single, "StatefulSet");
    assert!(shown.contains("windlass.db") && shown.contains("tokens = true"), "{shown}");

    // Several on a database, with TLS, a token and more configuration.
    for folder in ["tls", "store", "admin"] {
        fs::create_dir(path(folder)).unwrap();
    }
    certificate::make(&dir.path().join("tls"));
    for (made, name) in [("server.pem", "tls.crt"), ("server.key", "tls.key")] {
        fs::rename(path(&format!("tls/{made}")), path(&format!("tls/{name}"))).unwrap();
    }
    fs::write(path("store/url"), "postgres://u:hush@db/windlass").unwrap();
    let token = "wl_00000000000000ad_000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    fs::write(path("admin/token"), token).unwrap();
    let values = [
        "store.secret=db",
        "tls.secret=tls",
        "adminToken.secret=admin",
        "config=[traces]\nendpoint = \"http://127.0.0.1:4318\"\n",
    ];
    let several = objects(&values).unwrap();
    assert_eq!(several["Deployment"]["spec"]["replicas"], 3);
    assert_eq!(several["PodDisruptionBudget"]["spec"]["maxUnavailable"], 1);
    let pod = &several["Deployment"]["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["readinessProbe"]["httpGet"]["scheme"], "HTTPS");
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    let shown = print(&several, "Deployment");
    for part in ["postgres://…@db/windlass", "tls.crt", "http://127.0.0.1:4318", "tokens = true"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    assert!(!shown.contains("hush"), "{shown}");

    // Nothing starts half-configured.
    for (values, part) in [
        (&["insecure=false"][..], "tls.secret is missing"),
        (&["insecure=true", "image.repository="], "image.repository is missing"),
        (&["insecure=true", "replcas=2"], "replcas is not allowed"),
    ] {
        let output = chart(values).unwrap();
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.contains(part), "{error}");
    }
}
