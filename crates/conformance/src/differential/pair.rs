//! Two stores that get the same calls and must give the same answers.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

use windlass_core::{ActKey, Event, EventKind, TaskId};
use windlass_store::{
    Adoption, AttemptId, Change, ClaimRequest, Claimed, Due, Envelope, Loaded, Now, Outcome, Retention,
    SessionId, SessionRenewal, Store, StoreError, StoredAlarm, TaskQuery, Unannounced,
};

use crate::world::claim;

/// Two stores. Answers are those of the first one, after a comparison with the second one.
pub(super) struct Pair {
    one: Arc<dyn Store>,
    other: Arc<dyn Store>,
    /// The second store's number of each claim, by the first store's number.
    numbers: BTreeMap<u64, u64>,
    /// The current operation, for the message when answers differ.
    pub(super) doing: String,
}

/// Calls both stores and returns both answers.
macro_rules! both {
    ($pair:expr, $call:ident($($argument:expr),*)) => {{
        let one = $pair.one.$call($($argument),*).await;
        let other = $pair.other.$call($($argument),*).await;
        ($pair.succeeded(one), $pair.succeeded(other))
    }};
}

impl Pair {
    pub(super) fn new(one: Arc<dyn Store>, other: Arc<dyn Store>) -> Self {
        Self { one, other, numbers: BTreeMap::new(), doing: String::new() }
    }

    fn succeeded<T>(&self, answer: Result<T, StoreError>) -> T {
        answer.unwrap_or_else(|error| panic!("{}: {error}", self.doing))
    }

    fn same<T: PartialEq + Debug>(&self, what: &str, (one, other): (T, T)) -> T {
        assert!(one == other, "{}: {what} differ:\n{one:#?}\n{other:#?}", self.doing);
        one
    }

    /// Asserts that two lists of claims are equal except for the claim numbers.
    fn same_claims(&self, what: &str, (one, mut other): (Vec<Claimed>, Vec<Claimed>)) -> Vec<Claimed> {
        for (one, other) in one.iter().zip(&mut other) {
            self.renumber(&mut other.id.claim, one.id.claim);
        }
        self.same(what, (one, other))
    }

    /// Replaces the second store's number of a claim by the first one's, if it is the same claim.
    fn renumber(&self, other: &mut u64, one: u64) {
        if self.numbers.get(&one) == Some(other) {
            *other = one;
        }
    }

    /// The attempt with the second store's claim number.
    fn elsewhere(&self, id: &AttemptId) -> AttemptId {
        AttemptId { claim: self.numbers.get(&id.claim).copied().unwrap_or(id.claim), ..*id }
    }

    pub(super) async fn load(&self, ids: &[TaskId]) -> Vec<Option<Loaded>> {
        let (one, other) = both!(self, load(ids));
        let loaded = one.into_iter().zip(other).map(|pair| match pair {
            (Some(one), Some(other)) => Some(self.same_loaded(one, other)),
            (one, other) => {
                self.same("tasks that are there", (one.is_some(), other.is_some()));
                None
            }
        });
        loaded.collect()
    }

    fn same_loaded(&self, one: Loaded, mut other: Loaded) -> Loaded {
        let mut claims = one.claims.clone();
        claims.sort_by_key(|claim| claim.key);
        other.claims.sort_by_key(|claim| claim.key);
        for (one, other) in claims.iter().zip(&mut other.claims) {
            self.renumber(&mut other.number, one.number);
        }
        self.same("tasks", (&one.task, &other.task));
        self.same("claims of a task", (claims, other.claims));
        self.same("executions that were handed out", (&one.handed_out, &other.handed_out));
        one
    }

    pub(super) async fn commit(&self, changes: Vec<Change>) -> Vec<Outcome> {
        let mut elsewhere = changes.clone();
        for change in &mut elsewhere {
            let Change::Task(change) = change else { continue };
            for lost in &mut change.lost {
                lost.claim = self.numbers.get(&lost.claim).copied().unwrap_or(lost.claim);
            }
        }
        let one = self.succeeded(self.one.commit(changes).await);
        let other = self.succeeded(self.other.commit(elsewhere).await);
        self.same("outcomes", (one, other))
    }

    pub(super) async fn claim(
        &mut self,
        session: SessionId,
        claim_requests: &[ClaimRequest],
        now: Now,
    ) -> Vec<Claimed> {
        let one = claim(&*self.one, session, claim_requests, now).await;
        let other = claim(&*self.other, session, claim_requests, now).await;
        let (one, other) = (self.succeeded(one), self.succeeded(other));
        for (one, other) in one.iter().zip(&other) {
            self.numbers.insert(one.id.claim, other.id.claim);
        }
        self.same_claims("handed out attempts", (one, other))
    }

    pub(super) async fn adopt(&self, session: SessionId, attempts: &[AttemptId], now: Now) -> Vec<Adoption> {
        let elsewhere: Vec<AttemptId> = attempts.iter().map(|id| self.elsewhere(id)).collect();
        let one = self.succeeded(self.one.adopt(session, attempts, now).await);
        let other = self.succeeded(self.other.adopt(session, &elsewhere, now).await);
        self.same("adoptions", (one, other))
    }

    pub(super) async fn release(&self, session: SessionId, id: AttemptId, now: Now) {
        self.succeeded(self.one.release(session, id, None, now).await);
        self.succeeded(self.other.release(session, self.elsewhere(&id), None, now).await);
    }

    pub(super) async fn renew(&self, renewal: SessionRenewal, now: Now) {
        both!(self, renew(vec![renewal.clone()], now));
    }

    pub(super) async fn forgive(&self, now: Now) {
        both!(self, forgive(now));
    }

    pub(super) async fn to_stop(&self, sessions: &[SessionId]) -> Vec<Claimed> {
        let (mut one, mut other) = both!(self, to_stop(sessions));
        // The order is not defined.
        one.sort_by_key(|claimed| claimed.id);
        other.sort_by_key(|claimed| (claimed.id.task, claimed.id.key));
        self.same_claims("attempts to stop", (one, other))
    }

    pub(super) async fn lost(&self, now: Now) -> Vec<Claimed> {
        let (mut one, mut other) = both!(self, lost(now, usize::MAX));
        // The order is not defined.
        one.sort_by_key(|claimed| claimed.id);
        other.sort_by_key(|claimed| (claimed.id.task, claimed.id.key));
        self.same_claims("lost attempts", (one, other))
    }

    pub(super) async fn due(&self, now: Now, limit: usize) -> Vec<Due> {
        let (mut one, mut other) = both!(self, due(now, limit));
        // Only a store with claims in memory reports these.
        let taken = one.extract_if(.., |due| matches!(due, Due::Taken(_))).collect::<Vec<_>>();
        other.retain(|due| !matches!(due, Due::Taken(_)));
        for pair in one.iter().zip(&mut other) {
            if let (Due::TimeOut(one), Due::TimeOut(other)) = pair {
                self.renumber(&mut other.id.claim, one.id.claim);
            }
        }
        let mut due = self.same("due items", (one, other));
        due.extend(taken);
        due
    }

    pub(super) async fn messages(&self) -> Vec<Envelope> {
        self.same("messages", both!(self, messages(usize::MAX)))
    }

    pub(super) async fn unannounced(&self) -> Vec<Unannounced> {
        let (mut one, mut other) = both!(self, unannounced(TaskId::NONE, usize::MAX));
        one.iter_mut().chain(&mut other).flat_map(|told| &mut told.events).for_each(forget_result);
        self.same("the outbox", (one, other))
    }

    pub(super) async fn alarm(&self, id: &windlass_core::AlarmId) -> Option<StoredAlarm> {
        self.same("alarms", both!(self, alarm(id)))
    }

    pub(super) async fn alarms(&self, all: bool) -> Vec<windlass_core::Alarm> {
        let (mut one, mut other) = both!(self, alarms(all, usize::MAX));
        for alarms in [&mut one, &mut other] {
            let times: Vec<_> = alarms.iter().map(|alarm| alarm.raised_at).collect();
            assert!(times.is_sorted_by(|one, next| one >= next), "{}: alarms are out of order", self.doing);
            // Alarms raised at the same time may be in any order.
            alarms.sort_by(|one, other| one.id.cmp(&other.id));
        }
        self.same("lists of alarms", (one, other))
    }

    pub(super) async fn sweep(&self, retention: &Retention, now: Now) {
        for store in [&self.one, &self.other] {
            // The number of rows differs between stores, so both sweep to the end.
            while self.succeeded(store.sweep(retention, None, now, 10).await) > 0 {}
        }
    }

    /// Compares lists and counters.
    pub(super) async fn compare_lists(&self, query: &TaskQuery, now: Now) {
        let (one, other) = (self.list(&self.one, query).await, self.list(&self.other, query).await);
        self.same("lists of tasks", (one, other));
        let sessions = |mut states: Vec<windlass_store::SessionState>| {
            states.sort_by_key(|state| state.session);
            states
        };
        let (one, other) = both!(self, sessions(now));
        self.same("sessions", (sessions(one), sessions(other)));
        self.same("queues", both!(self, queues()));
        let (one, other) = both!(self, flows());
        let names = |flows: Vec<windlass_store::StoredFlow>| {
            flows.into_iter().map(|stored| (stored.flow, stored.created_at)).collect::<Vec<_>>()
        };
        self.same("flows", (names(one), names(other)));
        self.alarms(true).await;
        self.alarms(false).await;
        self.messages().await;
        self.unannounced().await;
    }

    async fn list(&self, store: &Arc<dyn Store>, query: &TaskQuery) -> Vec<TaskId> {
        let (mut query, mut found) = (query.clone(), Vec::new());
        loop {
            let page = self.succeeded(store.tasks(&query).await);
            found.extend(page.items.iter().map(|loaded| loaded.task.id));
            match page.next {
                Some(next) => query.before = Some(next),
                None => return found,
            }
        }
    }

    /// Compares everything about one task.
    pub(super) async fn compare_task(&self, id: TaskId) {
        let task = self.load(&[id]).await.remove(0);
        let (mut one, mut other) = both!(self, events(id, 0, usize::MAX));
        for (_, event) in one.iter_mut().chain(&mut other) {
            forget_result(event);
        }
        self.same("events", (one, other));
        self.same("logs", both!(self, logs(id, 1, 1_000)));
        let keys: Vec<ActKey> =
            task.iter().flat_map(|loaded| loaded.task.acts().map(|(key, _)| key)).collect();
        for key in keys {
            self.same("places in the queue", both!(self, place(id, key)));
        }
    }
}

/// Results are stored with the step, not with the event that reported them.
fn forget_result(event: &mut Event) {
    if let EventKind::ActSucceeded { result, .. } | EventKind::ActResolved { result, .. } = &mut event.kind {
        *result = None;
    }
}
