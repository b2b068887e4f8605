//! A session, which goes on from one connection to the next.

use std::{
    sync::{Arc, Mutex as SyncMutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::{sync::Mutex, time::timeout};
use windlass_tls::ClientConfig;

use super::{
    connection::{Connection, Granted, Reply},
    touches::Touches,
    wire::{Writer, error, op},
};
use crate::{Bound, CoordinatorError};

/// The number of requests to log in.
const LOGIN: i32 = -4;

/// Where the servers are, and how to log in.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) hosts: Vec<String>,
    /// How to speak TLS, if connections are encrypted.
    pub(super) tls: Option<Arc<ClientConfig>>,
    /// `USER:PASSWORD`.
    pub(super) login: Option<String>,
}

/// A session. Dropping it closes the connection: the session then ends by its timeout.
#[derive(Debug)]
pub(super) struct Session {
    target: Arc<Target>,
    /// Its number and its password.
    key: (i64, Vec<u8>),
    timeout: Duration,
    /// How long one address may take for an answer.
    patience: Duration,
    bound: Bound,
    touches: SyncMutex<Touches>,
    link: Mutex<Link>,
}

#[derive(Debug)]
struct Link {
    connection: Arc<Connection>,
    /// The host that it is connected to.
    host: usize,
}

impl Session {
    /// Opens a session at the first address that answers.
    pub(super) async fn open(
        target: &Arc<Target>,
        wanted: Duration,
        patience: Duration,
    ) -> Result<Self, CoordinatorError> {
        let sent = Instant::now();
        let (connection, granted, host) = connect(target, 0, None, wanted, 0, patience).await?;
        let Some(key) = granted.session else {
            return Err(CoordinatorError::Unavailable("a server opens no session".to_owned()));
        };
        let (target, link) =
            (Arc::clone(target), Mutex::new(Link { connection: Arc::new(connection), host }));
        let bound = Bound::new(granted.timeout, sent);
        let touches = SyncMutex::new(Touches::new(granted.timeout));
        Ok(Self { target, key, timeout: granted.timeout, patience, bound, touches, link })
    }

    /// The timeout that the server granted.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Its number.
    pub(super) fn number(&self) -> i64 {
        self.key.0
    }

    /// Until when it surely lives.
    pub(super) fn bound(&self) -> &Bound {
        &self.bound
    }

    /// Whether the user of the session is known.
    pub(super) fn is_logged_in(&self) -> bool {
        self.target.login.is_some()
    }

    /// Reads something.
    pub(super) async fn read(&self, kind: i32, body: &[u8]) -> Result<Reply, CoordinatorError> {
        self.request(kind, body, false).await
    }

    /// Changes something. It is unknown whether a write without an answer took effect.
    pub(super) async fn write(&self, kind: i32, body: &[u8]) -> Result<Reply, CoordinatorError> {
        self.request(kind, body, true).await
    }

    async fn request(&self, kind: i32, body: &[u8], is_write: bool) -> Result<Reply, CoordinatorError> {
        let connection = self.connection().await?;
        let sent = Instant::now();
        let reply = match timeout(self.patience, connection.request(kind, body)).await {
            Ok(reply) => reply.map_err(|error| CoordinatorError::Unavailable(error.to_string()))?,
            Err(_) => {
                let why = format!("no answer within {:?}", self.patience);
                connection.give_up(&why);
                return Err(CoordinatorError::Unavailable(why));
            }
        };
        match reply.error {
            error::SESSION_EXPIRED => return Err(expired()),
            error::CONNECTION_LOSS | error::SESSION_MOVED => {
                connection.give_up("the server has lost the session");
                return Err(CoordinatorError::Unavailable("the server has lost the session".to_owned()));
            }
            error::NO_AUTH => {
                return Err(CoordinatorError::Refused("the user has no permission for a node".to_owned()));
            }
            _ => {}
        }
        let proved = self.touches().answered(sent, is_write);
        if let Some(proved) = proved {
            self.bound.renewed(proved);
        }
        Ok(reply)
    }

    /// The current connection. After a loss it is opened again, at the next address that answers: that reports the
    /// session to the leader of the ensemble at once.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>, CoordinatorError> {
        let mut link = self.link.lock().await;
        if link.connection.lost().is_none() {
            return Ok(Arc::clone(&link.connection));
        }
        let sent = Instant::now();
        let (host, zxid) = (link.host + 1, link.connection.zxid());
        let opened = connect(&self.target, host, Some(&self.key), self.timeout, zxid, self.patience).await?;
        let (connection, granted, host) = opened;
        if granted.session.is_none() {
            return Err(expired());
        }
        self.touches().clear();
        self.bound.renewed(sent);
        *link = Link { connection: Arc::new(connection), host };
        Ok(Arc::clone(&link.connection))
    }

    /// Ends the session, and with it its nodes.
    pub(super) async fn close(&self) -> Result<(), CoordinatorError> {
        match self.write(op::CLOSE, &[]).await {
            Err(CoordinatorError::Lost(_)) => Ok(()),
            other => other.map(drop),
        }
    }

    fn touches(&self) -> std::sync::MutexGuard<'_, Touches> {
        self.touches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn expired() -> CoordinatorError {
    CoordinatorError::Lost("the session has ended".to_owned())
}

/// Connects to the first address that answers, beginning with one of them.
async fn connect(
    target: &Target,
    first: usize,
    session: Option<&(i64, Vec<u8>)>,
    wanted: Duration,
    zxid: i64,
    patience: Duration,
) -> Result<(Connection, Granted, usize), CoordinatorError> {
    let mut failures = Vec::new();
    for offset in 0..target.hosts.len() {
        let host = (first + offset) % target.hosts.len();
        let opening = async {
            let (name, tls) = (&target.hosts[host], target.tls.as_ref());
            let (connection, granted) = Connection::open(name, tls, session, wanted, zxid).await?;
            if let Some(login) = &target.login {
                let body = Writer::default().int(0).string("digest").string(login).bytes();
                let reply = connection.request_as(Some(LOGIN), op::AUTH, &body).await?;
                return Ok((connection, granted, reply.error));
            }
            Ok::<_, std::io::Error>((connection, granted, 0))
        };
        match timeout(patience, opening).await {
            Ok(Ok((_, _, error::AUTH_FAILED))) => {
                return Err(CoordinatorError::Refused("the user and the password are wrong".to_owned()));
            }
            Ok(Ok((connection, granted, _))) => return Ok((connection, granted, host)),
            Ok(Err(error)) => failures.push(format!("{}: {error}", target.hosts[host])),
            Err(_) => failures.push(format!("{}: no answer within {patience:?}", target.hosts[host])),
        }
    }
    Err(CoordinatorError::Unavailable(failures.join("; ")))
}
