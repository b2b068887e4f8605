//! Flows whose expressions take long do not keep the server from answering others.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    thread,
};

use super::site::Site;

/// What each submit of a bomb brings: a list that every condition goes through for each of its elements.
fn body(flow: &str) -> String {
    let list = vec!["1"; 300].join(",");
    format!(r#"{{"flow":"{flow}","params":{{"l":[{list}]}}}}"#)
}

/// 255 steps that wait for none. Each condition is below the limit of an expression.
fn bomb() -> String {
    let step = |index: usize| {
        format!("  - {{ name: s{index}, run: m.echo, after: [], when: 'l.all(a, l.all(b, a >= 0))' }}\n")
    };
    format!("flow: bomb\nsteps:\n{}", (0..255).map(step).collect::<String>())
}

/// The limit of repetitions of a request. On a busy machine the server may answer few others concurrently.
const TRIES: usize = 10;

/// Sends a submit, and gives the connection on which its answer comes.
fn submit(site: &Site, path: &str, body: &str) -> TcpStream {
    let address = site.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    stream
}

/// Reads an answer to its end elsewhere, and meanwhile asks `/healthz` again and again. Gives the answer, and how many times
/// the server said that it is well.
fn healthy_until(site: &Site, mut stream: TcpStream) -> (String, usize) {
    let reader = thread::spawn(move || {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    let mut times = 0;
    while !reader.is_finished() {
        assert!(site.get("/healthz").starts_with("HTTP/1.1 200"));
        times += 1;
    }
    (reader.join().unwrap(), times)
}

/// Returns the refusal of a request. Checks that the server answers more than `few` others before it. A server that evaluates
/// without pauses answers a few others, directly before and after the evaluation.
fn refused_beside_others(site: &Site, path: &str, body: &str, few: usize) -> String {
    let mut counts = Vec::new();
    for _ in 0..TRIES {
        let (answer, times) = healthy_until(site, submit(site, path, body));
        if times > few {
            return answer;
        }
        counts.push((times, answer.lines().next().unwrap_or_default().to_owned()));
    }
    panic!("the server does not answer others while it evaluates: {counts:?}");
}

#[test]
fn bombs_are_refused_while_the_server_answers_others() {
    let site = Site::start();
    site.apply(&bomb());
    let answer = refused_beside_others(&site, "/v1/tasks", &body("bomb"), 5);
    assert!(answer.starts_with("HTTP/1.1 422"), "{answer}");
    assert!(answer.contains("too-much-to-evaluate"), "{answer}");
    assert!(answer.contains("submit shorter lists and strings"), "{answer}");
    // Many of them at once.
    let tasks = format!("[{}]", vec![body("bomb"); 8].join(","));
    let batch = format!(r#"{{"tasks":{tasks}}}"#);
    let answer = refused_beside_others(&site, "/v1/tasks/batch", &batch, 20);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(answer.matches("too-much-to-evaluate").count(), 8, "{answer}");
    site.start_task("lonely");
}
