//! What a commit waits with for its batch.

use futures_channel::oneshot;

use crate::port::StoreError;

/// Waits for a batch to be written.
pub(super) struct Ticket(Option<oneshot::Receiver<Result<(), StoreError>>>);

impl Ticket {
    /// Of a batch that was given to the sink.
    pub(super) fn new(written: oneshot::Receiver<Result<(), StoreError>>) -> Self {
        Self(Some(written))
    }

    /// Of a batch that can no more be written.
    pub(super) fn failed() -> Self {
        Self(None)
    }

    pub(super) async fn written(self) -> Result<(), StoreError> {
        match self.0 {
            Some(receiver) => receiver.await.unwrap_or_else(|_| Err(lost())),
            None => Err(lost()),
        }
    }
}

/// What was built on a write that failed is void.
pub(super) fn lost() -> StoreError {
    StoreError::Unavailable("an earlier write failed, and what was built on it is void".to_owned())
}
