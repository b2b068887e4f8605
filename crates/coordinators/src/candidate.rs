//! From a campaign to a leadership: the loop that all products share.

use std::time::{Duration, Instant};

use async_trait::async_trait;

use crate::{CoordinatorError, Leadership, port::Withdrawal};

/// The pause before a coordinator that is unavailable is asked again.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// How long a candidate that is withdrawn may still take to enter.
const ENTERING_MAX: Duration = Duration::from_millis(500);

/// How long it may take to remove an entry: who withdraws is about to end.
const WITHDRAWAL_MAX: Duration = Duration::from_secs(2);

/// How often in a row an entry may end at once. Then something else is wrong.
const ENDS_MAX: u32 = 10;

/// A candidate that does not lead yet.
#[async_trait]
pub(crate) trait Candidate: Send {
    /// Enters the campaign unless it has, keeps its entry, and waits for its turn for a short time: about
    /// [`renew_every`](crate::Campaign::renew_every). Returns the leadership when it leads.
    ///
    /// # Errors
    /// [`CoordinatorError::Lost`] when the entry has ended.
    async fn step(&mut self) -> Result<Option<Box<dyn Leadership>>, CoordinatorError>;

    /// Forgets an entry that has ended: the next step enters again.
    fn forget(&mut self);

    /// Removes the entry, if the candidate has one. What cannot be removed ends by the lease.
    ///
    /// # Errors
    /// When this is uncertain.
    async fn withdraw(&mut self) -> Result<(), CoordinatorError>;
}

/// Goes on until the candidate leads, or is withdrawn (`None`), or the coordinator has been unavailable for a whole lease.
pub(crate) async fn until_elected(
    mut candidate: impl Candidate,
    lease: Duration,
    mut withdrawn: Withdrawal<'_>,
) -> Result<Option<Box<dyn Leadership>>, CoordinatorError> {
    let mut answered = Instant::now();
    let mut ends = 0;
    loop {
        let mut step = candidate.step();
        let stepped = tokio::select! {
            stepped = &mut step => stepped,
            () = &mut withdrawn => {
                // An entry that is being made cannot be removed before it is known.
                let last = tokio::time::timeout(ENTERING_MAX, &mut step).await;
                drop(step);
                withdraw(candidate, last.ok().and_then(Result::ok).flatten()).await;
                return Ok(None);
            }
        };
        drop(step);
        match stepped {
            Ok(Some(leadership)) => return Ok(Some(leadership)),
            Ok(None) => (answered, ends) = (Instant::now(), 0),
            Err(CoordinatorError::Lost(why)) => {
                ends += 1;
                if ends > ENDS_MAX {
                    let why = format!("entries of candidates end at once: {why}");
                    return Err(CoordinatorError::Unavailable(why));
                }
                candidate.forget();
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) if error.is_passing() && answered.elapsed() < lease => {
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Removes what a candidate has left, or the leadership that it has won meanwhile. If this fails, that ends by the lease.
async fn withdraw(mut candidate: impl Candidate, won: Option<Box<dyn Leadership>>) {
    let withdrawing = async {
        match won {
            Some(leadership) => leadership.resign().await,
            None => candidate.withdraw().await,
        }
    };
    let _ = tokio::time::timeout(WITHDRAWAL_MAX, withdrawing).await;
}
