//! From a campaign to a leadership: the loop that all products share.

use std::time::{Duration, Instant};

use async_trait::async_trait;

use crate::{CoordinatorError, Leadership};

/// The pause before a coordinator that is unavailable is asked again.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

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
}

/// Goes on until the candidate leads, or the coordinator has been unavailable for a whole lease.
pub(crate) async fn until_elected(
    mut candidate: impl Candidate,
    lease: Duration,
) -> Result<Box<dyn Leadership>, CoordinatorError> {
    let mut answered = Instant::now();
    let mut ends = 0;
    loop {
        match candidate.step().await {
            Ok(Some(leadership)) => return Ok(leadership),
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
