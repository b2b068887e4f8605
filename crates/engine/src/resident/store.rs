//! The store port over the scheduler and its sink.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
};

use async_trait::async_trait;
use futures_channel::oneshot;
use windlass_core::{
    ActKey, ActState, Alarm, AlarmId, Event, Millis, Task, TaskId, TaskStatus, Timestamp, task_status,
};

use super::{RowSink, TaskRow, claims::Held, scheduler::Scheduler};
use crate::ports::{
    ADOPTION_GRACE, Adoption, AttemptId, Change, Claimed, Due, Envelope, Loaded, LogLine, Now, Outcome, Page,
    QueueState, Retention, SessionId, SessionRenewal, SessionState, Store, StoreError, StoredAlarm,
    StoredFlow, SubmitKey, TIMEOUT_GRACE, TaskQuery, Wish,
};

/// A store with a single owner: what is active lives in memory, a sink writes it down.
pub struct Resident {
    sink: Arc<dyn RowSink>,
    token_key: [u8; 32],
    latest_at: Timestamp,
    inner: Mutex<Inner>,
    /// Only one commit at a time builds the scheduler anew.
    rebuilding: futures_util::lock::Mutex<()>,
}

struct Inner {
    scheduler: Scheduler,
    /// Batches given to the sink and not published yet, oldest first.
    under_way: VecDeque<UnderWay>,
    /// A write failed: what was staged is void.
    void: bool,
    /// When attempts that were ready before the start may be handed out.
    grace_until: Option<Millis>,
    /// The next claim number. It begins with the boot epoch, so it grows over restarts as well.
    next_claim: u64,
}

struct UnderWay {
    batch: Arc<Vec<Change>>,
    state: Arc<AtomicU8>,
}

const WRITING: u8 = 0;
const WRITTEN: u8 = 1;
const FAILED: u8 = 2;

/// Claims of one boot; the epoch stands above them.
const CLAIM_BITS: u32 = 40;

impl Resident {
    /// Reads what is active from `sink`. `now` begins the grace in which workers name what they have.
    ///
    /// # Errors
    /// When the sink cannot be read, or holds what cannot be understood.
    pub async fn open(sink: Arc<dyn RowSink>, now: Now) -> Result<Self, StoreError> {
        let recovered = sink.recover().await?;
        let token_key = recovered.token_key;
        let next_claim = (u64::from(recovered.epoch) << CLAIM_BITS) + 1;
        let latest_at = recovered.latest_at;
        let scheduler = Scheduler::recover(recovered)?;
        let latest_at = latest_at.max(scheduler.latest_at());
        let grace_until = (!scheduler.recovered.is_empty()).then_some(Millis(now.mono.0 + ADOPTION_GRACE.0));
        let inner = Inner { scheduler, under_way: VecDeque::new(), void: false, grace_until, next_claim };
        let rebuilding = futures_util::lock::Mutex::new(());
        Ok(Self { sink, token_key, latest_at, inner: Mutex::new(inner), rebuilding })
    }

    /// The latest time known to be written: the clock must not be behind it.
    pub fn latest_at(&self) -> Timestamp {
        self.latest_at
    }

    /// Locks the state, with everything published that has reached the disk.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.settle();
        inner
    }

    /// After a failed write: forgets what was staged and reads what is on disk.
    async fn rebuild(&self) -> Result<(), StoreError> {
        let _only = self.rebuilding.lock().await;
        if !self.inner().void {
            return Ok(());
        }
        let recovered = self.sink.recover().await?;
        let next_claim = (u64::from(recovered.epoch) << CLAIM_BITS) + 1;
        let mut scheduler = Scheduler::recover(recovered)?;
        let mut inner = self.inner();
        let old = std::mem::take(&mut inner.scheduler);
        scheduler.take_over(old.claims, old.sessions);
        inner.scheduler = scheduler;
        inner.under_way.clear();
        inner.next_claim = inner.next_claim.max(next_claim);
        inner.grace_until = None;
        inner.void = false;
        Ok(())
    }

    /// The keys among `changes` that are on disk.
    async fn taken_keys(&self, changes: &[Change]) -> Result<Vec<(TaskId, SubmitKey)>, StoreError> {
        let scopes: Vec<[u8; 32]> = changes
            .iter()
            .filter_map(|change| match change {
                Change::Task(change) => change.submit_key.as_ref().map(|key| key.scope),
                _ => None,
            })
            .collect();
        if scopes.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.sink.submit_keys(&scopes).await?.into_iter().flatten().collect())
    }

    /// Stages `changes` and gives those that may be written to the sink.
    fn stage(&self, changes: Vec<Change>, taken: &[(TaskId, SubmitKey)]) -> (Vec<Outcome>, Option<Ticket>) {
        let mut inner = self.inner();
        if inner.void {
            return (Vec::new(), Some(Ticket::failed()));
        }
        let mut outcomes = Vec::with_capacity(changes.len());
        let mut batch = Vec::with_capacity(changes.len());
        for change in changes {
            let outcome = on_disk(&change, taken).unwrap_or_else(|| inner.scheduler.stage(&change));
            if outcome == Outcome::Committed {
                batch.push(change);
            }
            outcomes.push(outcome);
        }
        if batch.is_empty() && inner.under_way.is_empty() {
            return (outcomes, None);
        }
        let batch = Arc::new(batch);
        let state = Arc::new(AtomicU8::new(WRITING));
        let (sender, receiver) = oneshot::channel();
        inner.under_way.push_back(UnderWay { batch: batch.clone(), state: state.clone() });
        // Still under the lock: batches reach the sink in the order they were staged.
        self.sink.write(
            batch,
            Box::new(move |result| {
                state.store(if result.is_ok() { WRITTEN } else { FAILED }, Ordering::Release);
                // Nobody waits any more when the commit's future was dropped; the state tells all the same.
                let _ = sender.send(result);
            }),
        );
        (outcomes, Some(Ticket(Some(receiver))))
    }

    fn task(&self, row: TaskRow) -> Result<Task, StoreError> {
        let inner = self.inner();
        row.into_task(|name, version| inner.scheduler.flow(name, Some(version)).map(|stored| stored.flow))
    }
}

/// Waits for a batch to be written.
struct Ticket(Option<oneshot::Receiver<Result<(), StoreError>>>);

impl Ticket {
    fn failed() -> Self {
        Self(None)
    }

    async fn written(self) -> Result<(), StoreError> {
        let lost = || {
            StoreError::Unavailable("an earlier write failed, and what was built on it is void".to_owned())
        };
        match self.0 {
            Some(receiver) => receiver.await.unwrap_or_else(|_| Err(lost())),
            None => Err(lost()),
        }
    }
}

fn on_disk(change: &Change, taken: &[(TaskId, SubmitKey)]) -> Option<Outcome> {
    let Change::Task(change) = change else { return None };
    let scope = change.submit_key.as_ref()?.scope;
    let (task, key) = taken.iter().find(|(_, key)| key.scope == scope)?;
    Some(Outcome::KeyTaken { task: *task, fingerprint: key.fingerprint })
}

impl Inner {
    /// Publishes batches that are on disk, in order.
    fn settle(&mut self) {
        while let Some(front) = self.under_way.front() {
            match front.state.load(Ordering::Acquire) {
                WRITING => return,
                WRITTEN => {
                    let batch = front.batch.clone();
                    self.under_way.pop_front();
                    for change in batch.iter() {
                        self.scheduler.publish(change);
                    }
                }
                _ => {
                    self.void = true;
                    return;
                }
            }
        }
    }

    fn end_grace(&mut self, now: Now) {
        if self.grace_until.is_some_and(|until| until <= now.mono) {
            self.grace_until = None;
            self.scheduler.end_grace();
        }
    }

    /// Gives an attempt to a session.
    fn hold(&mut self, session: SessionId, attempt: AttemptId, now: Now) -> Option<Claimed> {
        let AttemptId { task, key, attempt: number, claim } = attempt;
        let ready = self.scheduler.published_ready(task, key)?;
        let grace = if self.scheduler.sessions.is_attached(session) { TIMEOUT_GRACE } else { Millis(0) };
        let timeout_at = Millis(now.mono.0.saturating_add(ready.timeout.0).saturating_add(grace.0));
        let module = ready.module.clone();
        let held = Held {
            key,
            attempt: number,
            number: claim,
            session,
            at: now.wall,
            timeout_at,
            module: module.clone(),
        };
        self.scheduler.claims.insert(task, held);
        self.scheduler.sessions.hold(session, task, key);
        self.scheduler.queues.count_running(&module, 1);
        if let Some(entry) = self.scheduler.active.get_mut(&task) {
            entry.handed_out.insert(key);
        }
        self.scheduler.claims.claimed(task, key)
    }
}

#[async_trait]
impl Store for Resident {
    fn token_key(&self) -> [u8; 32] {
        self.token_key
    }

    fn next_wake(&self, now: Now) -> Option<Millis> {
        let inner = self.inner();
        let scheduler = &inner.scheduler;
        let due = scheduler.due.first().map(|(at, ..)| *at - now.wall);
        let mono = [scheduler.claims.next_timeout(), scheduler.sessions.next_end(), inner.grace_until];
        let mono = mono.into_iter().flatten().map(|at| Millis(at.0.saturating_sub(now.mono.0)));
        mono.chain(due).min()
    }

    async fn load(&self, ids: &[TaskId]) -> Result<Vec<Option<Loaded>>, StoreError> {
        if self.inner().void {
            self.rebuild().await?;
        }
        let mut loaded: Vec<Option<Loaded>> = {
            let inner = self.inner();
            ids.iter().map(|id| inner.scheduler.loaded(*id)).collect()
        };
        let missing: Vec<TaskId> =
            ids.iter().zip(&loaded).filter(|(_, found)| found.is_none()).map(|(id, _)| *id).collect();
        if missing.is_empty() {
            return Ok(loaded);
        }
        let mut rows = self.sink.ended(&missing).await?.into_iter();
        for found in loaded.iter_mut().filter(|found| found.is_none()) {
            if let Some(row) = rows.next().flatten() {
                *found = Some(ended(self.task(row)?));
            }
        }
        Ok(loaded)
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<Vec<Outcome>, StoreError> {
        if self.inner().void {
            self.rebuild().await?;
        }
        let keyed = changes
            .iter()
            .any(|change| matches!(change, Change::Task(change) if change.submit_key.is_some()));
        let lookup = keyed.then(|| self.inner().scheduler.submit_keys.begin_lookup());
        let taken = self.taken_keys(&changes).await;
        let staged = taken.map(|taken| self.stage(changes, &taken));
        if let Some(lookup) = lookup {
            self.inner().scheduler.submit_keys.end_lookup(lookup);
        }
        let (outcomes, ticket) = staged?;
        if let Some(ticket) = ticket {
            ticket.written().await?;
        }
        Ok(outcomes)
    }

    async fn claim(&self, session: SessionId, wishes: &[Wish], now: Now) -> Result<Vec<Claimed>, StoreError> {
        let mut inner = self.inner();
        inner.end_grace(now);
        let mut claimed = Vec::new();
        if inner.void || !inner.scheduler.sessions.knows(session) {
            return Ok(claimed);
        }
        for wish in wishes {
            for _ in 0..wish.free {
                let Some(place) = inner.scheduler.queues.pop(wish) else { break };
                let attempt =
                    inner.scheduler.active.get(&place.task).and_then(|entry| entry.task.act(place.key));
                let Some(attempt) = attempt.map(|act| act.attempt) else { continue };
                let claim = inner.next_claim;
                inner.next_claim += 1;
                let id = AttemptId { task: place.task, key: place.key, attempt, claim };
                claimed.extend(inner.hold(session, id, now));
            }
        }
        Ok(claimed)
    }

    async fn adopt(
        &self,
        session: SessionId,
        attempts: &[AttemptId],
        now: Now,
    ) -> Result<Vec<Adoption>, StoreError> {
        let mut inner = self.inner();
        let mut adoptions = Vec::with_capacity(attempts.len());
        for id in attempts {
            let act = inner.scheduler.active.get(&id.task).and_then(|entry| entry.task.act(id.key));
            let current = act.is_some_and(|act| act.state == ActState::Ready && act.attempt == id.attempt);
            let holder = inner.scheduler.claims.get(id.task, id.key).map(|held| (held.session, held.number));
            let adoption = match holder {
                _ if !current => Adoption::Gone,
                Some((holder, number)) if holder == session && number == id.claim => Adoption::Held,
                Some(_) => Adoption::Gone,
                None => {
                    inner.scheduler.publish_ready(id.task, id.key);
                    if let Some(ready) = inner.scheduler.published_ready(id.task, id.key).cloned() {
                        inner.scheduler.queues.remove(id.task, id.key, &ready);
                    }
                    if inner.hold(session, *id, now).is_some() { Adoption::Held } else { Adoption::Gone }
                }
            };
            adoptions.push(adoption);
        }
        Ok(adoptions)
    }

    async fn release(&self, session: SessionId, attempt: AttemptId, _now: Now) -> Result<(), StoreError> {
        let mut inner = self.inner();
        let scheduler = &mut inner.scheduler;
        let theirs = scheduler
            .claims
            .get(attempt.task, attempt.key)
            .is_some_and(|held| held.session == session && held.number == attempt.claim);
        if theirs && let Some(held) = scheduler.claims.remove(attempt.task, attempt.key) {
            scheduler.sessions.drop_hold(session, attempt.task, attempt.key);
            scheduler.queues.count_running(&held.module, -1);
            if let Some(ready) = scheduler.published_ready(attempt.task, attempt.key).cloned() {
                scheduler.queues.insert(attempt.task, attempt.key, &ready);
            }
        }
        Ok(())
    }

    async fn renew(&self, session: SessionRenewal, now: Now) -> Result<(), StoreError> {
        self.inner().scheduler.sessions.renew(session, now);
        Ok(())
    }

    async fn forgive(&self, now: Now) -> Result<(), StoreError> {
        self.inner().scheduler.sessions.forgive(now);
        Ok(())
    }

    async fn lost(&self, now: Now, limit: usize) -> Result<Vec<Claimed>, StoreError> {
        let mut inner = self.inner();
        let ended = inner.scheduler.sessions.ended(now, limit);
        Ok(ended.into_iter().filter_map(|(_, task, key)| inner.scheduler.claims.claimed(task, key)).collect())
    }

    async fn due(&self, now: Now, limit: usize) -> Result<Vec<Due>, StoreError> {
        let mut inner = self.inner();
        inner.end_grace(now);
        Ok(inner.scheduler.due(now, limit))
    }

    async fn messages(&self, limit: usize) -> Result<Vec<Envelope>, StoreError> {
        Ok(self.inner().scheduler.messages.values().take(limit).cloned().collect())
    }

    async fn flow(&self, name: &str, version: Option<u32>) -> Result<Option<StoredFlow>, StoreError> {
        Ok(self.inner().scheduler.flow(name, version))
    }

    async fn flows(&self) -> Result<Vec<StoredFlow>, StoreError> {
        Ok(self.inner().scheduler.flows.values().filter_map(|versions| versions.last()).cloned().collect())
    }

    async fn tasks(&self, query: &TaskQuery) -> Result<Page<Loaded, TaskId>, StoreError> {
        let mut page = if query.statuses.is_empty() || query.statuses.iter().copied().any(is_final) {
            self.sink.ended_page(query).await?
        } else {
            Page { items: Vec::new(), next: None }
        };
        // What ended while the page was read is still active here, or was read: the active one wins.
        let mut items: Vec<Loaded> = Vec::new();
        {
            let inner = self.inner();
            let until = query.before.unwrap_or(TaskId(u128::MAX));
            for (id, _) in inner.scheduler.active.range(..until).rev() {
                // Beyond the end of the page from disk, tasks belong to later pages.
                if items.len() == query.limit || page.next.is_some_and(|next| *id < next) {
                    break;
                }
                items.extend(inner.scheduler.loaded(*id).filter(|loaded| matches(loaded, query)));
            }
        }
        let more_active = items.len() == query.limit;
        let last_active = items.last().map(|loaded| loaded.task.id);
        for row in std::mem::take(&mut page.items) {
            if !items.iter().any(|loaded| loaded.task.id == row.id) {
                items.push(ended(self.task(row)?));
            }
        }
        items.sort_by_key(|loaded| std::cmp::Reverse(loaded.task.id));
        let mut next = page.next;
        if more_active {
            next = next.max(last_active);
        }
        if items.len() > query.limit {
            items.truncate(query.limit);
            next = items.last().map(|loaded| loaded.task.id);
        } else if let Some(next) = next {
            items.retain(|loaded| loaded.task.id >= next);
        }
        Ok(Page { items, next })
    }

    async fn events(&self, task: TaskId, after: u64, limit: usize) -> Result<Vec<(u64, Event)>, StoreError> {
        self.sink.events(task, after, limit).await
    }

    async fn logs(&self, task: TaskId, skip: u64, limit: usize) -> Result<Vec<LogLine>, StoreError> {
        self.sink.logs(task, skip, limit).await
    }

    async fn alarm(&self, id: &AlarmId) -> Result<Option<StoredAlarm>, StoreError> {
        let staged = self.inner().scheduler.alarms.get(&id.0).cloned();
        match staged {
            Some(alarm) => Ok(Some(alarm)),
            None => self.sink.alarm(id).await,
        }
    }

    async fn alarms(&self, all: bool, limit: usize) -> Result<Vec<Alarm>, StoreError> {
        self.sink.alarms(all, limit).await
    }

    async fn queues(&self) -> Result<Vec<QueueState>, StoreError> {
        Ok(self.inner().scheduler.queues.states())
    }

    async fn sessions(&self, now: Now) -> Result<Vec<SessionState>, StoreError> {
        Ok(self.inner().scheduler.sessions.states(now))
    }

    async fn place(&self, task: TaskId, key: ActKey) -> Result<Option<u64>, StoreError> {
        let inner = self.inner();
        let Some(ready) = inner.scheduler.published_ready(task, key) else { return Ok(None) };
        Ok(inner.scheduler.queues.place(task, key, ready))
    }

    async fn sweep(&self, retention: &Retention, now: Now, limit: usize) -> Result<u64, StoreError> {
        self.sink.sweep(retention, now, limit).await
    }
}

fn ended(task: Task) -> Loaded {
    Loaded { task: Arc::new(task), claims: Vec::new(), handed_out: std::collections::BTreeSet::new() }
}

fn is_final(status: TaskStatus) -> bool {
    matches!(
        status,
        TaskStatus::Succeeded | TaskStatus::RolledBack | TaskStatus::Failed | TaskStatus::Cancelled
    )
}

/// Whether a task meets a query's filters.
fn matches(loaded: &Loaded, query: &TaskQuery) -> bool {
    let task = &loaded.task;
    let created_at = task.input.created_at;
    (query.statuses.is_empty() || query.statuses.contains(&task_status(task, &loaded.held())))
        && query.flow.as_ref().is_none_or(|flow| *flow == task.flow.name)
        && query.labels.iter().all(|(name, value)| task.input.labels.get(name) == Some(value))
        && query.since.is_none_or(|since| created_at >= since)
        && query.until.is_none_or(|until| created_at < until)
}
