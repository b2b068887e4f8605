//! The programs that listen to events, as the pages on brokers have them.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use windlass_brokers::{Announcement, Broker, Message, Topic};

const PATIENCE: Duration = Duration::from_secs(30);

/// Debian's, which has the packages.
const PYTHON: &str = "/usr/bin/python3";

/// A program that prints what it hears.
struct Subscriber {
    process: Child,
    lines: Receiver<String>,
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Whether there is a Python that has this module. Where `CI` is set there must be.
pub(crate) fn is_there(module: &str) -> bool {
    let mut command = Command::new(PYTHON);
    command.args(["-c", &format!("import {module}")]).stderr(Stdio::null());
    let is_there = command.status().is_ok_and(|status| status.success());
    let is_needed = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    assert!(is_there || !is_needed, "{PYTHON} has no module {module}");
    is_there
}

/// Starts the program of a page, where it says something else than there.
fn start(page: &str, instead: (&str, &str)) -> Subscriber {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate/brokers").join(page);
    let text = fs::read_to_string(path).unwrap();
    let program = text.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    assert!(program.contains(instead.0), "{program}");
    let mut command = Command::new(PYTHON);
    command.arg("-c").arg(program.replace(instead.0, instead.1)).stdout(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let output = BufReader::new(process.stdout.take().unwrap());
    let (told, lines) = channel();
    thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| told.send(line)));
    Subscriber { process, lines }
}

/// The program of a page hears what is announced from the time on when it listens.
pub(crate) async fn the_page_is_right(broker: &dyn Broker, page: &str, instead: (&str, &str)) {
    let topic = Topic { name: "windlass-events".to_owned(), kind: None, keep: 1_000 };
    let event = r#"{"subject":"0198","type":"windlass.task.accepted","data":{"flow":"ship"}}"#;
    let said = [Announcement {
        subject: "task.accepted".to_owned(),
        message: Message::new("0198/1", "0198", event)
            .with_header("content-type", "application/cloudevents+json"),
    }];
    let subscriber = start(page, instead);
    let until = Instant::now() + PATIENCE;
    loop {
        assert_eq!(broker.announce(&topic, &said).await, [Ok(())]);
        if let Ok(line) = subscriber.lines.recv_timeout(Duration::from_millis(200)) {
            assert_eq!(line, "0198 windlass.task.accepted {'flow': 'ship'}");
            return;
        }
        assert!(Instant::now() < until, "the program of {page} hears something within {PATIENCE:?}");
    }
}
