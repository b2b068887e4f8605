//! Reports that the server is unavailable to an operator who waits for a task. The client retries silently
//! for any length of time, so the operator would not know why nothing happens.

use std::{convert::Infallible, future::Future, time::Duration};

use windlass_client::Client;

/// How often to check that the server answers: often enough for an operator, with negligible cost.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// Runs `waiting`. Reports on standard error, once each time, that the server has stopped answering and that
/// it answers again.
pub(super) async fn telling<T>(client: &Client, id: &str, waiting: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        done = waiting => done,
        never = tell(client, id) => match never {},
    }
}

async fn tell(client: &Client, id: &str) -> Infallible {
    let mut is_away = false;
    loop {
        tokio::time::sleep(ASK_EVERY).await;
        match (client.task(id).await, is_away) {
            (Err(error), false) if error.is_temporary() => {
                is_away = true;
                eprintln!(
                    "windlass: the server at {} does not answer; retrying until it does",
                    client.server()
                );
            }
            (Ok(_), true) => {
                is_away = false;
                eprintln!("windlass: the server answers again");
            }
            // The waiting call reports a refusal.
            _ => {}
        }
    }
}
