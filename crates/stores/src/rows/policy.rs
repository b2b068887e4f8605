//! How often shared stores retry and how long they wait: one value for every product.
//!
//! The products had different values for two of these. Both take the longer one, see the constants.

use std::time::Duration;

/// How often work is tried that other transactions are in the way of, or whose connection is lost.
pub(crate) const TRIES_MAX: usize = 8;

/// The longest pause before a retry is 2 ms × 2^8, about half a second. PostgreSQL had an eighth of a second: that reaches
/// the eighth try before a restarting server accepts connections, and queries a server that fails over four times as often.
const DOUBLINGS_MAX: usize = 8;

/// How long the store asks what became of a transaction whose connection was lost while it committed. A statement without
/// an answer takes [`STATEMENT_MAX`] and [`ANSWER_AFTER`], 35 s, so this leaves time for a second try on another
/// connection. PostgreSQL had 20 s: one statement without an answer used all of it, and the caller got an error although
/// the transaction may have been committed.
pub(crate) const ASK_MAX: Duration = Duration::from_secs(60);

/// How long a call waits for a connection while all of them are busy.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(10);

/// How long a server may take to accept a connection.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(5);

/// How long a statement may run in the database.
pub(crate) const STATEMENT_MAX: Duration = Duration::from_secs(30);

/// How much longer than a statement may run the store waits for its answer. A server that hangs never answers.
pub(crate) const ANSWER_AFTER: Duration = Duration::from_secs(5);

/// Connections of one store. The engine has a handful of calls in flight at any time.
pub(crate) const CONNECTIONS_MAX: usize = 16;

/// Waits before the next try: longer each time, and by chance, so that callers that failed together do not meet again.
pub(crate) async fn pause(tries: usize) {
    let mut random = [0; 1];
    // Without random bytes all wait equally long, which is only slower.
    let _ = getrandom::fill(&mut random);
    let most = 2_u64 << tries.min(DOUBLINGS_MAX);
    tokio::time::sleep(Duration::from_millis(most / 2 + u64::from(random[0]) * most / 512)).await;
}

/// Does work on a connection, and repeats it on another connection where the first was lost, or where other transactions
/// were in the way. Doing the work twice must have the effect of doing it once.
macro_rules! retrying {
    ($database:expr, |$link:ident| $work:expr) => {{
        let mut tries = 0;
        loop {
            let result: Result<_, $crate::rows::Fault> = async {
                let mut $link = $crate::rows::Database::connection($database).await?;
                $work
            }
            .await;
            match result {
                Ok(done) => break Ok(done),
                Err(fault) => {
                    tries += 1;
                    let again = fault.is_contention() || fault.is_lost_connection();
                    if !again || tries >= $crate::rows::policy::TRIES_MAX {
                        break Err(windlass_store::StoreError::from(fault));
                    }
                    $crate::rows::policy::pause(tries).await;
                }
            }
        }
    }};
}
pub(crate) use retrying;
