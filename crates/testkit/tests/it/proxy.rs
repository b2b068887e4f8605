//! The network that fails.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use windlass_testkit::{Postgres, Proxy};

/// A server that says what it hears, until the test ends.
fn echo() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || std::io::copy(&mut stream.try_clone().unwrap(), &mut stream));
        }
    });
    port
}

fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

/// Says a word and gives what comes back.
fn say(stream: &mut TcpStream, word: &[u8; 4]) -> std::io::Result<[u8; 4]> {
    stream.write_all(word)?;
    let mut heard = [0; 4];
    stream.read_exact(&mut heard)?;
    Ok(heard)
}

#[test]
fn what_is_sent_comes_through() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut stream = connect(&proxy);
    assert_eq!(say(&mut stream, b"ping").unwrap(), *b"ping");
    let long: Vec<u8> = (0..5_000_000_u32).map(|n| n as u8).collect();
    let mut writer = stream.try_clone().unwrap();
    let mut heard = vec![0; long.len()];
    thread::scope(|scope| {
        scope.spawn(|| writer.write_all(&long).unwrap());
        stream.read_exact(&mut heard).unwrap();
    });
    assert!(heard == long);
}

#[test]
fn a_cut_closes_connections_and_new_ones() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut stream = connect(&proxy);
    say(&mut stream, b"ping").unwrap();
    proxy.cut();
    say(&mut stream, b"ping").unwrap_err();
    say(&mut connect(&proxy), b"ping").unwrap_err();
    proxy.heal();
    assert_eq!(say(&mut connect(&proxy), b"pong").unwrap(), *b"pong");
}

#[test]
fn what_is_stalled_arrives_later() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut stream = connect(&proxy);
    say(&mut stream, b"ping").unwrap();
    proxy.stall();
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert_eq!(say(&mut stream, b"late").unwrap_err().kind(), ErrorKind::WouldBlock);
    proxy.heal();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut heard = [0; 4];
    stream.read_exact(&mut heard).unwrap();
    assert_eq!(heard, *b"late");
}

#[test]
fn a_delay_is_there_in_both_directions_and_goes() {
    const DELAY: Duration = Duration::from_millis(60);
    let proxy = Proxy::start(echo()).unwrap();
    let mut stream = connect(&proxy);
    proxy.delay(DELAY);
    let begun = Instant::now();
    say(&mut stream, b"slow").unwrap();
    assert!(begun.elapsed() >= 2 * DELAY, "{:?}", begun.elapsed());
    proxy.heal();
    let quickest = (0..5).map(|_| {
        let begun = Instant::now();
        say(&mut stream, b"fast").unwrap();
        begun.elapsed()
    });
    assert!(quickest.min().unwrap() < DELAY);
}

#[test]
fn new_connections_lead_to_another_server() {
    let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let proxy = Proxy::start(echo()).unwrap();
    let mut old = connect(&proxy);
    say(&mut old, b"ping").unwrap();
    proxy.lead_to(other.local_addr().unwrap().port());
    let mut new = connect(&proxy);
    new.write_all(b"ping").unwrap();
    let mut heard = [0; 4];
    other.accept().unwrap().0.read_exact(&mut heard).unwrap();
    assert_eq!((&heard, &say(&mut old, b"pong").unwrap()), (b"ping", b"pong"));
}

/// A server behind it is the same one, and is unavailable while the proxy is cut.
#[test]
fn a_database_is_cut_off() {
    let Some(postgres) = Postgres::shared().unwrap() else { return };
    let proxy = Proxy::start(postgres.port()).unwrap();
    let database = postgres.database().unwrap();
    assert!(database.url_at(proxy.port()).contains(&proxy.port().to_string()));
    let connect = || {
        let mut stream = connect(&proxy);
        // The protocol's question whether the server encrypts: one byte is the answer.
        stream.write_all(&[0, 0, 0, 8, 4, 210, 22, 47])?;
        let mut answer = [0];
        stream.read_exact(&mut answer).map(|()| answer)
    };
    assert_eq!(&connect().unwrap(), b"N");
    proxy.cut();
    connect().unwrap_err();
    proxy.heal();
    assert_eq!(&connect().unwrap(), b"N");
}
