//! The configuration file: its schema and its example.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    site::{PROGRAM, text},
    tls::{ADMIN, folder},
};

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    fs::read_to_string(path).unwrap_or_default()
}

fn print(file: &Path) -> (Option<i32>, String, String) {
    let output = Command::new(PROGRAM)
        .args(["server", "--print-config", "--config"])
        .arg(file)
        .env("CONSUL_TOKEN", "secret")
        .output()
        .unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_schema_is_the_one_in_the_reference_and_the_example_has_every_key() {
    let printed = text(&Command::new(PROGRAM).args(["server", "schema"]).output().unwrap().stdout);
    assert!(
        page("config.schema.json") == printed,
        "write it again with `windlass server schema > docs/reference/config.schema.json`"
    );
    let schema: Value = serde_json::from_str(&printed).unwrap();
    let example = page("windlass.toml");
    let document: Value = serde_json::to_value(toml::from_str::<toml::Table>(&example).unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let wrong: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    // A key that only another broker has is there as a comment.
    let keys = schema["$defs"].as_object().unwrap().values().chain([&schema]);
    let keys = keys.filter_map(|part| part["properties"].as_object()).flat_map(serde_json::Map::keys);
    let has = |key: &&String| {
        let words = example.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.clone().any(|word| word == key.as_str())
    };
    let missing: Vec<&String> = keys.filter(|key| !has(key)).collect();
    assert!(missing.is_empty(), "not in the example: {missing:?}");
    for mistake in [
        json!({ "server": { "lisen": "127.0.0.1:1" } }),
        json!({ "webhook": [{ "name": "a" }] }),
        json!({ "webhook": [{ "name": "a", "url": "https://a.example", "events": ["task.done"] }] }),
        json!({ "intake": { "broker": "redis://h", "queue": "q" } }),
        json!({ "queues": { "m": { "broker": "redis://h", "window": "ten" } } }),
    ] {
        assert!(!validator.is_valid(&mistake), "{mistake}");
    }
}

#[test]
fn the_example_can_be_used_and_its_secrets_are_not_shown() {
    let dir = folder();
    let path = |name: &str| dir.path().join(name);
    let file = path("windlass.toml");
    let example = page("windlass.toml").replace("/etc/windlass", dir.path().to_str().unwrap());
    fs::write(&file, &example).unwrap();
    fs::rename(path("server.key"), path("kept.key")).unwrap();
    for (missing, content) in [
        ("clients.crt", fs::read(path("authority.pem")).unwrap()),
        ("server.key", fs::read(path("kept.key")).unwrap()),
        ("server.crt", fs::read(path("server.pem")).unwrap()),
        ("admin-token", ADMIN.into()),
        ("consul-token", "secret".into()),
        ("receivers.crt", fs::read(path("authority.pem")).unwrap()),
        ("collector.crt", fs::read(path("authority.pem")).unwrap()),
    ] {
        let (code, shown, error) = print(&file);
        assert!(code == Some(1) && shown.is_empty() && error.contains(missing), "{missing}: {error}");
        fs::write(path(missing), content).unwrap();
    }
    let (code, shown, error) = print(&file);
    assert_eq!(code, Some(0), "{error}");
    assert!(
        !shown.contains("password") && !shown.contains("whsec") && !shown.contains("from-the-vendor"),
        "{shown}"
    );
    for part in [
        "[queues.mysql]",
        "[[intake]]",
        "[[task_list]]",
        "[[webhook]]",
        "[events]",
        "[machinery]",
        "[devices]",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    for (wrong, part) in [
        ("kind = \"quorum\"", "quorum"),
        ("confirm = \"event\"", "confirm"),
        ("window = 2000", "window"),
        ("protocol = \"3.1.1\"", "protocol"),
    ] {
        let key = wrong.split_once(" = ").unwrap().0;
        fs::write(&file, example.replace(wrong, &format!("{key} = \"nonsense\""))).unwrap();
        let (code, shown, error) = print(&file);
        assert!(code == Some(1) && shown.is_empty(), "{wrong}: {error}");
        assert!(
            error.contains("nonsense") || error.contains(key) || error.contains(part),
            "{wrong}: {error}"
        );
    }
}

/// Runs `windlass server` in this folder: its code, its output and its errors.
fn server(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut command = Command::new(PROGRAM);
    command.arg("server").args(arguments).current_dir(folder);
    command.envs(variables.iter().copied());
    let output = command.output().unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn print_config_refuses_what_the_start_refuses_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let refused = [
        (&["--store", "memory:", "--listen", "0.0.0.0:0"][..], &[][..], "--require-tokens"),
        (&["--store", "sqlite:none/x.db"], &[], "the directory of none/x.db does not exist"),
        (&["--store", "sqlite:."], &[], ". is a directory"),
        (&["--store", "postgres://h:port/d"], &[], "cannot open the store postgres://h:port/d"),
        (&["--store", "memory:"], &[("WINDLASS_LOG", "a=b=c")], "WINDLASS_LOG is \"a=b=c\""),
        (&["--store", "memory:", "--tls-cert", "none", "--tls-key", "none"], &[], "cannot use TLS"),
        (&["--store", "memory:", "--config", "none"], &[], "cannot read the configuration file none"),
    ];
    for (arguments, variables, why) in refused {
        let printed = server(dir.path(), &[arguments, &["--print-config"]].concat(), variables);
        assert!(printed.0 == Some(1) && printed.1.is_empty() && printed.2.contains(why), "{printed:?}");
        assert_eq!(server(dir.path(), arguments, variables), printed);
    }
    let (code, shown, error) = server(dir.path(), &["--print-config", "--store", "sqlite:x.db"], &[]);
    assert!(code == Some(0) && shown.contains("sqlite:x.db"), "{error}");
    let reachable = ["--print-config", "--insecure", "--listen", "0.0.0.0:0"];
    assert_eq!(server(dir.path(), &reachable, &[]).0, Some(0));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn the_last_error_is_a_line_of_a_json_log() {
    let dir = tempfile::tempdir().unwrap();
    let json = [("WINDLASS_LOG_FORMAT", "json")];
    let off = [("WINDLASS_LOG_FORMAT", "json"), ("WINDLASS_LOG", "off")];
    let wrong = [("WINDLASS_LOG_FORMAT", "json"), ("WINDLASS_LOG", "a=b=c")];
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (arguments, variables, message, hint) in [
        (&["--store", "sqlite:none/x.db"][..], &json[..], "cannot open the store sqlite:none/x.db: ", ""),
        (&["--store", "sqlite:none/x.db"], &off, "cannot open the store sqlite:none/x.db: ", ""),
        (&["--store", "memory:"], &wrong, "WINDLASS_LOG is \"a=b=c\"", ""),
        (&["--store", "memory:", "--listen", &taken], &off, "cannot listen on ", "another program"),
    ] {
        let (code, shown, error) = server(dir.path(), arguments, variables);
        assert!(code == Some(1) && shown.is_empty(), "{error}");
        let line = error.lines().last().unwrap();
        let line: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{error}"));
        let field = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        assert_eq!(field("level"), "ERROR", "{line}");
        assert!(field("message").starts_with(message) && field("hint").starts_with(hint), "{line}");
        assert_eq!(hint.is_empty(), line.get("hint").is_none(), "{line}");
        assert!(!field("timestamp").is_empty() && field("target").starts_with("windlass"), "{line}");
    }
}

#[test]
fn a_server_logs_the_variables_that_it_ignores_and_the_servers_beside_it_if_there_are_any() {
    let mut server = Command::new(PROGRAM)
        .args(["server", "--store", "memory:", "--listen", "127.0.0.1:0", "--log-format", "json"])
        .env("WINDLASS_LISTNE", "127.0.0.1:7800")
        .env("WINDLASS_OF_ANOTHER_PROGRAM", "1")
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines: Vec<Value> = Vec::new();
    for line in BufReader::new(server.stderr.take().unwrap()).lines() {
        lines.push(serde_json::from_str(&line.unwrap()).unwrap());
        if lines.last().is_some_and(|line| line["message"] == "serving") {
            break;
        }
    }
    server.kill().and_then(|()| server.wait()).unwrap();
    assert_eq!(
        (&lines[0]["level"], &lines[0]["message"]),
        (
            &"WARN".into(),
            &"the variable WINDLASS_LISTNE is unknown and ignored: did you mean WINDLASS_SERVER_LISTEN?"
                .into()
        )
    );
    assert!(lines.len() == 2 && lines[1].get("beside").is_none(), "{lines:?}");
}
