//! From a file to a store: everything is committed as if it had just happened, but for what would follow from it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::BufRead,
    sync::Arc,
};

use windlass_core::{
    ActKey, ActState, Effect, Flow, Free, Json, Lock, Name, Ready, Task, TaskId, Waiting, Wakeup,
    planted::{Bug, is_planted},
    waits,
};

use super::{
    ArchiveError, Progress,
    file::Reader,
    pieces::{in_pieces, is_next},
    record::{FORMAT_WITH_LOCK_FLOOR, LogRecord, Record, TaskRecord, Totals},
};
use crate::{
    port::{
        AlarmChange, AttemptId, Change, Envelope, JournalEntry, JournalKind, KeyChange, LimitChange,
        LockChange, MessageId, Now, Outcome, QueueChange, QueuePause, RecordChange, RecordKind, Sender,
        SessionId, Store, StoredFlow, SubmitKey, TaskChange,
    },
    resident::TaskRow,
    stored,
};

/// Changes committed at once, and the bytes of tasks and log lines at which fewer are.
const CHANGES: usize = 200;
const BYTES: usize = 4 << 20;

/// Fences in files without a floor of locks are behind the clock by at most this: a day, in milliseconds, for the clocks
/// of several machines.
const CLOCK_MARGIN: u64 = 24 * 3600 * 1000;

/// Who gives back for a moment what workers may have had.
const GIVES_BACK: SessionId = SessionId(1);

/// Reads all that is in the file into an empty store, which no server has open.
///
/// # Errors
/// When the file is not whole or the store does not take it. What was read by then is in the store: the caller
/// clears it.
pub async fn import(
    store: &dyn Store,
    from: &mut (dyn BufRead + Send),
    progress: Progress<'_>,
    now: Now,
) -> Result<Totals, ArchiveError> {
    let mut reader = Reader::begin(from, progress)?;
    let mut import = Import {
        store,
        now,
        lock_floor: store.lock_floor().await?,
        flows: BTreeMap::new(),
        unannounced: BTreeMap::new(),
        changes: Vec::new(),
        bytes: 0,
        handed_out: Vec::new(),
        parked: Vec::new(),
    };
    if reader.format < FORMAT_WITH_LOCK_FLOOR {
        // The fences of that time followed the clock.
        import.raise_lock_floor(u64::try_from(now.wall.0).unwrap_or(0) + CLOCK_MARGIN)?;
    }
    while let Some(record) = reader.next()? {
        import.take(record)?;
        if import.changes.len() >= CHANGES || import.bytes >= BYTES {
            import.commit().await?;
        }
    }
    import.commit().await?;
    Ok(reader.totals())
}

struct Import<'s> {
    store: &'s dyn Store,
    now: Now,
    flows: BTreeMap<(Name, u32), Arc<Flow>>,
    /// The store's floor of locks.
    lock_floor: u64,
    /// What is to be announced of tasks that come later: after which of its events, how many.
    unannounced: BTreeMap<TaskId, Vec<(u64, u64)>>,
    /// What is to be committed next.
    changes: Vec<Change>,
    bytes: usize,
    /// Attempts among it that workers may have had.
    handed_out: Vec<AttemptId>,
    /// Changes after that. A parked attempt waits for nothing, and stores note only of waiting attempts that a worker may have
    /// had them. So it waits for a moment.
    parked: Vec<TaskChange>,
}

impl Import<'_> {
    fn take(&mut self, record: Record) -> Result<(), ArchiveError> {
        let change = match record {
            Record::Flow { created_at, flow } => {
                let flow = Arc::new(stored::read_flow(&flow)?);
                self.flows.insert((flow.name.clone(), flow.version), flow.clone());
                Change::Flow(StoredFlow { flow, created_at })
            }
            Record::Limit(limit) => {
                let limit = limit.into_limit();
                Change::Limit(LimitChange { name: limit.name.clone(), limit: Some(limit) })
            }
            Record::Stored { kind, name, body } => {
                let kind = RecordKind::from_code(kind).ok_or_else(|| unknown("record", kind))?;
                let change = RecordChange::create(kind, name, body.into(), self.now.wall);
                Change::Record(change.decided_in(self.store.generation()))
            }
            Record::Journal(entries) => {
                let mut read = Vec::with_capacity(entries.len());
                for (kind, subject, at, body) in entries {
                    let kind = JournalKind::from_code(kind).ok_or_else(|| unknown("journal", kind))?;
                    self.bytes += body.len();
                    read.push(JournalEntry { kind, subject, at, body: body.into() });
                }
                Change::Journal(read)
            }
            Record::Queue { name, at, by } => {
                Change::Queue(QueueChange { name, paused: Some(QueuePause { at, by }) })
            }
            Record::Message { sender, n, message } => {
                let envelope = Envelope { id: sender.into_id(n), message: stored::read_message(&message)? };
                Change::Lock(self.sending(envelope)?)
            }
            Record::Task(task) => {
                let change = self.task(*task)?;
                let unannounced = self.unannounced.remove(&change.task.id).unwrap_or_default();
                self.changes.extend(in_pieces(change, &unannounced)?.into_iter().map(Change::from));
                return Ok(());
            }
            Record::Unannounced { task, after, count } => {
                self.unannounced.entry(task).or_default().push((after, count));
                return Ok(());
            }
            Record::Logs(lines) => {
                let lines: Vec<_> = lines.into_iter().map(LogRecord::into_line).collect();
                self.bytes += lines.iter().map(|line| line.line.len()).sum::<usize>();
                Change::Logs(lines)
            }
            Record::Lock { .. } if is_planted(Bug::LocksNotImported) => return Ok(()),
            Record::Lock { name, version, holder, waiters } => {
                return self.lock(name, version, &holder, &waiters);
            }
            Record::Alarm(alarm) => {
                let alarm = Some(stored::read_alarm(&alarm)?);
                Change::Alarm(AlarmChange { before: 0, alarm, consumes: None })
            }
            Record::Key { scope, fingerprint, task, at } => {
                Change::Key(KeyChange { key: SubmitKey { scope, fingerprint }, task, at })
            }
            Record::LockFloor(floor) => return self.raise_lock_floor(floor),
            Record::End { .. } => return Ok(()),
        };
        self.changes.push(change);
        Ok(())
    }

    /// A change that sends a message, with any sender: that of a lock that is not kept.
    fn sending(&self, envelope: Envelope) -> Result<LockChange, ArchiveError> {
        let MessageId { sender, .. } = &envelope.id;
        let name = match sender {
            Sender::Lock(name) => name.clone(),
            Sender::Task(_) => any_name()?,
        };
        let lock = Lock::new(name, self.lock_floor);
        Ok(LockChange { messages: vec![envelope], ..self.delete(lock) })
    }

    fn delete(&self, lock: Lock) -> LockChange {
        LockChange::delete(lock, self.now.wall).decided_in(self.store.generation())
    }

    fn raise_lock_floor(&mut self, floor: u64) -> Result<(), ArchiveError> {
        let before = self.lock_floor;
        self.lock_floor = before.max(floor);
        let lock = Lock::new(any_name()?, self.lock_floor);
        let change = LockChange { before, ..self.delete(lock) };
        self.changes.push(Change::Lock(change));
        Ok(())
    }

    fn task(&mut self, record: TaskRecord) -> Result<TaskChange, ArchiveError> {
        let TaskRecord { id, flow, version, brought, input, params, state, members, results, .. } = record;
        self.bytes += params.len() + state.len() + record.events.len();
        let brought = brought.map(|flow| stored::read_flow(&flow)).transpose()?.map(Arc::new);
        let mut row = TaskRow {
            id,
            flow,
            version,
            input: stored::read_input(&input, &params)?,
            state: stored::read_state(&state)?,
            never_handed_out: false,
            is_body_away: false,
        };
        for (step, member) in &members {
            self.bytes += member.len();
            let of_step = row.state.steps.get_mut(*step);
            let Some(members) = of_step.and_then(|step| Arc::make_mut(step).members.as_mut()) else {
                return Err(ArchiveError::Damaged(format!("task {id} has items of a step that has none")));
            };
            members.restore(stored::read_member(member)?);
        }
        let results: Vec<(ActKey, Json)> =
            results.into_iter().map(|(key, result)| (key, Json::from_stored(&result))).collect();
        for (key, result) in &results {
            self.bytes += result.as_str().len();
            row.set_result(*key, result.clone());
        }
        let flows = &self.flows;
        let task = row.into_task(|name, version| {
            brought.or_else(|| flows.get(&(Name::new(name).ok()?, version)).cloned())
        })?;
        let parked: Vec<Waiting> =
            record.handed_out.iter().filter_map(|key| wait_of_parked(&task, *key)).collect();
        for key in record.handed_out {
            let attempt = task.act(key).map_or(0, |act| act.attempt);
            self.handed_out.push(AttemptId { task: id, key, attempt, claim: 0 });
        }
        let (task, events) = (Arc::new(task), stored::read_events(&record.events)?);
        if !parked.is_empty() {
            let waits = parked.iter().map(|waiting| Effect::Forget(waiting.key)).collect();
            self.parked.push(self.change(task.clone(), task.state.events, waits));
        }
        let waits = waits(&task).into_iter().chain(parked).map(Effect::Wait).collect();
        let submit_key = record.key.map(|(scope, fingerprint)| SubmitKey { scope, fingerprint });
        Ok(TaskChange { events, results, submit_key, ..self.change(task, 0, waits) })
    }

    /// A change without events.
    fn change(&self, task: Arc<Task>, before: u64, waits: Vec<Effect>) -> TaskChange {
        TaskChange {
            before,
            generation: self.store.generation(),
            waits,
            task,
            events: Vec::new(),
            results: Vec::new(),
            logs: Vec::new(),
            journal: Vec::new(),
            messages: Vec::new(),
            submit_key: None,
            consumes: None,
            lost: Vec::new(),
            reported: Vec::new(),
            offered: Vec::new(),
            handed_out: Vec::new(),
            announces: false,
            fence: None,
        }
    }

    /// A lock comes with one that waits at a time, as they joined.
    fn lock(
        &mut self,
        name: Name,
        version: u64,
        holder: &[u8],
        waiters: &[Vec<u8>],
    ) -> Result<(), ArchiveError> {
        let mut lock = Lock::new(name, self.lock_floor);
        stored::read_tenure(holder)?.restore(&mut lock);
        let changes = waiters.len().max(1) as u64;
        if version < changes {
            let name = &lock.name;
            return Err(ArchiveError::Damaged(format!("lock {name} had fewer changes than wait for it")));
        }
        for n in 0..changes {
            let (before, at) = (lock.version, self.now.wall);
            lock.version = version - changes + n + 1;
            let joined = match usize::try_from(n).ok().and_then(|n| waiters.get(n)) {
                Some(waiter) => Some((n + 1, stored::read_lock_waiter(waiter)?)),
                None => None,
            };
            if let Some((place, waiter)) = joined {
                lock.restore(place, waiter);
            }
            let (left, messages, consumes) = (None, Vec::new(), None);
            let (generation, kept) = (self.store.generation(), true);
            let lock = lock.clone();
            let change = LockChange { before, generation, lock, kept, at, joined, left, messages, consumes };
            self.changes.push(Change::Lock(change));
        }
        Ok(())
    }

    async fn commit(&mut self) -> Result<(), ArchiveError> {
        let changes = std::mem::take(&mut self.changes);
        self.bytes = 0;
        if changes.is_empty() {
            return Ok(());
        }
        let outcomes = self.store.commit(changes.clone()).await?;
        let mut repeated = Vec::new();
        for (change, outcome) in changes.into_iter().zip(outcomes) {
            match (change, outcome) {
                (_, Outcome::Committed) => {}
                (Change::Task(change), Outcome::Repeats { .. }) => repeated.push(*change),
                // A piece of the one before.
                (Change::Task(change), Outcome::Conflict) if is_next(&change, repeated.last()) => {
                    repeated.push(*change);
                }
                (change, outcome) => return Err(refused(&change, &outcome)),
            }
        }
        if !repeated.is_empty() {
            self.commit_repeated(repeated).await?;
        }
        // That a worker may have had them is known of attempts that were in somebody's hands once.
        for id in std::mem::take(&mut self.handed_out) {
            self.store.adopt(GIVES_BACK, &[id], self.now).await?;
            self.store.release(GIVES_BACK, id, None, self.now).await?;
        }
        let parked: Vec<Change> = self.parked.drain(..).map(Change::from).collect();
        self.commit_all(&parked).await
    }

    /// Commits changes that fit.
    async fn commit_all(&self, changes: &[Change]) -> Result<(), ArchiveError> {
        if changes.is_empty() {
            return Ok(());
        }
        let outcomes = self.store.commit(changes.to_vec()).await?;
        match changes.iter().zip(outcomes).find(|(_, outcome)| *outcome != Outcome::Committed) {
            Some((change, outcome)) => Err(refused(change, &outcome)),
            None => Ok(()),
        }
    }

    /// Tasks beside older ones that are the same: children that had succeeded and are rolled back now, while these were
    /// accepted. The older ones are in the store already. Later tasks are deduplicated to the older ones, until those have
    /// ended, and never to these.
    async fn commit_repeated(&mut self, mut changes: Vec<TaskChange>) -> Result<(), ArchiveError> {
        let repeated: BTreeSet<TaskId> = changes.iter().map(|change| change.task.id).collect();
        let parked = self.parked.iter_mut().filter(|change| repeated.contains(&change.task.id));
        for change in changes.iter_mut().chain(parked) {
            let mut input = (*change.task.input).clone();
            input.unique = None;
            change.task = Arc::new(Task { input: Arc::new(input), ..(*change.task).clone() });
        }
        let changes: Vec<Change> = changes.into_iter().map(Change::from).collect();
        self.commit_all(&changes).await
    }
}

/// A parked attempt as if it were ready. No server is there that would hand it out.
fn wait_of_parked(task: &Task, key: ActKey) -> Option<Waiting> {
    let act = task.act(key).filter(|act| act.state == ActState::Parked)?;
    let action = task.action(key)?;
    let (module, command) = action.worker()?;
    let ready = Ready {
        module: module.clone(),
        command: command.clone(),
        fairness: None,
        rank: 0,
        ready_at: act.ready_at.unwrap_or_default(),
        timeout: action.timeout,
        free: Free::Park,
    };
    Some(Waiting { key: Wakeup::Act(key), attempt: act.attempt, ready: Some(ready), due_at: None })
}

/// The name of a lock that is not stored, for changes that store none.
fn any_name() -> Result<Name, ArchiveError> {
    Name::new("import").map_err(|error| ArchiveError::Damaged(error.to_string()))
}

fn unknown(what: &str, code: i64) -> ArchiveError {
    ArchiveError::Damaged(format!("there is no kind of {what} with the number {code}"))
}

fn refused(change: &Change, outcome: &Outcome) -> ArchiveError {
    let what = match change {
        Change::Task(change) => format!("task {}", change.task.id),
        Change::Flow(stored) => format!("version {} of flow {}", stored.flow.version, stored.flow.name),
        Change::Lock(change) => format!("lock {}", change.lock.name),
        other => format!("{other:?}"),
    };
    ArchiveError::Refused(format!("the store does not take {what}: {outcome:?}; something is there already"))
}
