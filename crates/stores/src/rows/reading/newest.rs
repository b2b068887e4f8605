//! The newest version of each flow. Every submit needs it, so an answer is cached for a moment. The commit of a new version
//! returns only after that moment has passed on all servers, so the client that wrote it finds it on each of them. (A client
//! that reads the catalogue directly may see it earlier.)

use std::{
    collections::{BTreeSet, HashMap},
    future::Future,
    sync::{Mutex as StdMutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{sync::Mutex, time::sleep};
use windlass_core::{Name, is_adhoc};
use windlass_store::{Change, Outcome, StoreError, StoredFlow};

/// How long an answer is used after its query began. Each server measures this on a monotonic clock of its own.
const GOOD_FOR: Duration = Duration::from_millis(50);

/// After this time no server uses the version before: twice [`GOOD_FOR`], to be sure.
const SETTLED_AFTER: Duration = Duration::from_millis(100);

type Answer = Result<Option<StoredFlow>, StoreError>;

/// The newest versions of the flows that were queried lately.
#[derive(Debug, Default)]
pub(crate) struct Newest {
    answers: StdMutex<HashMap<Name, (Instant, Answer)>>,
    /// Flows for the next query.
    wanted: StdMutex<BTreeSet<Name>>,
    /// One query at a time, for all callers that wait.
    asking: Mutex<()>,
}

impl Newest {
    /// The newest version of a flow; `ask` queries the database for several at once. The caller may be dropped at any time.
    pub(crate) async fn get<F>(&self, name: &Name, ask: impl FnOnce(BTreeSet<Name>) -> F) -> Answer
    where
        F: Future<Output = Result<HashMap<Name, Result<StoredFlow, StoreError>>, StoreError>>,
    {
        let came = Instant::now();
        if let Some(answer) = self.answer(name, came) {
            return answer;
        }
        lock(&self.wanted).insert(name.clone());
        let _turn = self.asking.lock().await;
        if let Some(answer) = self.answer(name, came) {
            return answer;
        }
        let mut names = std::mem::take(&mut *lock(&self.wanted));
        names.insert(name.clone());
        let asked = Instant::now();
        let found = ask(names.clone()).await;
        let answer = |name: &Name| match &found {
            Ok(found) => found.get(name).cloned().transpose(),
            Err(error) => Err(error.clone()),
        };
        let mut answers = lock(&self.answers);
        answers.retain(|_, (asked, _)| asked.elapsed() < GOOD_FOR);
        answers.extend(names.iter().map(|name| (name.clone(), (asked, answer(name)))));
        answer(name)
    }

    /// What is known. That there is none, that one is there that goes with its last task, or that the database does not
    /// answer, is only good for those who waited for this answer.
    fn answer(&self, name: &Name, came: Instant) -> Option<Answer> {
        let answers = lock(&self.answers);
        let (asked, answer) = answers.get(name)?;
        let stays = matches!(answer, Ok(Some(_))) && !is_adhoc(name.as_str());
        (*asked >= came || stays && asked.elapsed() < GOOD_FOR).then(|| answer.clone())
    }

    /// Versions were committed, or others had been before: waits until they are the newest for everybody.
    pub(crate) async fn settle(&self, changes: &[Change], outcomes: &[Outcome]) {
        let mut replaces = false;
        for (change, outcome) in changes.iter().zip(outcomes) {
            let Change::Flow(stored) = change else { continue };
            lock(&self.answers).remove(&stored.flow.name);
            replaces |= *outcome == Outcome::Committed && stored.flow.version > 1;
        }
        if replaces {
            sleep(SETTLED_AFTER).await;
        }
    }
}

fn lock<T>(mutex: &StdMutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
