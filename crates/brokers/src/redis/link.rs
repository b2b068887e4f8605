//! The connection that all calls of a broker share, but for reads that wait.

use std::time::Duration;

use redis::{
    AsyncConnectionConfig, Client, Cmd, FromRedisValue, Pipeline, RedisError, Value,
    aio::MultiplexedConnection,
};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use super::error::{explain, wants_another_connection};
use crate::BrokerError;

/// How long a connection may take until it can be used.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// How long an answer may take before the connection is taken for lost. A server that writes its log to a slow disk
/// answers nobody for a second or two.
pub(super) const RESPONSE_MAX: Duration = Duration::from_secs(10);

/// A connection that is made when it is needed, and again when it was lost.
pub(super) struct Link {
    client: Client,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connection: Option<MultiplexedConnection>,
    /// Tells connections apart: who finds one lost may be late.
    number: u64,
    /// When connecting failed last, and why.
    failed: Option<(Instant, RedisError)>,
}

impl Link {
    pub(super) fn new(client: Client) -> Self {
        Self { client, state: Mutex::default() }
    }

    /// A connection of its own, for reads that wait: their callers say for how long.
    pub(super) async fn connect_to_wait(&self) -> Result<MultiplexedConnection, RedisError> {
        connect(&self.client).await
    }

    /// Runs a command that is about this queue.
    pub(super) async fn run<T: FromRedisValue>(&self, command: &Cmd, queue: &str) -> Result<T, BrokerError> {
        self.try_run(command).await.map_err(|error| explain(&error, queue))
    }

    /// Runs a command, and gives the error as it came.
    pub(super) async fn try_run<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, RedisError> {
        let (number, mut connection) = self.connection().await?;
        let answer = in_time(command.query_async(&mut connection)).await;
        self.hear(number, answer).await
    }

    /// Runs commands of which all are done or none.
    pub(super) async fn run_together(&self, commands: &Pipeline, queue: &str) -> Result<(), BrokerError> {
        let result = async {
            let (number, mut connection) = self.connection().await?;
            let answer = in_time(commands.query_async::<Value>(&mut connection)).await;
            self.hear(number, answer).await
        };
        result.await.map(drop).map_err(|error: RedisError| explain(&error, queue))
    }

    /// Runs commands one after the other and gives an answer to each.
    pub(super) async fn run_each(
        &self,
        commands: &Pipeline,
        queue: &str,
    ) -> Result<Vec<Result<Value, BrokerError>>, BrokerError> {
        let result = async {
            let (number, mut connection) = self.connection().await?;
            let answer = in_time(connection.send_packed_commands(commands, 0, commands.len())).await;
            let answers = self.hear(number, answer).await?;
            let mut each = Vec::with_capacity(answers.len());
            for answer in answers {
                let answer = answer.extract_error();
                if answer.as_ref().is_err_and(wants_another_connection) {
                    self.forget(number).await;
                }
                each.push(answer.map_err(|error| explain(&error, queue)));
            }
            Ok(each)
        };
        result.await.map_err(|error: RedisError| explain(&error, queue))
    }

    async fn hear<T>(&self, number: u64, answer: Result<T, RedisError>) -> Result<T, RedisError> {
        if answer.as_ref().is_err_and(wants_another_connection) {
            self.forget(number).await;
        }
        answer
    }

    async fn forget(&self, number: u64) {
        let mut state = self.state.lock().await;
        if state.number == number {
            state.connection = None;
        }
    }

    async fn connection(&self) -> Result<(u64, MultiplexedConnection), RedisError> {
        let asked_at = Instant::now();
        let mut state = self.state.lock().await;
        if let Some(connection) = &state.connection {
            return Ok((state.number, connection.clone()));
        }
        if let Some((at, error)) = &state.failed
            && *at >= asked_at
        {
            // Somebody tried while this call waited for its turn: trying once more would make each wait for all before it.
            return Err(error.clone());
        }
        match connect(&self.client).await {
            Ok(connection) => {
                state.number += 1;
                state.failed = None;
                state.connection = Some(connection.clone());
                Ok((state.number, connection))
            }
            Err(error) => {
                state.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }
}

async fn connect(client: &Client) -> Result<MultiplexedConnection, RedisError> {
    // By itself the library gives up after half a second of silence. Here whoever asks says how long to wait, and that
    // includes the time until the question is on its way.
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    timeout(CONNECT_MAX, connecting).await.unwrap_or_else(|_| Err(silence(CONNECT_MAX)))
}

async fn in_time<T>(answer: impl Future<Output = Result<T, RedisError>>) -> Result<T, RedisError> {
    timeout(RESPONSE_MAX, answer).await.unwrap_or_else(|_| Err(silence(RESPONSE_MAX)))
}

/// Nobody answered for so long.
pub(super) fn silence(span: Duration) -> RedisError {
    let text = format!("no answer within {} s", span.as_secs());
    std::io::Error::new(std::io::ErrorKind::TimedOut, text).into()
}
