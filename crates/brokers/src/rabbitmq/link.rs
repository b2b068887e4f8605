//! A connection that is made when it is needed, and again after it was lost.
//!
//! The driver can reconnect by itself, but then it is unknown which messages were confirmed and which
//! deliveries are still valid. Here a lost connection stays lost, with everything in flight on it; the next
//! call gets a new one.

use std::{
    fmt,
    future::Future,
    net::{Shutdown, TcpStream},
    os::fd::AsFd,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use lapin::{
    Channel, Connection, ConnectionProperties, tcp::AsyncTcpStream, types::LongString, uri::AMQPUri,
};
use tokio::{
    runtime::Handle,
    time::{Instant, sleep, timeout},
};

use crate::{
    BrokerError,
    rabbitmq::{address::Address, failure::failure},
};

/// The time limit for connecting: name lookup, handshakes, login.
const CONNECT_MAX: Duration = Duration::from_secs(8);

/// The time limit for an answer. A replicated queue does not answer during the election of a new leader.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The time limit for closing a connection cleanly.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// The reply code of the protocol for an end in good order.
const REPLY_SUCCESS: u16 = 200;

/// The current connection, if any.
pub(super) struct Link {
    address: Arc<Address>,
    /// Its purpose, shown by the server's tools.
    purpose: &'static str,
    line: Mutex<Option<Arc<Line>>>,
    /// Locked by the task that connects: the time and error of the last failed attempt.
    failed: tokio::sync::Mutex<Option<(Instant, BrokerError)>>,
}

impl Link {
    pub(super) fn new(address: Arc<Address>, purpose: &'static str) -> Arc<Self> {
        Arc::new(Self { address, purpose, line: Mutex::default(), failed: tokio::sync::Mutex::default() })
    }

    /// Opens a channel. Connects first, if necessary.
    pub(super) async fn channel(self: &Arc<Self>) -> Result<(Arc<Line>, Channel), BrokerError> {
        let line = self.line().await?;
        let channel = answer(None, line.connection.create_channel()).await?;
        Ok((line, channel))
    }

    /// The current connection. Connects first, if necessary.
    pub(super) async fn line(self: &Arc<Self>) -> Result<Arc<Line>, BrokerError> {
        if let Some(line) = self.open_line() {
            return Ok(line);
        }
        // In a separate task: a caller may time out again and again, and would never get a connection.
        let (link, asked) = (Arc::clone(self), Instant::now());
        let connecting = tokio::spawn(async move { link.connect(asked).await });
        connecting.await.unwrap_or_else(|error| Err(BrokerError::Failed(error.to_string())))
    }

    /// Closes the connection, if there is one: the server has ended its consumers then, or the socket is shut.
    pub(super) async fn close(&self) {
        // A connection that is about to be made is closed as well.
        let _failed = self.failed.lock().await;
        let Some(line) = self.lock().take() else { return };
        let _cut = Cut(line.socket.clone());
        // The socket is shut afterwards, with or without an answer.
        let _ = timeout(CLOSE_MAX, line.connection.close(REPLY_SUCCESS, "".into())).await;
    }

    async fn connect(&self, asked: Instant) -> Result<Arc<Line>, BrokerError> {
        let mut failed = self.failed.lock().await;
        if let Some(line) = self.open_line() {
            return Ok(line);
        }
        // Callers that waited for the same attempt share its failure: otherwise each would make another
        // attempt in turn.
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

/// One connection. It closes when its last owner drops it.
pub(super) struct Line {
    connection: Connection,
    socket: Socket,
    runtime: Handle,
}

impl Line {
    async fn connect(address: &Address, purpose: &str) -> Result<Self, BrokerError> {
        let tls = address.tls()?;
        let socket = Socket::default();
        let held = socket.clone();
        let runtime = lapin::runtime::default_runtime().map_err(|error| failure(None, &error))?;
        let reactor = runtime.clone();
        let connect = async move |uri: AMQPUri, _| {
            let place = (uri.authority.host.clone(), uri.authority.port);
            let stream = AsyncTcpStream::connect(&reactor, reactor.to_socket_addrs(place)).await?;
            if let AsyncTcpStream::Plain(plain) = &stream {
                let plain = plain.get_ref();
                // A small message must not wait for the next one.
                plain.set_nodelay(true)?;
                held.hold(TcpStream::from(plain.as_fd().try_clone_to_owned()?));
            }
            match &tls {
                None => Ok(stream),
                Some(tls) => Ok(stream.into_rustls(tls, &uri.authority.host).await?),
            }
        };
        let name: LongString = format!("windlass {purpose}").into();
        let properties = ConnectionProperties::default().with_connection_name(name);
        let connecting = Connection::connector(address.uri.clone(), runtime, connect, properties);
        match timeout(CONNECT_MAX, connecting).await {
            Ok(Ok(connection)) => Ok(Self { connection, socket, runtime: Handle::current() }),
            Ok(Err(error)) => Err(failure(None, &error)),
            Err(_) => {
                // Otherwise the driver's thread would wait for ever.
                socket.shut();
                Err(BrokerError::Unreachable(format!("no connection within {CONNECT_MAX:?}")))
            }
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.connection.status().connected()
    }

    /// Whether the server has blocked publishing until it has memory and disk again.
    pub(super) fn is_blocked(&self) -> bool {
        self.connection.status().blocked()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // The driver now says goodbye, which the server may never answer.
        let socket = self.socket.clone();
        self.runtime.spawn(async move {
            let cut = Cut(socket);
            sleep(CLOSE_MAX).await;
            drop(cut);
        });
    }
}

/// Shuts a socket down when dropped, possibly together with the whole runtime.
struct Cut(Socket);

impl Drop for Cut {
    fn drop(&mut self) {
        self.0.shut();
    }
}

/// A second handle of a connection's socket. The driver's thread serves a connection until its socket ends,
/// so abandoning a connection requires ending the socket.
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
    // Fails if the socket has already ended, which is fine.
    let _ = stream.shutdown(Shutdown::Both);
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("to", &self.address.name).field("purpose", &self.purpose).finish()
    }
}

/// Waits for an answer about a queue, with a time limit.
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

    /// A server that accepts connections and never answers is abandoned, together with the thread that serves
    /// the connection.
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
        // Callers during a connection attempt share its result.
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
