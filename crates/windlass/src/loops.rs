//! Loops that run as long as their server. A loop that ends is a defect of the program: a server that no
//! longer decides must not keep answering, so the caller learns of the end and ends the server.

use std::{collections::HashMap, future::Future, time::Duration};

use tokio::task::{Id, JoinError, JoinSet};

/// How long a part of a server may take to end in order before its loops are ended.
pub(crate) const END_MAX: Duration = Duration::from_secs(5);

/// The loops of a server, by name. Dropping this ends them.
#[derive(Debug, Default)]
pub(crate) struct Loops {
    running: JoinSet<()>,
    names: HashMap<Id, &'static str>,
}

impl Loops {
    /// Runs a loop. `name` is a predicate such as "deletes old rows", for the error when the loop has ended.
    pub(crate) fn spawn(&mut self, name: &'static str, run: impl Future<Output = ()> + Send + 'static) {
        let id = self.running.spawn(run).id();
        self.names.insert(id, name);
    }

    /// Waits until a loop has ended, which must not happen, and returns an error with its name and reason.
    /// Waits for ever if there are no loops.
    pub(crate) async fn ended(&mut self) -> anyhow::Error {
        let Some(ended) = self.running.join_next_with_id().await else { return std::future::pending().await };
        let (id, how) = match ended {
            Ok((id, ())) => (id, "has ended by itself".to_owned()),
            Err(error) => (error.id(), panic_message(error)),
        };
        let name = self.names.get(&id).copied().unwrap_or("a loop");
        anyhow::anyhow!("the loop that {name} {how}: this is a defect of the program")
    }

    /// Ends all loops.
    pub(crate) async fn shutdown(&mut self) {
        self.running.shutdown().await;
    }
}

fn panic_message(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(payload) => {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
            format!("panicked ({text})")
        }
        Err(error) => format!("was cut off ({error})"),
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    async fn ended(loops: &mut Loops) -> String {
        let ended = tokio::time::timeout(std::time::Duration::from_secs(20), loops.ended());
        ended.await.expect("one has ended").to_string()
    }

    #[tokio::test]
    async fn a_loop_that_panics_is_named() {
        let mut loops = Loops::default();
        loops.spawn("keeps time", pending());
        loops.spawn("commits", async { panic!("no task {}", 7) });
        let ended = ended(&mut loops).await;
        assert_eq!(ended, "the loop that commits panicked (no task 7): this is a defect of the program");
    }

    #[tokio::test]
    async fn a_loop_that_ends_is_named() {
        let mut loops = Loops::default();
        loops.spawn("deletes", async {});
        assert!(ended(&mut loops).await.starts_with("the loop that deletes has ended by itself"));
    }

    #[tokio::test]
    async fn loops_that_go_on_are_waited_for_until_they_are_ended() {
        let mut loops = Loops::default();
        loops.spawn("keeps time", pending());
        assert!(futures_util::poll!(Box::pin(loops.ended())).is_pending());
        loops.shutdown().await;
        assert!(
            futures_util::poll!(Box::pin(loops.ended())).is_pending(),
            "an end that was asked for is none"
        );
    }
}
