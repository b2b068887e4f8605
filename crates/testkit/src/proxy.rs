//! A network that fails, between clients and a server: see [`Proxy`].

use std::{
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use std::sync::mpsc;

/// The bytes buffered in each direction, in pieces of [`PIECE`]. A network buffers some data, but not all.
const PIECES_MAX: usize = 64;

/// The maximum number of bytes that are forwarded at once.
const PIECE: usize = 16 * 1024;

/// Forwards connections to a server. Tests make it behave like a network that fails.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
}

#[derive(Debug)]
struct Shared {
    weather: Mutex<Weather>,
    changed: Condvar,
}

#[derive(Debug)]
struct Weather {
    target: SocketAddr,
    mode: Mode,
    delay: Duration,
    /// The sockets of both ends of every connection.
    connections: Vec<(TcpStream, TcpStream)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Open,
    /// No data comes through, and connections stay open.
    Stalled,
    /// All connections are closed.
    Cut,
    /// The proxy was dropped.
    Gone,
}

impl Proxy {
    /// Starts to forward connections to a port of 127.0.0.1.
    ///
    /// # Errors
    /// When there is no free port.
    pub fn start(target: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let target = SocketAddr::from((Ipv4Addr::LOCALHOST, target));
        let weather = Weather { target, mode: Mode::Open, delay: Duration::ZERO, connections: Vec::new() };
        let shared = Arc::new(Shared { weather: Mutex::new(weather), changed: Condvar::new() });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accepting.accept(&listener));
        Ok(Self { shared, address })
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Closes all connections, and each new one at once, until [`heal`](Self::heal).
    pub fn cut(&self) {
        self.shared.turn(Mode::Cut);
    }

    /// Forwards new connections to another port of 127.0.0.1, as a virtual address does after a failover. Open
    /// connections do not move.
    pub fn lead_to(&self, target: u16) {
        self.shared.lock().target = SocketAddr::from((Ipv4Addr::LOCALHOST, target));
    }

    /// Stops all data in both directions and keeps the connections open, until [`heal`](Self::heal). Buffered data
    /// arrives then. A partition looks like this from both sides.
    pub fn stall(&self) {
        self.shared.turn(Mode::Stalled);
    }

    /// Delays all data by `delay` in each direction, from now on.
    pub fn delay(&self, delay: Duration) {
        self.shared.lock().delay = delay;
    }

    /// Forwards all data again, without delay.
    pub fn heal(&self) {
        self.shared.lock().delay = Duration::ZERO;
        self.shared.turn(Mode::Open);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.turn(Mode::Gone);
        // The accepting thread notices the end at its next connection.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Weather> {
        self.weather.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn turn(&self, mode: Mode) {
        let mut weather = self.lock();
        weather.mode = mode;
        if matches!(mode, Mode::Cut | Mode::Gone) {
            for (client, server) in weather.connections.drain(..) {
                close(&client);
                close(&server);
            }
        }
        self.changed.notify_all();
    }

    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            let mode = self.lock().mode;
            match (mode, client) {
                (Mode::Gone, _) => return,
                (Mode::Cut, _) | (_, Err(_)) => {}
                (Mode::Open | Mode::Stalled, Ok(client)) => {
                    // If the server is down, close the connection, as the server's machine would.
                    let _ = self.connect(client);
                }
            }
        }
    }

    fn connect(self: &Arc<Self>, client: TcpStream) -> io::Result<()> {
        let target = self.lock().target;
        let server = TcpStream::connect(target)?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let mut weather = self.lock();
        if matches!(weather.mode, Mode::Cut | Mode::Gone) {
            return Ok(());
        }
        weather.connections.push((client.try_clone()?, server.try_clone()?));
        drop(weather);
        self.carry(client.try_clone()?, server.try_clone()?);
        self.carry(server, client);
        Ok(())
    }

    /// Forwards one direction of a connection, until either end closes it.
    fn carry(self: &Arc<Self>, mut from: TcpStream, mut to: TcpStream) {
        let (sender, pieces) = mpsc::sync_channel::<(Instant, Vec<u8>)>(PIECES_MAX);
        thread::spawn(move || {
            let mut buffer = vec![0; PIECE];
            while let Ok(length @ 1..) = from.read(&mut buffer) {
                if sender.send((Instant::now(), buffer[..length].to_vec())).is_err() {
                    break;
                }
            }
        });
        let shared = Arc::clone(self);
        thread::spawn(move || {
            for (came_at, piece) in pieces {
                if !shared.let_through(came_at) || to.write_all(&piece).is_err() {
                    break;
                }
            }
            // The other direction may have more data. After a cut, both directions are closed already.
            let _ = to.shutdown(Shutdown::Write);
        });
    }

    /// Waits until data that arrived may be forwarded. False if it never may.
    fn let_through(&self, came_at: Instant) -> bool {
        let mut weather = self.lock();
        loop {
            let wait = (came_at + weather.delay).saturating_duration_since(Instant::now());
            weather = match weather.mode {
                Mode::Cut | Mode::Gone => return false,
                Mode::Open if wait.is_zero() => return true,
                Mode::Open => {
                    let waited = self.changed.wait_timeout(weather, wait);
                    waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0
                }
                Mode::Stalled => {
                    let waited = self.changed.wait(weather);
                    waited.unwrap_or_else(|poisoned| poisoned.into_inner())
                }
            };
        }
    }
}

/// Closes a connection in both directions. A connection that is already closed is not an error.
fn close(stream: &TcpStream) {
    let _ = stream.shutdown(Shutdown::Both);
}
