//! A connection that is made when it is needed and made again after it was lost.
//!
//! The driver can reconnect by itself, but then nobody knows which messages were confirmed and which deliveries are
//! still ours. Here a connection that was lost stays lost, with all that was under way on it; the next call gets a new
//! one.

use std::{
    fmt,
    future::Future,
    net::{Shutdown, TcpStream},
    os::fd::AsFd,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use lapin::{
    Channel, Connection, ConnectionProperties,
    tcp::AsyncTcpStream,
    types::LongString,
    uri::{AMQPScheme, AMQPUri},
};
use tokio::{
    runtime::Handle,
    time::{Instant, sleep, timeout},
};

use crate::{
    BrokerError,
    rabbitmq::{address::Address, failure::failure},
};

/// How long a connection may take to be made: name, handshakes, password.
const CONNECT_MAX: Duration = Duration::from_secs(8);

/// How long an answer may take. A queue of several servers has none while they choose a new leader.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(10);

/// How long a connection has to be closed in good order.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// The place of a connection.
pub(super) struct Link {
    address: Arc<Address>,
    /// What it is for, shown by the server's tools.
    purpose: &'static str,
    line: Mutex<Option<Arc<Line>>>,
    /// Held by the one who connects: when the last attempt failed, and why.
    failed: tokio::sync::Mutex<Option<(Instant, BrokerError)>>,
}

impl Link {
    pub(super) fn new(address: Arc<Address>, purpose: &'static str) -> Arc<Self> {
        Arc::new(Self { address, purpose, line: Mutex::default(), failed: tokio::sync::Mutex::default() })
    }

    /// A new channel on the connection, which is made unless it is there.
    pub(super) async fn channel(self: &Arc<Self>) -> Result<(Arc<Line>, Channel), BrokerError> {
        let line = self.line().await?;
        let channel = answer(None, line.connection.create_channel()).await?;
        Ok((line, channel))
    }

    /// The connection, which is made unless it is there.
    pub(super) async fn line(self: &Arc<Self>) -> Result<Arc<Line>, BrokerError> {
        if let Some(line) = self.open_line() {
            return Ok(line);
        }
        // In a task of its own: whoever asks may lose patience again and again, and would never be connected.
        let (link, asked) = (Arc::clone(self), Instant::now());
        let connecting = tokio::spawn(async move { link.connect(asked).await });
        connecting.await.unwrap_or_else(|error| Err(BrokerError::Failed(error.to_string())))
    }

    async fn connect(&self, asked: Instant) -> Result<Arc<Line>, BrokerError> {
        let mut failed = self.failed.lock().await;
        if let Some(line) = self.open_line() {
            return Ok(line);
        }
        // Callers that waited for the same attempt share its failure, instead of each making another one in turn.
        if let Some((_, error)) = failed.as_ref().filter(|(at, _)| *at >= asked) {
            return Err(error.clone());
        }
        match Line::connect(&self.address, self.purpose).await {
            Ok(line) => {
                let line = Arc::new(line);
                *self.lock() = Some(Arc::clone(&line));
                *failed = None;
                Ok(line)
            }
            Err(error) => {
                *failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    fn open_line(&self) -> Option<Arc<Line>> {
        self.lock().as_ref().filter(|line| line.is_open()).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Line>>> {
        self.line.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// One connection. It is closed when nobody has it any more.
pub(super) struct Line {
    connection: Connection,
    socket: Socket,
    runtime: Handle,
}

impl Line {
    async fn connect(address: &Address, purpose: &str) -> Result<Self, BrokerError> {
        let trust = address.trust()?;
        let socket = Socket::default();
        let held = socket.clone();
        let runtime = lapin::runtime::default_runtime().map_err(|error| failure(None, &error))?;
        let reactor = runtime.clone();
        let connect = async move |uri: AMQPUri, _| {
            let place = (uri.authority.host.clone(), uri.authority.port);
            let stream = AsyncTcpStream::connect(&reactor, reactor.to_socket_addrs(place)).await?;
            if let AsyncTcpStream::Plain(plain) = &stream {
                let plain = plain.get_ref();
                // A small message is not to wait for the next one.
                plain.set_nodelay(true)?;
                held.hold(TcpStream::from(plain.as_fd().try_clone_to_owned()?));
            }
            match uri.scheme {
                AMQPScheme::AMQP => Ok(stream),
                AMQPScheme::AMQPS => Ok(stream.into_tls(&uri.authority.host, trust.as_ref()).await?),
            }
        };
        let name: LongString = format!("windlass {purpose}").into();
        let properties = ConnectionProperties::default().with_connection_name(name);
        let connecting = Connection::connector(address.uri.clone(), runtime, connect, properties);
        match timeout(CONNECT_MAX, connecting).await {
            Ok(Ok(connection)) => Ok(Self { connection, socket, runtime: Handle::current() }),
            Ok(Err(error)) => Err(failure(None, &error)),
            Err(_) => {
                // The driver's thread would wait for ever.
                socket.shut();
                Err(BrokerError::Unreachable(format!("no connection within {CONNECT_MAX:?}")))
            }
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.connection.status().connected()
    }

    /// Whether the server has told us to send nothing more until it has memory and disk again.
    pub(super) fn is_blocked(&self) -> bool {
        self.connection.status().blocked()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // What the driver says now is a farewell that the server may never answer.
        let socket = self.socket.clone();
        self.runtime.spawn(async move {
            let cut = Cut(socket);
            sleep(CLOSE_MAX).await;
            drop(cut);
        });
    }
}

/// Shuts a socket down when it is dropped, which may be with the whole runtime.
struct Cut(Socket);

impl Drop for Cut {
    fn drop(&mut self) {
        self.0.shut();
    }
}

/// A second handle of a connection's socket. The driver's thread serves a connection until its socket ends, so whoever
/// gives up on one must end it.
#[derive(Clone, Default)]
struct Socket(Arc<Mutex<Held>>);

#[derive(Default)]
enum Held {
    #[default]
    NotYet,
    Open(TcpStream),
    Shut,
}

impl Socket {
    fn hold(&self, stream: TcpStream) {
        let mut held = self.lock();
        match *held {
            Held::Shut => end(&stream),
            _ => *held = Held::Open(stream),
        }
    }

    fn shut(&self) {
        if let Held::Open(stream) = std::mem::replace(&mut *self.lock(), Held::Shut) {
            end(&stream);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn end(stream: &TcpStream) {
    // One that has ended already has nothing against it.
    let _ = stream.shutdown(Shutdown::Both);
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("to", &self.address.name).field("purpose", &self.purpose).finish()
    }
}

/// Waits for an answer about a queue, but not for ever.
pub(super) async fn answer<T>(
    queue: Option<&str>,
    answer: impl Future<Output = lapin::Result<T>>,
) -> Result<T, BrokerError> {
    match timeout(ANSWER_MAX, answer).await {
        Ok(answer) => answer.map_err(|error| failure(queue, &error)),
        Err(_) => Err(BrokerError::Unreachable(format!("no answer within {ANSWER_MAX:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read as _, net::TcpListener, thread};

    use super::*;

    /// A server that takes connections and says nothing is given up, with the thread that serves the connection.
    #[tokio::test]
    async fn a_connection_that_is_given_up_is_ended() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("amqp://{}/", listener.local_addr().unwrap());
        let peer = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(CONNECT_MAX * 2)).unwrap();
            let mut heard = Vec::new();
            stream.read_to_end(&mut heard).map(|_| heard)
        });
        let link = Link::new(Arc::new(Address::parse(&url).unwrap()), "test");
        let begun = Instant::now();
        // Those who ask while somebody connects share what comes of it.
        let (one, two) = tokio::join!(link.line(), link.line());
        for asked in [one, two] {
            assert!(matches!(asked.err(), Some(BrokerError::Unreachable(_))));
        }
        assert!(begun.elapsed() < CONNECT_MAX * 3 / 2, "{:?}", begun.elapsed());
        assert_eq!(peer.join().unwrap().unwrap(), b"AMQP\0\0\x09\x01");
        let are_there = |name: &str| {
            let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
            threads
                .filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok())
                .any(|comm| comm.starts_with(name))
        };
        let until = Instant::now() + CLOSE_MAX;
        while are_there("lapin-io-loop") {
            assert!(Instant::now() < until, "the thread ends");
            sleep(Duration::from_millis(10)).await;
        }
    }
}
