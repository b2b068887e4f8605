//! One connection to one server.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    io::{
        self as tokio_io, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf,
    },
    net::TcpStream,
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
};
use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};
use windlass_tls::ClientConfig;

use super::wire::{Reader, Writer};

/// The longest answer, in bytes. A server has the same limit by default.
const FRAME_BYTES_MAX: usize = 4 << 20;

/// The number of frames that report events, in place of a request's.
const EVENT: i32 = -1;

/// The password of a session.
pub(super) const PASSWORD_BYTES: usize = 16;

/// The bytes from and to a server, encrypted or not.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// What a server grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Granted {
    /// None if the session has ended.
    pub(super) session: Option<(i64, Vec<u8>)>,
    pub(super) timeout: Duration,
}

/// The answer to a request.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) error: i32,
    pub(super) body: Vec<u8>,
}

/// A connection with a session. It is closed when this is dropped, which the session survives.
#[derive(Debug)]
pub(super) struct Connection {
    outbox: mpsc::UnboundedSender<Vec<u8>>,
    shared: Arc<Shared>,
    tasks: [JoinHandle<()>; 2],
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Counts events, and the end.
    events: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    last_number: i32,
    waiting: HashMap<i32, oneshot::Sender<Reply>>,
    /// The last change that this client knows of.
    zxid: i64,
    lost: Option<String>,
}

impl Connection {
    /// Connects, and opens a session or goes on with one.
    pub(super) async fn open(
        host: &str,
        tls: Option<&Arc<ClientConfig>>,
        session: Option<&(i64, Vec<u8>)>,
        timeout: Duration,
        zxid: i64,
    ) -> io::Result<(Self, Granted)> {
        let mut stream = connect(host, tls).await?;
        let none = (0, vec![0; PASSWORD_BYTES]);
        let (id, password) = session.unwrap_or(&none);
        let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        let request = Writer::default().int(0).long(zxid).int(millis).long(*id).buffer(password).bool(false);
        stream.write_all(&frame(request.bytes())).await?;
        let answer = read_frame(&mut stream).await?;
        let granted = read_granted(&answer).ok_or_else(|| strange("its greeting"))?;
        let (reading, writing) = tokio_io::split(stream);
        let (outbox, frames) = mpsc::unbounded_channel();
        let state = Mutex::new(State { zxid, ..State::default() });
        let shared = Arc::new(Shared { state, events: watch::Sender::new(0) });
        let tasks = [
            tokio::spawn(Arc::clone(&shared).read(reading)),
            tokio::spawn(Arc::clone(&shared).write(writing, frames)),
        ];
        Ok((Self { outbox, shared, tasks }, granted))
    }

    /// Sends a request and waits for its answer. Dropping the future does not take it back.
    pub(super) async fn request(&self, kind: i32, body: &[u8]) -> io::Result<Reply> {
        self.request_as(None, kind, body).await
    }

    /// The same with a number that the protocol demands.
    pub(super) async fn request_as(&self, number: Option<i32>, kind: i32, body: &[u8]) -> io::Result<Reply> {
        let (answer, answered) = oneshot::channel();
        {
            let mut state = self.shared.lock();
            if let Some(why) = &state.lost {
                return Err(io::Error::other(why.clone()));
            }
            state.last_number = state.last_number.checked_add(1).unwrap_or(1);
            let number = number.unwrap_or(state.last_number);
            state.waiting.insert(number, answer);
            let head = Writer::default().int(number).int(kind).bytes();
            // If nobody sends it any more, then nobody answers either.
            let _ = self.outbox.send(frame([&head, body].concat()));
        }
        answered.await.map_err(|_| io::Error::other(self.lost().unwrap_or_default()))
    }

    /// Why the connection was lost, if it was.
    pub(super) fn lost(&self) -> Option<String> {
        self.shared.lock().lost.clone()
    }

    /// Gives it up: the server does not answer.
    pub(super) fn give_up(&self, why: &str) {
        self.shared.lose(why);
    }

    /// The last change that this client knows of. A server that does not know of it refuses the session.
    pub(super) fn zxid(&self) -> i64 {
        self.shared.lock().zxid
    }

    /// Changes with each event of a watch, and with the end of the connection.
    pub(super) fn events(&self) -> watch::Receiver<u64> {
        self.shared.events.subscribe()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lose(&self, why: &str) {
        let mut state = self.lock();
        state.lost.get_or_insert_with(|| why.to_owned());
        // Those who wait notice that nobody will answer.
        state.waiting.clear();
        drop(state);
        self.events.send_modify(|count| *count += 1);
    }

    async fn read(self: Arc<Self>, mut stream: ReadHalf<Box<dyn Stream>>) {
        loop {
            match read_frame(&mut stream).await {
                Ok(frame) if self.deliver(&frame).is_some() => {}
                Ok(_) => return self.lose("an answer is cut short"),
                Err(error) => return self.lose(&error.to_string()),
            }
        }
    }

    async fn write(
        self: Arc<Self>,
        mut stream: WriteHalf<Box<dyn Stream>>,
        mut frames: mpsc::UnboundedReceiver<Vec<u8>>,
    ) {
        while let Some(frame) = frames.recv().await {
            if let Err(error) = stream.write_all(&frame).await {
                return self.lose(&error.to_string());
            }
        }
    }

    /// Gives an answer to who waits for it. None when it cannot be read.
    fn deliver(&self, frame: &[u8]) -> Option<()> {
        let mut reader = Reader::new(frame);
        let (number, zxid, error) = (reader.int()?, reader.long()?, reader.int()?);
        if number == EVENT {
            self.events.send_modify(|count| *count += 1);
            return Some(());
        }
        let mut state = self.lock();
        state.zxid = state.zxid.max(zxid);
        if let Some(waiting) = state.waiting.remove(&number) {
            // The caller may have given up.
            let _ = waiting.send(Reply { error, body: reader.rest().to_vec() });
        }
        Some(())
    }
}

/// Connects to `HOST:PORT`.
async fn connect(host: &str, tls: Option<&Arc<ClientConfig>>) -> io::Result<Box<dyn Stream>> {
    let stream = TcpStream::connect(host).await?;
    stream.set_nodelay(true)?;
    let Some(tls) = tls else { return Ok(Box::new(stream)) };
    let name = host.rsplit_once(':').map_or(host, |(name, _port)| name).trim_matches(['[', ']']);
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    let stream = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await?;
    Ok(Box::new(stream))
}

fn read_granted(answer: &[u8]) -> Option<Granted> {
    let mut reader = Reader::new(answer);
    let (_version, millis, id) = (reader.int()?, reader.int()?, reader.long()?);
    let password = reader.buffer()?.to_vec();
    let timeout = Duration::from_millis(u64::try_from(millis).unwrap_or(0));
    let session = (id != 0 && !timeout.is_zero()).then_some((id, password));
    Some(Granted { session, timeout })
}

/// A record with its length before it.
fn frame(record: Vec<u8>) -> Vec<u8> {
    Writer::default().buffer(&record).bytes()
}

async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let length = usize::try_from(stream.read_i32().await?).unwrap_or(usize::MAX);
    if length > FRAME_BYTES_MAX {
        return Err(strange("the length of an answer"));
    }
    let mut frame = vec![0; length];
    stream.read_exact(&mut frame).await?;
    Ok(frame)
}

fn strange(what: &str) -> io::Error {
    io::Error::other(format!("it is not a ZooKeeper server: {what} is invalid"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_has_ended_has_no_number() {
        let granted = Writer::default().int(0).int(4000).long(7).buffer(&[1; 16]).bool(false).bytes();
        let session = Some((7, vec![1; 16]));
        assert_eq!(read_granted(&granted), Some(Granted { session, timeout: Duration::from_secs(4) }));
        let ended = Writer::default().int(0).int(0).long(0).buffer(&[0; 16]).bytes();
        assert_eq!(read_granted(&ended), Some(Granted { session: None, timeout: Duration::ZERO }));
        assert_eq!(read_granted(&granted[..10]), None);
    }
}
