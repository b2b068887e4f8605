//! From a store to a file.

use std::io::Write;

use windlass_core::{Act, ActState, Task, TaskId, is_adhoc};

use super::{
    ArchiveError, Progress,
    file::Writer,
    record::{FORMAT, LimitRecord, LogRecord, Record, SenderRecord, TaskRecord, Totals},
};
use crate::{
    port::{Announced, JournalKind, JournalQuery, Loaded, Now, RecordKind, Snapshot, Store, SubmitKey},
    stored,
};

/// Tasks read at once.
const TASKS: usize = 100;

/// Events, log lines, locks and keys read at once.
const ROWS: usize = 1000;

/// More messages or alarms than this are not exported: they are read at once.
const AT_ONCE_MAX: usize = 1_000_000;

/// Writes all that was in the store at one moment.
///
/// # Errors
/// When the store cannot be read or the file not written.
pub async fn export(
    snapshot: &mut dyn Snapshot,
    to: &mut (dyn Write + Send),
    progress: Progress<'_>,
    now: Now,
) -> Result<Totals, ArchiveError> {
    let announces = !snapshot.store().unannounced(TaskId::NONE, 1).await?.is_empty();
    let mut writer = Writer::begin(to, FORMAT, progress)?;
    writer.record(&Record::LockFloor(lock_floor(snapshot.store()).await?))?;
    settings(snapshot.store(), &mut writer, now).await?;
    messages(snapshot.store(), &mut writer).await?;
    records(snapshot.store(), &mut writer).await?;
    journals(snapshot.store(), &mut writer).await?;
    let mut after = None;
    loop {
        let submitted = snapshot.submitted(after, TASKS).await?;
        let Some(last) = submitted.last() else { break };
        after = Some(last.place);
        let ids: Vec<_> = submitted.iter().map(|submitted| submitted.id).collect();
        if announces {
            for (Announced { task, after }, count) in snapshot.unannounced(&ids).await? {
                writer.record(&Record::Unannounced { task, after, count })?;
            }
        }
        let store = snapshot.store();
        for (loaded, submitted) in store.load(&ids).await?.into_iter().zip(submitted) {
            match (loaded, store.quarantine().error(submitted.id)) {
                (Some(loaded), _) => task(store, &mut writer, &loaded, submitted.key).await?,
                // An archive without it would look whole.
                (None, Some(damaged)) => return Err(damaged.into()),
                (None, None) => {}
            }
        }
    }
    locks(snapshot.store(), &mut writer).await?;
    let mut alarms = snapshot.store().alarms(true, AT_ONCE_MAX).await?;
    at_most(alarms.len(), "alarms")?;
    alarms.reverse();
    for alarm in &alarms {
        writer.record(&Record::Alarm(stored::write_alarm(alarm)))?;
    }
    keys(snapshot, &mut writer).await?;
    // An archive without what is damaged would look whole.
    match snapshot.store().quarantine().error_of_no_task() {
        Some(damaged) => Err(damaged.into()),
        None => writer.end(),
    }
}

/// Flows, limits and paused queues.
async fn settings(store: &dyn Store, writer: &mut Writer<'_>, now: Now) -> Result<(), ArchiveError> {
    for newest in store.flows().await? {
        let name = &newest.flow.name;
        // Those come with their tasks.
        if is_adhoc(name.as_str()) {
            continue;
        }
        for version in 1..=newest.flow.version {
            let stored = store.flow(name.as_str(), Some(version)).await?;
            let stored = stored.ok_or_else(|| {
                ArchiveError::Refused(format!("version {version} of flow {name} is missing in the store"))
            })?;
            let flow = stored::write_flow(&stored.flow);
            writer.record(&Record::Flow { created_at: stored.created_at, flow })?;
        }
    }
    for state in store.limits(now).await? {
        writer.record(&Record::Limit(LimitRecord::new(state.limit)))?;
    }
    for queue in store.queues().await? {
        if let Some(paused) = queue.paused {
            writer.record(&Record::Queue { name: queue.name, at: paused.at, by: paused.by })?;
        }
    }
    Ok(())
}

async fn records(store: &dyn Store, writer: &mut Writer<'_>) -> Result<(), ArchiveError> {
    for kind in RecordKind::ALL {
        let mut after = None;
        loop {
            let page = store.records(kind, after.as_ref(), ROWS).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.name.clone());
            for stored in page {
                let (kind, body) = (kind.code(), stored.body.to_vec());
                writer.record(&Record::Stored { kind, name: stored.name, body })?;
            }
        }
    }
    Ok(())
}

async fn journals(store: &dyn Store, writer: &mut Writer<'_>) -> Result<(), ArchiveError> {
    for kind in JournalKind::ALL {
        let (mut pages, mut before) = (Vec::new(), None);
        // They are read from the newest on, and written from the oldest on.
        loop {
            let query = JournalQuery { kind, subject: None, before, limit: ROWS };
            let page = store.journal(&query).await?;
            let Some((last, _)) = page.last() else { break };
            before = Some(*last);
            pages.push(page);
            at_most(pages.len() * ROWS, "entries in a journal")?;
        }
        for page in pages.into_iter().rev() {
            let entries = page.into_iter().rev();
            let entries =
                entries.map(|(_, entry)| (kind.code(), entry.subject, entry.at, entry.body.to_vec()));
            writer.record(&Record::Journal(entries.collect()))?;
        }
    }
    Ok(())
}

async fn messages(store: &dyn Store, writer: &mut Writer<'_>) -> Result<(), ArchiveError> {
    let mut messages = store.messages(AT_ONCE_MAX).await?;
    at_most(messages.len(), "messages on their way")?;
    messages.sort_by(|one, other| one.id.cmp(&other.id));
    for envelope in messages {
        writer.record(&Record::Message {
            sender: SenderRecord::new(envelope.id.sender),
            n: envelope.id.n,
            message: stored::write_message(&envelope.message),
        })?;
    }
    Ok(())
}

fn at_most(found: usize, what: &str) -> Result<(), ArchiveError> {
    if found < AT_ONCE_MAX {
        return Ok(());
    }
    Err(ArchiveError::Refused(format!(
        "the store has {AT_ONCE_MAX} {what} or more, which is too many to export"
    )))
}

async fn task(
    store: &dyn Store,
    writer: &mut Writer<'_>,
    loaded: &Loaded,
    key: Option<SubmitKey>,
) -> Result<(), ArchiveError> {
    let task = &*loaded.task;
    let mut events = Vec::new();
    loop {
        let after = events.len() as u64;
        let page = store.events(task.id, after, ROWS).await?;
        if page.is_empty() {
            break;
        }
        events.extend(page.into_iter().map(|(_, event)| event));
    }
    if events.len() as u64 != task.state.events {
        return Err(ArchiveError::Refused(format!(
            "task {} has had {} events, and {} of them are in the store: see `windlass doctor`",
            task.id,
            task.state.events,
            events.len()
        )));
    }
    // A worker may have begun a parked attempt as well, before the pause.
    let is_current = |key| task.act(key).is_some_and(Act::is_current);
    let mut handed_out = loaded.handed_out.clone();
    handed_out.extend(loaded.held());
    handed_out.extend(&loaded.awaited);
    writer.record(&Record::Task(Box::new(TaskRecord {
        id: task.id,
        flow: task.flow.name.clone(),
        version: task.flow.version,
        brought: is_adhoc(task.flow.name.as_str()).then(|| stored::write_flow(&task.flow)),
        input: stored::write_input(&task.input),
        params: task.input.params.as_str().into(),
        state: stored::write_state(&task.state),
        members: members(task),
        results: results(task),
        events: stored::write_events(&events),
        key: key.map(|key| (key.scope, key.fingerprint)),
        handed_out: handed_out.into_iter().filter(|key| is_current(*key)).collect(),
    })))?;
    let mut after = 0;
    loop {
        let page = store.logs(task.id, after, ROWS).await?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = *last;
        let lines = page.into_iter().map(|(_, line)| LogRecord::new(line)).collect();
        writer.record(&Record::Logs(lines))?;
    }
}

fn members(task: &Task) -> Vec<(usize, Vec<u8>)> {
    let mut members = Vec::new();
    for (index, step) in task.state.steps.iter().enumerate() {
        let of_step = step.members.iter().flat_map(|members| members.iter());
        members.extend(of_step.map(|(_, member)| (index, stored::write_member(member))));
    }
    members
}

fn results(task: &Task) -> Vec<(windlass_core::ActKey, Box<str>)> {
    let succeeded = task.acts().filter(|(_, act)| act.state == ActState::Succeeded);
    succeeded.filter_map(|(key, act)| Some((key, act.result.as_ref()?.as_str().into()))).collect()
}

async fn locks(store: &dyn Store, writer: &mut Writer<'_>) -> Result<(), ArchiveError> {
    let mut after = None;
    loop {
        let locks = store.locks(after.as_ref(), ROWS).await?;
        let Some(last) = locks.last() else { return Ok(()) };
        after = Some(last.name.clone());
        for lock in &locks {
            writer.record(&Record::Lock {
                name: lock.name.clone(),
                version: lock.version,
                holder: stored::write_tenure(&stored::Tenure::of(lock)),
                waiters: lock.waiters().map(stored::write_lock_waiter).collect(),
            })?;
        }
    }
}

/// The floor below which no lock may begin in another store: free locks are not exported.
async fn lock_floor(store: &dyn Store) -> Result<u64, ArchiveError> {
    let free = store.free_locks(AT_ONCE_MAX).await?;
    at_most(free.len(), "free locks")?;
    let floor = store.lock_floor().await?;
    Ok(free.iter().map(|lock| lock.version).fold(floor, u64::max))
}

async fn keys(snapshot: &mut dyn Snapshot, writer: &mut Writer<'_>) -> Result<(), ArchiveError> {
    let mut after = None;
    loop {
        let keys = snapshot.other_keys(after, ROWS).await?;
        let Some(last) = keys.last() else { return Ok(()) };
        after = Some(last.key.scope);
        for change in keys {
            let (scope, fingerprint) = (change.key.scope, change.key.fingerprint);
            writer.record(&Record::Key { scope, fingerprint, task: change.task, at: change.at })?;
        }
    }
}
