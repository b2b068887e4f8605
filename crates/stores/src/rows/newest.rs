//! Which version of a flow is the newest. Every submit asks for it, so an answer is good for a moment: a new version is
//! told to nobody before that moment has passed on all servers, and whoever was told of it finds it on each of them.
//! (Who comes upon it before has read it in the catalogue, and may be ahead of a server by that moment.)

use std::{
    collections::{BTreeSet, HashMap},
    future::Future,
    sync::{Mutex as StdMutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{sync::Mutex, time::sleep};
use windlass_core::{Name, is_adhoc};
use windlass_store::{Change, Outcome, StoreError, StoredFlow};

/// So long after it was asked an answer is good. Each server counts this on a clock of its own that is never set.
const GOOD_FOR: Duration = Duration::from_millis(50);

/// So long it takes until no server goes by the version before, with as much again to be sure.
const SETTLED_AFTER: Duration = Duration::from_millis(100);

type Answer = Result<Option<StoredFlow>, StoreError>;

/// The newest versions of flows, as far as they were asked for lately.
#[derive(Debug, Default)]
pub(crate) struct Newest {
    answers: StdMutex<HashMap<Name, (Instant, Answer)>>,
    /// What is to be asked next, by whoever asks.
    wanted: StdMutex<BTreeSet<Name>>,
    /// One asks the database at a time, for all who want to know.
    asking: Mutex<()>,
}

impl Newest {
    /// The newest version of a flow; `ask` asks the database for some at once. Whoever asks may go away at any time.
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
