//! Threads that answer queries, each with a read-only connection of its own.
//!
//! A write-ahead log lets them read beside the writer without waiting. There are few of them on purpose: a
//! query must not take the processor from the writer, and each reader at work keeps the log from being started
//! over.
//!
//! What a commit must know first (is this key free, has this task ended?) is looked up by a reader of its own.
//! It answers from a key within microseconds, and lists and histories, of which anybody may ask for many, never
//! stand before it: reports of workers are not refused because somebody reads.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread::{self, JoinHandle},
};

use futures_channel::oneshot;
use rusqlite::Connection;
use windlass_store::StoreError;

use super::{
    connect::{Role, connect},
    error::Fault,
};

/// How many readers there are for queries: one can look through many tasks while the other answers quick
/// questions.
const READERS: usize = 2;

/// How many queries may wait; more are refused rather than remembered.
const WAITING_MAX: usize = 1_024;

/// How many lookups may wait. Each is somebody's request that waits for it, so there are never more than the
/// server has connections, and what it has to commit.
const LOOKUPS_MAX: usize = 16_384;

type Job = Box<dyn FnOnce(Result<&mut Connection, Fault>) + Send>;

/// The readers, with an inbox for queries and one for lookups.
#[derive(Debug)]
pub(super) struct Readers {
    queries: mpsc::SyncSender<Job>,
    lookups: mpsc::SyncSender<Job>,
}

impl Readers {
    /// Starts the threads. They end when the `Readers` are dropped.
    pub(super) fn start(path: &Path) -> std::io::Result<(Self, Vec<JoinHandle<()>>)> {
        let (queries, query_inbox) = mpsc::sync_channel(WAITING_MAX);
        let (lookups, lookup_inbox) = mpsc::sync_channel(LOOKUPS_MAX);
        let query_inbox = Arc::new(Mutex::new(query_inbox));
        let mut threads = Vec::with_capacity(READERS + 1);
        for number in 0..READERS {
            threads.push(spawn(format!("sqlite-reader-{number}"), path, query_inbox.clone())?);
        }
        threads.push(spawn("sqlite-lookup".to_owned(), path, Arc::new(Mutex::new(lookup_inbox)))?);
        Ok((Self { queries, lookups }, threads))
    }

    /// Runs a query, all of it on one state of the file.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        run(&self.queries, query).await
    }

    /// Runs a query that finds few rows by their keys, before all those that only [`Readers::ask`].
    pub(super) async fn look_up<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        run(&self.lookups, query).await
    }
}

async fn run<T: Send + 'static>(
    inbox: &mpsc::SyncSender<Job>,
    query: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
) -> Result<T, StoreError> {
    let (sender, receiver) = oneshot::channel();
    let job: Job = Box::new(move |connection| {
        let answer = connection.and_then(|connection| {
            let transaction = connection.transaction()?;
            query(&transaction)
        });
        // The caller may have gone.
        let _ = sender.send(answer);
    });
    if inbox.try_send(job).is_err() {
        return Err(StoreError::Unavailable(
            "too many queries wait already, or the store closes: ask again later".to_owned(),
        ));
    }
    match receiver.await {
        Ok(answer) => Ok(answer?),
        Err(oneshot::Canceled) => Err(StoreError::Unavailable("the store closes".to_owned())),
    }
}

fn spawn(
    name: String,
    path: &Path,
    inbox: Arc<Mutex<mpsc::Receiver<Job>>>,
) -> std::io::Result<JoinHandle<()>> {
    let path = path.to_owned();
    thread::Builder::new().name(name).spawn(move || serve(&path, &inbox))
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
