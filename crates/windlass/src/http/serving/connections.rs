//! The open connections, and which one is closed to make room for another.
//!
//! ```text
//! accepted ─▶ Head ──(request complete)──▶ Busy ──(answered)──▶ Idle ──(first byte)──▶ Head …
//! ```
//!
//! A connection in `Head` costs a slot and has asked for nothing. So when there is no room for another one, the
//! connection that is in `Head` longest gives way; where there is none, the one that is `Idle` longest. A client that
//! opens connections and sends nothing thus closes its own. A connection that has just begun gives way last, because
//! its request may have arrived and not been read: so a request that comes at once is always served.
//! Where every connection is busy, a few more are accepted for health checks and for workers that are known here.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tokio::{
    task::AbortHandle,
    time::{Duration, Instant},
};

/// Connections at once. Each costs a few KiB.
const CONNECTIONS_MAX: usize = 4096;

/// Connections beside those, for health checks and for workers whose sessions are known.
const RESERVED_CONNECTIONS_MAX: usize = 64;

/// What a client may have, where the settings do not say.
pub(in crate::http) const CONNECTIONS_PER_CLIENT_DEFAULT: usize = CONNECTIONS_MAX / 2;

/// How long a client may take to send the head of a request, from its first byte, and the first one of a connection from
/// its begin.
pub(in crate::http) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection counts as just begun.
const JUST_BEGUN: Duration = Duration::from_millis(250);

/// The connections of a server.
pub(in crate::http) struct Connections {
    per_client_max: usize,
    began: Instant,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    next: u64,
    open: BTreeMap<u64, Entry>,
    per_client: HashMap<IpAddr, usize>,
    reserved: usize,
}

struct Entry {
    connection: Arc<Connection>,
    abort: Option<AbortHandle>,
}

/// A connection, as the requests that come on it see it.
#[derive(Debug)]
pub(crate) struct Connection {
    number: u64,
    client: IpAddr,
    /// It was accepted although every ordinary connection is busy.
    is_reserved: bool,
    /// A worker's session that is known here has called on it.
    is_known: AtomicBool,
    /// The stage in the two lowest bits, above them since when in milliseconds.
    stage: AtomicU64,
    began: Instant,
}

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The head of a request is awaited or incomplete.
    Head = 0,
    /// Nothing is under way.
    Idle = 1,
    /// A request is being answered.
    Busy = 2,
}

impl Connections {
    pub(in crate::http) fn new(per_client_max: usize) -> Self {
        let table = Mutex::default();
        Self { per_client_max: per_client_max.clamp(1, CONNECTIONS_MAX), began: Instant::now(), table }
    }

    /// Makes room for a connection of `client`. Nothing where there is none.
    pub(in crate::http) fn accept(&self, client: IpAddr) -> Option<Arc<Connection>> {
        let mut table = self.lock();
        let of_client = |connection: &Connection| connection.client == client;
        let has_room = table.count(client) < self.per_client_max || table.give_way(of_client);
        let ordinary = table.open.len() - table.reserved;
        let is_ordinary = |connection: &Connection| !connection.is_reserved;
        let is_reserved = !has_room || (ordinary >= CONNECTIONS_MAX && !table.give_way(is_ordinary));
        if is_reserved
            && table.reserved >= RESERVED_CONNECTIONS_MAX
            && !table.give_way(|other| other.is_reserved)
        {
            return None;
        }
        let connection = Arc::new(Connection::new(table.next, client, is_reserved, self.began));
        table.add(connection.clone());
        Some(connection)
    }

    /// How the connection is closed when it must give way.
    pub(in crate::http) fn closes_by(&self, connection: &Connection, abort: AbortHandle) {
        if let Some(entry) = self.lock().open.get_mut(&connection.number) {
            entry.abort = Some(abort);
        }
    }

    /// The connection has ended.
    pub(in crate::http) fn end(&self, connection: &Connection) {
        self.lock().remove(connection.number);
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn count(&self, client: IpAddr) -> usize {
        self.per_client.get(&client).copied().unwrap_or(0)
    }

    fn add(&mut self, connection: Arc<Connection>) {
        *self.per_client.entry(connection.client).or_default() += 1;
        self.reserved += usize::from(connection.is_reserved);
        self.next += 1;
        self.open.insert(connection.number, Entry { connection, abort: None });
    }

    fn remove(&mut self, number: u64) -> Option<Entry> {
        let entry = self.open.remove(&number)?;
        self.reserved -= usize::from(entry.connection.is_reserved);
        if let Some(count) = self.per_client.get_mut(&entry.connection.client) {
            *count -= 1;
            if *count == 0 {
                self.per_client.remove(&entry.connection.client);
            }
        }
        Some(entry)
    }

    /// Closes one of those connections that are not busy. Returns whether there was one.
    fn give_way(&mut self, may: impl Fn(&Connection) -> bool) -> bool {
        let waiting = self.open.values().map(|entry| &entry.connection).filter(|connection| may(connection));
        let first = waiting.filter_map(|connection| Some((connection.turn()?, connection.number))).min();
        let Some(entry) = first.and_then(|(_, number)| self.remove(number)) else { return false };
        if let Some(abort) = entry.abort {
            abort.abort();
        }
        true
    }
}

impl Connection {
    fn new(number: u64, client: IpAddr, is_reserved: bool, began: Instant) -> Self {
        let (is_known, stage) = (AtomicBool::new(false), AtomicU64::new(0));
        let connection = Self { number, client, is_reserved, is_known, stage, began };
        connection.set(Stage::Head);
        connection
    }

    /// The client's address.
    pub(crate) fn client(&self) -> IpAddr {
        self.client
    }

    /// Whether it is for health checks and known workers only.
    pub(crate) fn is_reserved(&self) -> bool {
        self.is_reserved
    }

    /// Whether a known worker has called on it.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    /// A worker whose session is known calls on it.
    pub(crate) fn know(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }

    /// A request is complete but for its body.
    pub(in crate::http) fn begin_request(&self) {
        self.set(Stage::Busy);
    }

    /// A request was answered.
    pub(in crate::http) fn end_request(&self) {
        self.set(Stage::Idle);
    }

    /// Bytes have come.
    pub(in crate::http) fn receive(&self) {
        if self.stage().0 == Stage::Idle {
            self.set(Stage::Head);
        }
    }

    /// Since when the head of a request is awaited, where it is.
    pub(in crate::http) fn head_since(&self) -> Option<Instant> {
        let (stage, since) = self.stage();
        (stage == Stage::Head).then(|| self.began + Duration::from_millis(since))
    }

    /// The order in which connections give way, and since when it has this place. Nothing of one that is busy.
    fn turn(&self) -> Option<(u8, u64)> {
        let (stage, since) = self.stage();
        let place = match stage {
            Stage::Head if self.began.elapsed() >= Duration::from_millis(since) + JUST_BEGUN => 0,
            Stage::Idle => 1,
            Stage::Head => 2,
            Stage::Busy => return None,
        };
        Some((place, since))
    }

    fn stage(&self) -> (Stage, u64) {
        let packed = self.stage.load(Ordering::Relaxed);
        let stage = match packed & 3 {
            0 => Stage::Head,
            1 => Stage::Idle,
            _ => Stage::Busy,
        };
        (stage, packed >> 2)
    }

    fn set(&self, stage: Stage) {
        let since = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX >> 2);
        self.stage.store(since << 2 | stage as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    /// Connections of a server that runs for some time.
    fn old(per_client_max: usize) -> Connections {
        Connections { began: Instant::now() - 2 * JUST_BEGUN, ..Connections::new(per_client_max) }
    }

    /// It has been in its stage since the server began.
    fn long_ago(connection: &Connection) {
        connection.stage.store(connection.stage().0 as u64, Ordering::Relaxed);
    }

    fn open(connections: &Connections) -> Vec<u64> {
        connections.lock().open.keys().copied().collect()
    }

    #[test]
    fn a_client_at_its_limit_closes_its_own_incomplete_connections_first() {
        let connections = Connections::new(2);
        let other = connections.accept(OTHER).unwrap();
        let busy = connections.accept(ONE).unwrap();
        busy.begin_request();
        connections.accept(ONE).unwrap();
        let next = connections.accept(ONE).unwrap();
        assert!(!next.is_reserved());
        assert_eq!(open(&connections), [other.number, busy.number, next.number]);
    }

    #[test]
    fn an_idle_connection_gives_way_after_those_without_a_head() {
        let connections = old(2);
        let idle = connections.accept(ONE).unwrap();
        idle.begin_request();
        idle.end_request();
        let incomplete = connections.accept(ONE).unwrap();
        long_ago(&incomplete);
        let first = connections.accept(ONE).unwrap();
        assert_eq!(open(&connections), [idle.number, first.number], "{incomplete:?} gave way");
        first.begin_request();
        let second = connections.accept(ONE).unwrap();
        assert_eq!(open(&connections), [first.number, second.number]);
    }

    #[test]
    fn a_connection_that_has_just_begun_gives_way_last() {
        let connections = old(3);
        let idle: Vec<_> = (0..2).map(|_| connections.accept(ONE).unwrap()).collect();
        for connection in &idle {
            connection.begin_request();
            connection.end_request();
        }
        let new = connections.accept(ONE).unwrap();
        let next = connections.accept(ONE).unwrap();
        assert_eq!(open(&connections), [idle[1].number, new.number, next.number]);
        connections.accept(ONE).unwrap();
        let last = connections.accept(ONE).unwrap();
        assert!(!last.is_reserved(), "of new connections alone the oldest gives way");
        assert!(!open(&connections).contains(&new.number));
    }

    #[test]
    fn where_all_are_busy_a_few_more_are_reserved() {
        let connections = Connections::new(1);
        connections.accept(ONE).unwrap().begin_request();
        for _ in 0..RESERVED_CONNECTIONS_MAX {
            let more = connections.accept(ONE).unwrap();
            assert!(more.is_reserved());
            more.begin_request();
        }
        assert!(connections.accept(ONE).is_none());
        assert!(!connections.accept(OTHER).unwrap().is_reserved());
    }

    #[test]
    fn all_clients_together_have_a_limit_as_well() {
        let connections = Connections::new(CONNECTIONS_MAX);
        let all: Vec<_> = (0..CONNECTIONS_MAX).map(|_| connections.accept(ONE).unwrap()).collect();
        all.iter().skip(1).for_each(|connection| connection.begin_request());
        assert!(!connections.accept(OTHER).unwrap().is_reserved());
        assert!(!open(&connections).contains(&all[0].number), "it was not busy");
        let count = open(&connections).len();
        connections.accept(OTHER).unwrap().begin_request();
        assert_eq!((count, open(&connections).len()), (CONNECTIONS_MAX, CONNECTIONS_MAX));
        assert!(connections.accept(OTHER).unwrap().is_reserved());
    }

    #[test]
    fn what_has_ended_takes_no_room() {
        let connections = Connections::new(1);
        let first = connections.accept(ONE).unwrap();
        first.begin_request();
        connections.end(&first);
        assert!(!connections.accept(ONE).unwrap().is_reserved());
        assert_eq!(open(&connections).len(), 1);
    }

    #[test]
    fn the_first_byte_after_an_answer_begins_a_head() {
        let connections = Connections::new(1);
        let connection = connections.accept(ONE).unwrap();
        assert!(connection.head_since().is_some());
        connection.begin_request();
        connection.receive();
        assert!(connection.head_since().is_none(), "it is the body");
        connection.end_request();
        assert!(connection.head_since().is_none());
        connection.receive();
        assert!(connection.head_since().is_some());
    }
}
