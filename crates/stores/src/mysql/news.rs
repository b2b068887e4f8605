//! Hears of other servers, and notifies them.
//!
//! MySQL has no messages between its clients, but each may end the statements of its own user (`KILL QUERY`). So every server has
//! a connection that sleeps, and a server that puts attempts into an empty queue wakes the connections of the others. A
//! notification may be lost, so the engine looks in intervals as well; behind a proxy that has numbers of its own for
//! connections it only does that.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use mysql_async::{Conn, Error, prelude::Queryable as _};
use tokio::{
    sync::{Mutex, Notify},
    time::{sleep, timeout},
};

use super::open::MySqlOptions;
use crate::rows::{self, LISTEN_AGAIN_AFTER, LastNotified, Listener, policy::CONNECT_MAX};

/// How often other servers' changes are looked for without a notification.
const EVERY: Duration = Duration::from_millis(200);

/// How often a server that has ended is looked for. Heartbeats look too, every second, so this is once between two of them.
const ENDED_EVERY: Duration = Duration::from_millis(500);

/// The statement of a connection that waits for notifications. The comment is what others find it by.
const SLEEP: &str = "SELECT SLEEP(20) /* windlass waits for other servers */";

/// A sleep is not a slow query: it must not appear in the server's log of slow queries.
const NOT_SLOW: &str = "SET SESSION long_query_time = 3600";

/// The error of a statement that was ended by another connection.
const INTERRUPTED: u16 = 1317;

/// The pause between two sleeps: if a statement does not sleep, the database must not be asked without end. The engine looks a second
/// time after a longer pause, so nothing is missed in it.
const SLEEP_PAUSE: Duration = Duration::from_millis(5);

/// How long the connections of other servers are remembered.
const REMEMBERED: Duration = Duration::from_secs(1);

/// Hears of other servers.
pub(crate) struct News {
    heard: Arc<Notify>,
    _listener: Option<Listener>,
}

impl News {
    /// Listens from now on.
    pub(super) fn listen(options: MySqlOptions, notifier: Arc<Notifier>) -> Self {
        let heard = Arc::<Notify>::default();
        let listener = Listener::spawn(listen(options, notifier, heard.clone()));
        Self { heard, _listener: Some(listener) }
    }

    /// Nothing is heard, for a reader of a snapshot.
    pub(super) fn none() -> Self {
        Self { heard: Arc::default(), _listener: None }
    }
}

impl rows::News for News {
    async fn next(&self) {
        tokio::select! {
            () = self.heard.notified() => {}
            () = sleep(EVERY) => {}
        }
    }

    async fn enqueued(&self) {
        sleep(EVERY).await;
    }

    async fn released(&self) {
        sleep(ENDED_EVERY).await;
    }
}

async fn listen(options: MySqlOptions, notifier: Arc<Notifier>, heard: Arc<Notify>) {
    loop {
        if let Ok(mut conn) = options.connect().await
            && is_direct(&mut conn).await
            && conn.query_drop(NOT_SLOW).await.is_ok()
        {
            notifier.own.store(u64::from(conn.id()), Ordering::Relaxed);
            // Other servers may have done something while nobody listened.
            heard.notify_one();
            while has_slept(&mut conn).await {
                heard.notify_one();
                sleep(SLEEP_PAUSE).await;
            }
            notifier.own.store(0, Ordering::Relaxed);
        }
        sleep(LISTEN_AGAIN_AFTER).await;
    }
}

/// Whether the server knows the connection by the number that the client has for it. Behind some proxies it does not.
async fn is_direct(conn: &mut Conn) -> bool {
    let number: Result<Option<u64>, Error> = conn.query_first("SELECT CONNECTION_ID()").await;
    number.is_ok_and(|number| number == Some(u64::from(conn.id())))
}

/// Waits for a notification, or for the end of the sleep. False if the connection is of no use any more.
async fn has_slept(conn: &mut Conn) -> bool {
    match conn.query_drop(SLEEP).await {
        Ok(()) => true,
        Err(Error::Server(error)) => error.code == INTERRUPTED,
        Err(_) => false,
    }
}

/// Notifies other servers.
pub(crate) struct Notifier {
    options: MySqlOptions,
    /// The number of this server's connection that waits for notifications, 0 = there is none. Without it, nothing is sent either.
    own: AtomicU64,
    notified: LastNotified,
    /// It has a connection of its own: notifications wait for no other work, and hold none up.
    sender: Mutex<Sender>,
}

/// What notifications are sent with.
#[derive(Default)]
struct Sender {
    conn: Option<Conn>,
    /// The connections of other servers, and when they were looked up.
    others: Option<(Vec<u64>, Instant)>,
}

impl Notifier {
    pub(super) fn new(options: MySqlOptions) -> Self {
        let (own, notified, sender) = (AtomicU64::new(0), LastNotified::default(), Mutex::default());
        Self { options, own, notified, sender }
    }

    /// Whether it listens, and has not notified the others a moment ago.
    pub(super) fn is_due(&self) -> bool {
        self.own.load(Ordering::Relaxed) != 0 && self.notified.is_past()
    }

    /// Notifies the other servers that there is something in a queue where nothing was. Nobody waits for it.
    pub(super) fn notify(self: &Arc<Self>) {
        self.notified.set();
        let notifier = self.clone();
        tokio::spawn(async move { notifier.send().await });
    }

    async fn send(&self) {
        let own = self.own.load(Ordering::Relaxed);
        // If the last one is still on its way, the database is slow, and the others look by themselves.
        let Ok(mut sender) = self.sender.try_lock() else { return };
        let sent = timeout(CONNECT_MAX, sender.wake_others(&self.options, own)).await;
        if sent.ok().flatten().is_none() {
            *sender = Sender::default();
        }
    }
}

impl Sender {
    /// Ends the sleep of the connections that wait for notifications. `None` if the connection is of no use any more.
    async fn wake_others(&mut self, options: &MySqlOptions, own: u64) -> Option<()> {
        let conn = match &mut self.conn {
            Some(conn) => conn,
            none => none.insert(options.connect().await.ok()?),
        };
        let known = self.others.take().filter(|(_, at)| at.elapsed() < REMEMBERED);
        let (others, at) = match known {
            Some(known) => known,
            None => (conn.query(sleeping(own)).await.ok()?, Instant::now()),
        };
        for other in &others {
            match conn.query_drop(format!("KILL QUERY {other}")).await {
                // It may have ended meanwhile.
                Ok(()) | Err(Error::Server(_)) => {}
                Err(_) => return None,
            }
        }
        self.others = Some((others, at));
        Some(())
    }
}

/// Reads the connections that wait for notifications, except this server's own one. A user without privileges sees only those of its
/// own.
fn sleeping(own: u64) -> String {
    format!(
        "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND info = '{SLEEP}' AND id <> {own}"
    )
}
