//! Real connections: that they are served, limited, and that their end is seen.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    http::Request,
};
use futures_util::{StreamExt as _, stream};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, timeout},
};
use windlass::http::{ClientLimits, serve};

use super::server::{PATIENCE, Server, Worker};

struct Listening {
    server: Server,
    port: u16,
    stop: oneshot::Sender<()>,
    served: JoinHandle<std::io::Result<()>>,
}

async fn listen() -> Listening {
    listen_with(ClientLimits::default()).await
}

async fn listen_with(clients: ClientLimits) -> Listening {
    let server = Server::with(clients).await;
    server.apply("f", "steps: [{ name: only, run: m.c }]").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (stop, stopped) = oneshot::channel();
    let served = tokio::spawn(serve(listener, server.app.clone(), async {
        let _ = stopped.await;
    }));
    Listening { server, port, stop, served }
}

impl Listening {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).await.unwrap()
    }

    /// Sends bytes and reads until the server closes the connection.
    async fn talk(&self, request: &[u8]) -> String {
        let mut stream = self.connect().await;
        // The server may close while this is still being sent.
        let _ = stream.write_all(request).await;
        let mut answer = Vec::new();
        let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("an end");
        String::from_utf8_lossy(&answer).into_owned()
    }
}

fn poll(seq: u32, attached: bool) -> Vec<u8> {
    let body = json!({
        "protocol": 1, "session": "00000000-0000-4000-8000-000000000001", "seq": seq, "attached": attached,
        "modules": [{ "name": "m", "free": 1 }], "holding": [], "wait_ms": 30_000,
    })
    .to_string();
    format!(
        "POST /v1/worker/exchange HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Reads one answer that has a body.
async fn read_answer(stream: &mut TcpStream) -> String {
    let mut answer = String::new();
    let mut piece = [0; 4096];
    loop {
        let n = timeout(PATIENCE, stream.read(&mut piece)).await.expect("an answer").unwrap();
        assert!(n > 0, "the connection was closed after {answer:?}");
        answer.push_str(std::str::from_utf8(&piece[..n]).unwrap());
        if let Some((head, body)) = answer.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned)
            });
            if body.len() >= length.unwrap().parse::<usize>().unwrap() {
                return answer;
            }
        }
    }
}

#[tokio::test]
async fn a_connection_takes_one_request_after_the_other() {
    let listening = listen().await;
    let mut stream = listening.connect().await;
    for _ in 0..3 {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        assert!(read_answer(&mut stream).await.starts_with("HTTP/1.1 200 OK"));
    }
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    assert!(read_answer(&mut stream).await.contains(r#""status":"ok""#));
}

/// Reads until the server closes the connection.
async fn closed(stream: &mut TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("an end");
    answer
}

#[tokio::test]
async fn connections_that_ask_for_nothing_give_way() {
    let listening = listen_with(ClientLimits { connections: 4, ..ClientLimits::default() }).await;
    let mut silent = Vec::new();
    for _ in 0..4 {
        let mut stream = listening.connect().await;
        stream.write_all(b"GET /healthz HTTP/1.1\r\n").await.unwrap();
        silent.push(stream);
    }
    let health = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert!(listening.talk(health).await.starts_with("HTTP/1.1 200 OK"));
    assert_eq!(closed(&mut silent[0]).await, b"", "the oldest gave way");
    silent[3].write_all(b"Host: localhost\r\n\r\n").await.unwrap();
    assert!(read_answer(&mut silent[3]).await.starts_with("HTTP/1.1 200 OK"), "the newest did not");
}

#[tokio::test]
async fn a_head_must_come_in_time_and_an_idle_connection_is_kept() {
    let head_timeout = Duration::from_millis(50);
    let listening = listen_with(ClientLimits { head_timeout, ..ClientLimits::default() }).await;
    let mut idle = listening.connect().await;
    idle.write_all(
        b"GET /healthz HTTP/1.1
Host: localhost

",
    )
    .await
    .unwrap();
    assert!(read_answer(&mut idle).await.starts_with("HTTP/1.1 200"));
    let mut silent = listening.connect().await;
    let mut slow = listening.connect().await;
    slow.write_all(
        b"GET /healthz HTTP/1.1
",
    )
    .await
    .unwrap();
    assert_eq!((closed(&mut silent).await, closed(&mut slow).await), (Vec::new(), Vec::new()));
    // Those two had their time after this one was answered.
    idle.write_all(
        b"GET /healthz HTTP/1.1
Host: localhost

",
    )
    .await
    .unwrap();
    assert!(read_answer(&mut idle).await.starts_with("HTTP/1.1 200"));
    idle.write_all(
        b"GET /healthz HTTP/1.1
",
    )
    .await
    .unwrap();
    assert_eq!(closed(&mut idle).await, b"", "a later head has no more time");
}

#[tokio::test]
async fn a_body_that_does_not_come_is_given_up() {
    let body_window = Duration::from_millis(50);
    let server = Server::with(ClientLimits { body_window, ..ClientLimits::default() }).await;
    server.apply("f", "steps: [{ name: only, run: m.c }]").await;
    let submit =
        |body| Request::post("/v1/tasks").header("content-type", "application/json").body(body).unwrap();
    let first = async { Ok::<_, std::io::Error>(Bytes::from_static(b"{")) };
    let body = Body::from_stream(stream::once(first).chain(stream::pending()));
    let refused = server.send(submit(body)).await;
    assert_eq!(refused.status.as_u16(), 408, "{refused:?}");
    assert!(refused.json()["type"].as_str().unwrap().ends_with("/too-slow"), "{refused:?}");
}

#[tokio::test]
async fn where_all_are_busy_health_is_answered_and_workers_that_are_known() {
    let listening = listen_with(ClientLimits { connections: 1, ..ClientLimits::default() }).await;
    let server = &listening.server;
    let mut polling = listening.connect().await;
    polling.write_all(&poll(1, true)).await.unwrap();
    until(async || server.get("/v1/workers").await.json()["items"].as_array().unwrap().len() == 1).await;
    assert!(
        listening.talk(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.starts_with("HTTP/1.1 200")
    );
    let other = listening.talk(b"GET /v1/tasks HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(other.starts_with("HTTP/1.1 503") && other.contains("too-many-connections"), "{other}");
    let stranger = String::from_utf8(poll(1, true)).unwrap().replace("-000000000001", "-000000000002");
    let stranger = listening.talk(stranger.as_bytes()).await;
    assert!(stranger.starts_with("HTTP/1.1 503") && stranger.contains("too-many-connections"), "{stranger}");
    let report = String::from_utf8(poll(2, true)).unwrap().replace("30000", "    0");
    let known = listening.talk(report.as_bytes()).await;
    assert!(known.starts_with("HTTP/1.1 200"), "{known}");
}

#[tokio::test]
async fn what_is_no_request_is_refused() {
    let listening = listen().await;
    assert!(listening.talk(b"hello\r\n\r\n").await.starts_with("HTTP/1.1 400"));
    let large = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(70_000));
    assert!(listening.talk(large.as_bytes()).await.starts_with("HTTP/1.1 431"));
    let many = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "X: y\r\n".repeat(200));
    assert!(listening.talk(many.as_bytes()).await.starts_with("HTTP/1.1 431"));
    let foreign =
        listening.talk(b"GET /v1/tasks HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n").await;
    assert!(foreign.starts_with("HTTP/1.1 421") && foreign.contains("misdirected"), "{foreign}");
    let large = b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 99999999\r\n\r\n{";
    assert!(
        listening.talk(large).await.starts_with("HTTP/1.1 413"),
        "a body that is too large is not waited for"
    );
}

#[tokio::test]
async fn bodies_take_no_more_memory_than_they_may_and_workers_have_their_own() {
    let server = Server::start().await;
    server.apply("f", "steps: [{ name: only, run: m.c }]").await;
    let submit =
        |body| Request::post("/v1/tasks").header("content-type", "application/json").body(body).unwrap();
    // Each sends all that a submit may have and never comes to its end: 128 MiB together.
    let piece = Bytes::from(vec![b' '; 2 << 20]);
    let mut unended: Vec<_> = (0..64)
        .map(|_| {
            let first = Ok::<_, std::io::Error>(piece.clone());
            let body = Body::from_stream(stream::once(async { first }).chain(stream::pending()));
            Box::pin(server.send(submit(body)))
        })
        .collect();
    for request in &mut unended {
        assert!(futures_util::poll!(request).is_pending());
    }
    let body = || Body::from(format!(r#"{{"flow":"f"{}}}"#, " ".repeat(2_000_000)));
    let small = server.send(submit(Body::from(r#"{"flow":"f"}"#))).await;
    assert_eq!(small.status.as_u16(), 202, "the begin of a body is free");
    let refused = server.send(submit(body())).await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (503, Some("1")), "{refused:?}");
    assert!(refused.json()["type"].as_str().unwrap().ends_with("/too-many-bodies"), "{refused:?}");
    let taken = Worker::new(&server, 1, &["m"]).poll().await;
    assert_eq!(taken["attempts"].as_array().unwrap().len(), 1, "a worker's poll is heard: {taken}");
    unended.pop();
    assert_eq!(server.send(submit(body())).await.status, 202);
}

#[tokio::test]
async fn a_worker_whose_connection_closed_is_gone_after_a_second() {
    let listening = listen().await;
    let server = &listening.server;
    let mut stream = listening.connect().await;
    stream.write_all(&poll(1, true)).await.unwrap();
    until(async || server.get("/v1/workers").await.json()["items"].as_array().unwrap().len() == 1).await;
    drop(stream);
    // Its lease would last for ten seconds of the clock that is turned here.
    let mut passed_ms = 0;
    until(async || {
        server.pass(10).await;
        passed_ms += 10;
        server.get("/v1/workers").await.json()["items"].as_array().unwrap().is_empty()
    })
    .await;
    assert!((1000..9000).contains(&passed_ms), "gone after {passed_ms} ms");
}

#[tokio::test]
async fn a_poll_is_answered_as_soon_as_there_is_work() {
    let listening = listen().await;
    let mut stream = listening.connect().await;
    stream.write_all(&poll(1, true)).await.unwrap();
    let server = &listening.server;
    until(async || server.get("/v1/workers").await.json()["items"].as_array().unwrap().len() == 1).await;
    let id = server.submit("f", json!({})).await;
    let answer = read_answer(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(&id), "{answer}");
}

#[tokio::test]
async fn the_end_of_the_server_ends_polls_and_idle_connections() {
    let listening = listen().await;
    let mut idle = listening.connect().await;
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    read_answer(&mut idle).await;
    let mut polling = listening.connect().await;
    polling.write_all(&poll(1, true)).await.unwrap();
    let server = &listening.server;
    until(async || server.get("/v1/workers").await.json()["items"].as_array().unwrap().len() == 1).await;

    let began = Instant::now();
    listening.stop.send(()).unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, polling.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("shutting-down"), "{answer}");
    assert_eq!(timeout(PATIENCE, idle.read(&mut [0; 16])).await.unwrap().unwrap(), 0);
    timeout(PATIENCE, listening.served).await.unwrap().unwrap().unwrap();
    assert!(began.elapsed() < Duration::from_secs(5), "nothing was waited for in vain");
    assert!(TcpStream::connect(("127.0.0.1", listening.port)).await.is_err());
}

/// Waits until something is so.
async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < PATIENCE, "it never came");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
