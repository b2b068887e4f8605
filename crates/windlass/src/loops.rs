//! Loops that run as long as their server. A loop that ends is a defect of the program: a server that no
//! longer decides must not keep answering, so the caller learns of the end and ends the server.

use std::{collections::HashMap, future::Future, time::Duration};

use anyhow::Context as _;
use tokio::{
    runtime::{Handle, Runtime},
    task::{Id, JoinError, JoinSet},
};

/// How long a part of a server may take to end in order before its loops are ended.
pub(crate) const END_MAX: Duration = Duration::from_secs(5);

/// The loops of a server, by name. Dropping this ends them.
#[derive(Debug, Default)]
pub(crate) struct Loops {
    running: JoinSet<()>,
    names: HashMap<Id, &'static str>,
    /// The thread of [`Loops::spawn_beside`].
    beside: Option<Runtime>,
}

impl Loops {
    /// Runs a loop. `name` is a predicate such as "deletes old rows", for the error when the loop has ended.
    pub(crate) fn spawn(&mut self, name: &'static str, run: impl Future<Output = ()> + Send + 'static) {
        let id = self.running.spawn(run).id();
        self.names.insert(id, name);
    }

    /// Runs a loop on a second thread, which starts with the first such loop. The messages of a busy broker need as much
    /// processor time as their tasks.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn spawn_beside(
        &mut self,
        name: &'static str,
        run: impl Future<Output = ()> + Send + 'static,
    ) -> anyhow::Result<()> {
        let runtime = match self.beside.take() {
            Some(runtime) => runtime,
            None => tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .thread_name("brokers")
                .enable_all()
                .build()
                .context("cannot start a thread")?,
        };
        let id = self.running.spawn_on(run, runtime.handle()).id();
        self.beside = Some(runtime);
        self.names.insert(id, name);
        Ok(())
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

    /// The second thread, if it was started.
    pub(crate) fn beside(&self) -> Option<Handle> {
        Some(self.beside.as_ref()?.handle().clone())
    }

    /// Ends all loops. What they started on the second thread gets some time to end: a consumer leaves its group there.
    pub(crate) async fn shutdown(&mut self) {
        self.running.shutdown().await;
        if let Some(runtime) = self.beside.take() {
            let _ = tokio::task::spawn_blocking(move || runtime.shutdown_timeout(END_MAX)).await;
        }
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        if let Some(runtime) = self.beside.take() {
            // Waiting could block the first thread.
            runtime.shutdown_background();
        }
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
    async fn a_loop_on_the_second_thread_is_named_and_ended_like_any_other() {
        let mut loops = Loops::default();
        let (first, (sender, thread)) = (std::thread::current().id(), tokio::sync::oneshot::channel());
        let run = async move {
            let _ = sender.send(std::thread::current().id());
            pending().await
        };
        loops.spawn_beside("publishes steps", run).unwrap();
        assert_ne!(thread.await.unwrap(), first);
        loops.spawn_beside("reads results", async { panic!("no queue") }).unwrap();
        let ended = ended(&mut loops).await;
        assert_eq!(ended, "the loop that reads results panicked (no queue): this is a defect of the program");
        loops.shutdown().await;
        assert!(futures_util::poll!(Box::pin(loops.ended())).is_pending());
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
