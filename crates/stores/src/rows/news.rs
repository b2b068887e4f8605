//! How a store that several servers share learns of what others did.

/// Learns of what other servers and applications did.
pub(crate) trait News: Send + Sync + 'static {
    /// Returns when other servers may have done something since the last call.
    fn next(&self) -> impl Future<Output = ()> + Send;

    /// Returns when an application may have enqueued something since the last call.
    fn enqueued(&self) -> impl Future<Output = ()> + Send;

    /// Returns when a server may have ended since the last call.
    fn released(&self) -> impl Future<Output = ()> + Send;
}
