//! Telling who waits for a task that the server is away. The client waits for it without a word, for as long as it
//! takes, and a person at a shell would not know why nothing happens.

use std::{convert::Infallible, future::Future, time::Duration};

use windlass_client::Client;

/// How often the server is asked whether it is there: soon enough for a person, seldom enough to cost nothing.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// Runs `waiting`, and says on the standard error when the server has gone away meanwhile and when it is back, once
/// each time.
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
                    "windlass: the server at {} does not answer: it is tried again until it does",
                    client.server()
                );
            }
            (Ok(_), true) => {
                is_away = false;
                eprintln!("windlass: the server answers again");
            }
            // A refusal is for the one who waits to hear.
            _ => {}
        }
    }
}
