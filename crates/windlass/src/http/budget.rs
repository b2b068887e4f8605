//! How much memory the bodies of requests may take together.
//!
//! A body counts from its first byte until nobody needs it any more. Bytes are counted as they come, not as they
//! are announced, so a client that announces much and sends nothing takes nothing from others.

use std::sync::Arc;

use axum::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of bodies at once: sixteen of the largest, which is more than a full inbox needs to be kept full.
const BODY_BYTES_AT_ONCE_MAX: usize = 128 << 20;

/// What bodies of one kind of request may take together. Workers have one of their own: whatever clients send,
/// leases are renewed and reports are heard.
#[derive(Debug)]
pub(crate) struct BodyBudget(Arc<Semaphore>);

/// No byte more: others must end first.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Exhausted;

impl Default for BodyBudget {
    fn default() -> Self {
        Self::new(BODY_BYTES_AT_ONCE_MAX)
    }
}

impl BodyBudget {
    fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes)))
    }

    /// A body of which nothing has come yet.
    pub(crate) fn begin(&self) -> GrowingBody<'_> {
        GrowingBody { budget: self, body: CountedBody { bytes: Vec::new(), permit: None } }
    }
}

/// A body that is being read.
#[derive(Debug)]
pub(crate) struct GrowingBody<'a> {
    budget: &'a BodyBudget,
    body: CountedBody,
}

#[derive(Debug)]
struct CountedBody {
    bytes: Vec<u8>,
    permit: Option<OwnedSemaphorePermit>,
}

impl GrowingBody<'_> {
    /// Adds what has come.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Result<(), Exhausted> {
        let count = u32::try_from(piece.len()).map_err(|_| Exhausted)?;
        let permit = self.budget.0.clone().try_acquire_many_owned(count).map_err(|_| Exhausted)?;
        match &mut self.body.permit {
            Some(before) => before.merge(permit),
            none => *none = Some(permit),
        }
        self.body.bytes.extend_from_slice(piece);
        Ok(())
    }

    /// The whole body. It counts until the last part of it is dropped.
    pub(crate) fn finish(self) -> Bytes {
        Bytes::from_owner(self.body)
    }
}

impl AsRef<[u8]> for CountedBody {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_counts_until_it_is_dropped() {
        let budget = BodyBudget::new(10);
        let mut first = budget.begin();
        first.push(b"abc").unwrap();
        first.push(b"defg").unwrap();
        let mut second = budget.begin();
        second.push(b"xyz").unwrap();
        assert_eq!(second.push(b"!"), Err(Exhausted));
        let whole = first.finish();
        let part = whole.slice(2..4);
        drop(whole);
        assert_eq!((&part[..], second.push(b"!")), (&b"cd"[..], Err(Exhausted)));
        drop(part);
        assert_eq!(second.push(b"!"), Ok(()));
        assert_eq!(&second.finish()[..], b"xyz!");
    }
}
