//! The connection shared by all calls of a broker, except reads that wait.

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

/// The time limit for connecting.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// The time limit for an answer, after which the connection counts as lost. A server that writes its log to a
/// slow disk may not answer for a second or two.
pub(super) const RESPONSE_MAX: Duration = Duration::from_secs(10);

/// A connection that is made when it is needed, and again after it was lost.
pub(super) struct Link {
    client: Client,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connection: Option<MultiplexedConnection>,
    /// Distinguishes connections: a caller may report a lost one late.
    number: u64,
    /// The time and error of the last failed attempt to connect.
    failed: Option<(Instant, RedisError)>,
}

impl Link {
    pub(super) fn new(client: Client) -> Self {
        Self { client, state: Mutex::default() }
    }

    /// Opens a separate connection for reads that wait. Their callers set the time limits.
    pub(super) async fn connect_to_wait(&self) -> Result<MultiplexedConnection, RedisError> {
        connect(&self.client).await
    }

    /// Runs a command about this queue.
    pub(super) async fn run<T: FromRedisValue>(&self, command: &Cmd, queue: &str) -> Result<T, BrokerError> {
        self.try_run(command).await.map_err(|error| explain(&error, queue))
    }

    /// Runs a command. Returns the error unchanged.
    pub(super) async fn try_run<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, RedisError> {
        let (number, mut connection) = self.connection().await?;
        let answer = in_time(command.query_async(&mut connection)).await;
        self.hear(number, answer).await
    }

    /// Runs commands as one transaction.
    pub(super) async fn run_together(&self, commands: &Pipeline, queue: &str) -> Result<(), BrokerError> {
        let result = async {
            let (number, mut connection) = self.connection().await?;
            let answer = in_time(commands.query_async::<Value>(&mut connection)).await;
            self.hear(number, answer).await
        };
        result.await.map(drop).map_err(|error: RedisError| explain(&error, queue))
    }

    /// Runs commands one after another. Returns an answer for each.
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
            // Another caller tried while this one waited for its turn: if each tried again, each would wait
            // for all before it.
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
    // By default the library gives up after half a second of silence. Here the callers set the time limit,
    // which includes the time until the command is sent.
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    timeout(CONNECT_MAX, connecting).await.unwrap_or_else(|_| Err(silence(CONNECT_MAX)))
}

async fn in_time<T>(answer: impl Future<Output = Result<T, RedisError>>) -> Result<T, RedisError> {
    timeout(RESPONSE_MAX, answer).await.unwrap_or_else(|_| Err(silence(RESPONSE_MAX)))
}

/// The error for no answer within this time.
pub(super) fn silence(span: Duration) -> RedisError {
    let text = format!("no answer within {} s", span.as_secs());
    std::io::Error::new(std::io::ErrorKind::TimedOut, text).into()
}
