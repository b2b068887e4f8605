//! Takes what waits, in its order.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::{sync::watch, task::JoinSet, time::sleep};
use windlass_coordinators::{CoordinatorError, KvChange, KvCommitted, KvList};
use windlass_core::TaskId;
use windlass_engine::services::Unreadable;

use super::{
    Permit, TaskList,
    entry::Mark,
    follower::{self, Followed},
    listing::{Found, Listing, complaints},
    trouble::Complaints,
};

/// The pause before a failed take is tried again.
const STALLED_PAUSE: Duration = Duration::from_millis(500);

/// Takes the entries of a list.
struct Taker {
    list: Arc<TaskList>,
    /// Entries that nobody has taken, in their order.
    waiting: VecDeque<Found>,
    /// Entries that are marked.
    marked: Vec<(Found, Mark)>,
    /// Why entries cannot be used, by key: their values are broken.
    broken: BTreeMap<String, String>,
    /// The same where their tasks are refused.
    refused: BTreeMap<String, String>,
    /// The entries that are followed: their keys, and the tasks of their marks.
    followed: BTreeSet<(String, TaskId)>,
    /// Those that servers of another store have marked.
    not_ours: BTreeMap<String, Mark>,
    following: JoinSet<(String, Mark, Followed)>,
    complaints: Complaints,
    /// A list was read.
    has_read: bool,
}

/// What became of trying to take an entry.
#[derive(Debug, PartialEq, Eq)]
enum Took {
    /// The next one can be tried.
    Next,
    /// Nothing can be taken for a moment.
    Stalled,
}

/// Takes what waits, for ever.
pub(super) async fn run(list: Arc<TaskList>, mut lists: watch::Receiver<Option<Arc<KvList>>>) {
    let mut term = list.term.clone();
    let complaints = Complaints::new(&list);
    let mut taker = Taker {
        list,
        waiting: VecDeque::new(),
        marked: Vec::new(),
        broken: BTreeMap::new(),
        refused: BTreeMap::new(),
        followed: BTreeSet::new(),
        not_ours: BTreeMap::new(),
        following: JoinSet::new(),
        complaints,
        has_read: false,
    };
    loop {
        let took = taker.take_all().await;
        if taker.waiting.is_empty() {
            taker.list.exhausted.notify_one();
        }
        tokio::select! {
            Some(ended) = taker.following.join_next() => match ended {
                Ok((key, mark, followed)) => taker.note(key, mark, followed),
                // A defect ends the server, as in every loop.
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            },
            Ok(()) = lists.changed() => {
                let read = lists.borrow_and_update().clone();
                if let Some(read) = read {
                    taker.read(&read);
                }
            }
            // Another leader may have left marked entries.
            Ok(()) = term.changed() => taker.follow_marked(),
            () = sleep(STALLED_PAUSE), if took == Took::Stalled => {}
        }
    }
}

impl Taker {
    /// Learns a list.
    fn read(&mut self, read: &KvList) {
        let Listing { waiting, marked, broken } = Listing::of(read, &self.list.settings);
        self.has_read = true;
        let known: BTreeSet<&str> = waiting.iter().map(|found| found.at.key.as_str()).collect();
        let marks: BTreeSet<&str> = marked.iter().map(|(found, _)| found.at.key.as_str()).collect();
        self.refused.retain(|key, _| known.contains(key.as_str()) || marks.contains(key.as_str()));
        self.not_ours.retain(|key, _| marks.contains(key.as_str()));
        (self.waiting, self.marked, self.broken) = (waiting, marked, broken);
        self.follow_marked();
    }

    /// Follows marked entries that nobody here follows.
    fn follow_marked(&mut self) {
        let marked =
            self.marked.iter().filter(|(found, mark)| self.not_ours.get(&found.at.key) != Some(mark));
        for (found, mark) in marked.cloned().collect::<Vec<_>>() {
            self.follow(found, mark);
        }
    }

    fn follow(&mut self, found: Found, mark: Mark) {
        let (list, key) = (self.list.clone(), found.at.key.clone());
        if !self.followed.insert((key.clone(), mark.task)) {
            return;
        }
        self.list.note_under_way(self.followed.len());
        self.following.spawn(async move {
            let followed = follower::follow(list, found, mark.clone()).await;
            (key, mark, followed)
        });
    }

    fn note(&mut self, key: String, mark: Mark, followed: Followed) {
        self.followed.remove(&(key.clone(), mark.task));
        self.list.note_under_way(self.followed.len());
        match followed {
            Followed::Settled => {
                self.refused.remove(&key);
                // It would be looked at again when leadership changes.
                self.marked.retain(|(found, _)| found.at.key != key);
            }
            Followed::NotNow => {}
            Followed::NotOurs => drop(self.not_ours.insert(key, mark)),
            Followed::Refused(why) => drop(self.refused.insert(key, why)),
        }
    }

    /// Takes as much as may be under way.
    async fn take_all(&mut self) -> Took {
        let took = loop {
            if self.followed.len() >= self.list.settings.window {
                break Took::Next;
            }
            // Before the permit: the leader withdraws the permit, then looks at this, then resigns.
            self.list.note_under_way(self.followed.len() + 1);
            let fence = match self.list.permit() {
                Permit::Acts { fence } => fence,
                Permit::AtRisk => break Took::Stalled,
                Permit::StandsBy => {
                    // The leader reports the broken ones.
                    self.list.note_under_way(self.followed.len());
                    return Took::Next;
                }
            };
            let Some(next) = self.waiting.pop_front() else { break Took::Next };
            if self.take(next, fence).await == Took::Stalled {
                break Took::Stalled;
            }
        };
        self.list.note_under_way(self.followed.len());
        self.tell().await;
        took
    }

    /// Reports the entries that start no task. The alarm is resolved only after every waiting entry was checked.
    async fn tell(&mut self) {
        let (shown, count) = complaints(self.broken.iter().chain(&self.refused));
        if self.has_read && (self.waiting.is_empty() || count > 0) {
            self.complaints.tell(&self.list, shown, count).await;
        }
    }

    /// Takes an entry, and submits its task. A consumer that is faster keeps it.
    async fn take(&mut self, found: Found, fence: Option<u64>) -> Took {
        let list = self.list.clone();
        let (app, settings) = (&list.app, &list.settings);
        let checked = match found.entry.document(settings) {
            Ok(text) => app.check_task(&text, &list.by()).await,
            Err(why) => Err(Unreadable::Refused(why)),
        };
        match checked {
            Ok(()) => drop(self.refused.remove(&found.at.key)),
            Err(Unreadable::Refused(why)) => {
                self.refused.insert(found.at.key, why);
                return Took::Next;
            }
            Err(Unreadable::Later(why)) => {
                tracing::debug!(why, "cannot take entries of a list now; retrying");
                self.waiting.push_front(found);
                return Took::Stalled;
            }
        }
        let mark = found.entry.next_mark(&list.store, app.engine.next_task_id(app.clock.now()));
        let value = match found.entry.clone().taken(&mark) {
            Ok(value) => value,
            Err(error) => {
                self.refused.insert(found.at.key, error.to_string());
                return Took::Next;
            }
        };
        let leader = settings.leader.as_ref().zip(fence);
        let check = leader.map(|(leader, modify_index)| KvChange::Check { key: &leader.key, modify_index });
        let replace = KvChange::Replace { entry: &found.at, value: &value };
        let changes: Vec<_> = check.into_iter().chain([replace]).collect();
        match list.kv.commit(&changes).await {
            Ok(KvCommitted::Done) => {
                self.follow(found, mark);
                Took::Next
            }
            Ok(KvCommitted::Refused(0)) if check.is_some() => {
                list.deposed.send_replace(fence.unwrap_or_default());
                self.waiting.push_front(found);
                Took::Stalled
            }
            Ok(KvCommitted::Refused(_)) => Took::Next,
            Err(error @ CoordinatorError::Refused(_)) => {
                self.refused.insert(found.at.key, error.to_string());
                Took::Next
            }
            Err(error) => {
                // If Consul has done it and the answer was lost, the next list shows our mark.
                tracing::debug!(%error, key = found.at.key, "cannot take an entry; retrying");
                self.waiting.push_front(found);
                Took::Stalled
            }
        }
    }
}
