//! How much memory the bodies of requests may take together, and those of one client.
//!
//! A body counts from its first byte until nobody needs it any more. Bytes are counted as they come, not as they
//! are announced, so a client that announces much and sends nothing takes nothing from others. The begin of a body is
//! free: polls, and nearly all reports, are read whatever others send.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{body::Bytes, http::Extensions};

use crate::http::{ClientLimits, serving::connections::Connection};

/// Bytes of bodies at once: sixteen of the largest, which is more than a full inbox needs to be kept full.
const BODY_BYTES_AT_ONCE_MAX: usize = 128 << 20;

/// The part of those of workers that only workers can use whose sessions are known.
const KNOWN_WORKERS_BYTES: usize = BODY_BYTES_AT_ONCE_MAX / 2;

/// Bytes of a body that are free: with all connections that there can be, 64 MiB.
const FREE_BODY_BYTES: usize = 16 << 10;

/// What the bodies of a client may take at once, where the settings do not say: eight of the largest.
pub(in crate::http) const BODY_BYTES_PER_CLIENT_DEFAULT: usize = 64 << 20;

/// The window of [`BODY_WINDOW_BYTES`].
pub(in crate::http) const BODY_WINDOW_DEFAULT: Duration = Duration::from_secs(10);

/// The least that a body must bring in each window: with 10 s it is 128 KiB/s, a line of 1 Mbit/s.
pub(in crate::http) const BODY_WINDOW_BYTES: usize = 10 * (128 << 10);

/// What bodies of one kind of request may take together. Workers have one of their own: whatever clients send,
/// leases are renewed and reports are heard.
#[derive(Debug)]
pub(crate) struct BodyBudget {
    all_max: usize,
    /// Part of `all_max` that senders who are not known cannot use.
    reserve: usize,
    per_client_max: usize,
    /// A body must end within this time, or have brought [`BODY_WINDOW_BYTES`] in it; then it has as long again.
    pub(in crate::http) window: Duration,
    held: Arc<Mutex<Held>>,
}

/// Bytes that are held now.
#[derive(Debug, Default)]
struct Held {
    all: usize,
    per_client: HashMap<IpAddr, usize>,
}

/// Who sends a body.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sender {
    /// The client's address; nothing where the request came over no connection.
    client: Option<IpAddr>,
    /// A worker whose session is known.
    is_known: bool,
}

impl Sender {
    /// The sender of a request with these extensions.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        match extensions.get::<Arc<Connection>>() {
            Some(connection) => Self { client: Some(connection.client()), is_known: connection.is_known() },
            None => Self::default(),
        }
    }
}

/// No byte more: others must end first.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Exhausted;

impl BodyBudget {
    /// The budget of clients.
    pub(crate) fn of_clients(limits: &ClientLimits) -> Self {
        Self { window: limits.body_window, ..Self::new(BODY_BYTES_AT_ONCE_MAX, 0, limits.body_bytes) }
    }

    /// The budget of workers.
    pub(crate) fn of_workers(limits: &ClientLimits) -> Self {
        Self { reserve: KNOWN_WORKERS_BYTES, ..Self::of_clients(limits) }
    }

    fn new(all_max: usize, reserve: usize, per_client_max: usize) -> Self {
        Self { all_max, reserve, per_client_max, window: BODY_WINDOW_DEFAULT, held: Arc::default() }
    }

    /// A body of which nothing has come yet.
    pub(crate) fn begin(&self, sender: Sender) -> GrowingBody<'_> {
        let body =
            CountedBody { bytes: Vec::new(), counted: 0, client: sender.client, held: self.held.clone() };
        GrowingBody { budget: self, sender, body }
    }

    /// Counts `bytes` more of a sender.
    fn take(&self, sender: Sender, bytes: usize) -> Result<(), Exhausted> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let all_max = if sender.is_known { self.all_max } else { self.all_max - self.reserve };
        if held.all + bytes > all_max {
            return Err(Exhausted);
        }
        if let Some(client) = sender.client {
            let of_client = held.per_client.get(&client).copied().unwrap_or(0) + bytes;
            if of_client > self.per_client_max && !sender.is_known {
                return Err(Exhausted);
            }
            held.per_client.insert(client, of_client);
        }
        held.all += bytes;
        Ok(())
    }
}

/// A body that is being read.
#[derive(Debug)]
pub(crate) struct GrowingBody<'a> {
    budget: &'a BodyBudget,
    sender: Sender,
    body: CountedBody,
}

#[derive(Debug)]
struct CountedBody {
    bytes: Vec<u8>,
    counted: usize,
    client: Option<IpAddr>,
    held: Arc<Mutex<Held>>,
}

impl GrowingBody<'_> {
    /// Adds what has come.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Result<(), Exhausted> {
        let counted = (self.body.bytes.len() + piece.len()).saturating_sub(FREE_BODY_BYTES);
        let more = counted - self.body.counted;
        if more > 0 {
            self.budget.take(self.sender, more)?;
            self.body.counted = counted;
        }
        self.body.bytes.extend_from_slice(piece);
        Ok(())
    }

    /// The whole body. It counts until the last part of it is dropped.
    pub(crate) fn finish(self) -> Bytes {
        Bytes::from_owner(self.body)
    }
}

impl Drop for CountedBody {
    fn drop(&mut self) {
        if self.counted == 0 {
            return;
        }
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.all -= self.counted;
        if let Some(client) = self.client
            && let Some(of_client) = held.per_client.get_mut(&client)
        {
            *of_client -= self.counted;
            if *of_client == 0 {
                held.per_client.remove(&client);
            }
        }
    }
}

impl AsRef<[u8]> for CountedBody {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn from(last: u8, is_known: bool) -> Sender {
        Sender { client: Some(Ipv4Addr::new(10, 0, 0, last).into()), is_known }
    }

    /// A body that counts with this many bytes.
    fn body<'a>(
        budget: &'a BodyBudget,
        sender: Sender,
        counted: usize,
    ) -> Result<GrowingBody<'a>, Exhausted> {
        let mut body = budget.begin(sender);
        body.push(&vec![b' '; FREE_BODY_BYTES + counted])?;
        Ok(body)
    }

    #[test]
    fn a_body_counts_until_it_is_dropped() {
        let budget = BodyBudget::new(10, 0, 10);
        let sender = Sender::default();
        let first = body(&budget, sender, 7).unwrap();
        let mut second = body(&budget, sender, 3).unwrap();
        assert_eq!(second.push(b"!"), Err(Exhausted));
        let whole = first.finish();
        let part = whole.slice(2..4);
        drop(whole);
        assert_eq!((&part[..], second.push(b"!")), (&b"  "[..], Err(Exhausted)));
        drop(part);
        assert_eq!(second.push(b"!"), Ok(()));
        assert_eq!(second.finish().last(), Some(&b'!'));
        assert_eq!(budget.held.lock().unwrap().all, 0);
    }

    #[test]
    fn the_begin_of_a_body_is_free() {
        let budget = BodyBudget::new(10, 0, 10);
        let _all = body(&budget, from(1, false), 10).unwrap();
        assert!(body(&budget, from(1, false), 0).is_ok());
        assert!(body(&budget, from(1, false), 1).is_err());
    }

    #[test]
    fn a_client_leaves_something_to_others() {
        let budget = BodyBudget::new(10, 0, 6);
        let first = body(&budget, from(1, false), 6).unwrap();
        assert!(body(&budget, from(1, false), 1).is_err());
        let _other = body(&budget, from(2, false), 4).unwrap();
        assert!(body(&budget, from(3, false), 1).is_err());
        drop(first);
        assert!(body(&budget, from(1, false), 6).is_ok());
        assert_eq!(budget.held.lock().unwrap().per_client.len(), 1, "clients without bodies take no room");
    }

    #[test]
    fn known_workers_have_a_part_of_their_own() {
        let budget = BodyBudget::new(10, 5, 5);
        let _stranger = body(&budget, from(1, false), 5).unwrap();
        assert!(body(&budget, from(2, false), 1).is_err());
        assert!(body(&budget, from(1, true), 5).is_ok());
    }
}
