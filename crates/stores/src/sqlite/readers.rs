//! Threads that answer queries, each with a read-only connection of its own.
//!
//! A write-ahead log lets them read beside the writer without waiting. There are few of them on purpose: a
//! query must not take the processor from the writer, and each reader at work keeps the log from being started
//! over.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread::{self, JoinHandle},
};

use futures_channel::oneshot;
use rusqlite::Connection;
use windlass_engine::ports::StoreError;

use super::{
    connect::{Role, connect},
    error::Fault,
};

/// How many readers there are: one can look through many tasks while the other answers quick questions.
const READERS: usize = 2;

/// How many queries may wait; more are refused rather than remembered.
const WAITING_MAX: usize = 1_024;

type Job = Box<dyn FnOnce(Result<&mut Connection, Fault>) + Send>;

/// The readers and their common inbox.
#[derive(Debug)]
pub(super) struct Readers {
    inbox: mpsc::SyncSender<Job>,
}

impl Readers {
    /// Starts the threads. They end when the `Readers` are dropped.
    pub(super) fn start(path: &Path) -> std::io::Result<(Self, Vec<JoinHandle<()>>)> {
        let (sender, receiver) = mpsc::sync_channel(WAITING_MAX);
        let receiver = Arc::new(Mutex::new(receiver));
        let threads = (0..READERS).map(|number| {
            let (receiver, path) = (receiver.clone(), path.to_owned());
            thread::Builder::new()
                .name(format!("sqlite-reader-{number}"))
                .spawn(move || serve(&path, &receiver))
        });
        Ok((Self { inbox: sender }, threads.collect::<Result<_, _>>()?))
    }

    /// Runs `query` on one of the connections, all of it on one state of the file.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            let answer = connection.and_then(|connection| {
                let transaction = connection.transaction()?;
                query(&transaction)
            });
            // Whoever asked may have gone.
            let _ = sender.send(answer);
        });
        if self.inbox.try_send(job).is_err() {
            return Err(StoreError::Unavailable(format!(
                "{WAITING_MAX} queries wait already, or the store closes: ask again later"
            )));
        }
        match receiver.await {
            Ok(answer) => Ok(answer?),
            Err(oneshot::Canceled) => Err(StoreError::Unavailable("the store closes".to_owned())),
        }
    }
}

fn serve(path: &Path, inbox: &Mutex<mpsc::Receiver<Job>>) {
    let mut connection = None;
    loop {
        // The lock is held while waiting: one reader waits at the channel, the other for its turn.
        let job = inbox.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        if connection.is_none() {
            match connect(path, Role::Reader) {
                Ok(opened) => connection = Some(opened),
                Err(error) => {
                    job(Err(error.into()));
                    continue;
                }
            }
        }
        if let Some(connection) = &mut connection {
            job(Ok(connection));
        }
    }
}
