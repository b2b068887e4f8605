//! Which version of a flow is the newest: asked of the database each time, together with all others who ask meanwhile.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::oneshot;
use windlass_core::Name;
use windlass_engine::ports::{StoreError, StoredFlow};

use super::{
    connection::{Database, retrying},
    flows::Flows,
};

type Answer = Result<Option<StoredFlow>, StoreError>;

/// Those who wait for an answer.
#[derive(Default)]
pub(super) struct Newest {
    asked: Mutex<Asked>,
}

#[derive(Default)]
struct Asked {
    waiting: Vec<(Name, oneshot::Sender<Answer>)>,
    /// Somebody is asking the database, and will ask for those as well.
    under_way: bool,
}

impl Newest {
    /// The newest version of a flow, as it is now or became since.
    pub(super) async fn get(&self, database: &Arc<Database>, flows: &Arc<Flows>, name: Name) -> Answer {
        let (sender, receiver) = oneshot::channel();
        let asks = {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.waiting.push((name, sender));
            !std::mem::replace(&mut asked.under_way, true)
        };
        if asks {
            self.ask(database, flows).await;
        }
        receiver.await.unwrap_or_else(|_| Err(StoreError::Unavailable("the store has closed".to_owned())))
    }

    async fn ask(&self, database: &Database, flows: &Flows) {
        loop {
            // Others who are about to ask come before the question is sent.
            tokio::task::yield_now().await;
            let waiting = {
                let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
                let waiting = std::mem::take(&mut asked.waiting);
                asked.under_way = !waiting.is_empty();
                waiting
            };
            if waiting.is_empty() {
                return;
            }
            let names: BTreeSet<Name> = waiting.iter().map(|(name, _)| name.clone()).collect();
            let found: Result<_, StoreError> =
                retrying!(database, |connection| flows.newest(&mut connection, &names).await);
            for (name, answer) in waiting {
                let found = found.as_ref().map(|found| found.get(&name).cloned()).map_err(Clone::clone);
                // Whoever asked may have gone away.
                let _ = answer.send(found);
            }
        }
    }
}
