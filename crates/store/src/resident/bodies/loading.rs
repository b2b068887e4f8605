//! Loading tasks whose bodies may be on disk only.

use std::sync::Arc;

use windlass_core::{
    TaskId,
    planted::{Bug, is_planted},
};

use crate::{
    port::{DamagedTask, Loaded, Portions, StoreError},
    resident::{ReadTask, Resident, state::Inner},
};

/// How often tasks are read again because a write has failed while they were read.
const READS_MAX: usize = 8;

impl Resident {
    /// The tasks with these ids, in their order: from memory, from the disk, or from both where only the body is there.
    /// With `few` they may be only the first ones, as many as memory is to hold at once.
    pub(in crate::resident) async fn load_tasks(
        &self,
        ids: &[TaskId],
        few: bool,
    ) -> Result<Vec<Option<Loaded>>, StoreError> {
        for _ in 0..READS_MAX {
            let generation = self.current_generation().await?;
            let loaded = self.loaded(ids);
            if loaded.iter().all(Option::is_some) {
                return Ok(loaded);
            }
            // What changes from here on, or comes back to memory, is there whole when the disk was read.
            let _reading = self.begin_read();
            let loaded = self.read_missing(ids, few, generation).await?;
            // After a failed write other tasks are in memory: what was found missing may have been among them.
            if self.inner().is_still(generation) {
                return Ok(loaded);
            }
        }
        Err(StoreError::Unavailable("one write after the other fails".to_owned()))
    }

    /// The tasks with these ids for those who look at neither parameters nor results: what is in memory is not read.
    pub(in crate::resident) async fn heads(&self, ids: &[TaskId]) -> Result<Vec<Option<Loaded>>, StoreError> {
        self.current_generation().await?;
        let mut heads: Vec<Option<Loaded>> = {
            let inner = self.inner();
            ids.iter().map(|id| inner.scheduler.without_body(*id)).collect()
        };
        let absent: Vec<usize> = (0..ids.len()).filter(|index| heads[*index].is_none()).collect();
        let mut absent = &absent[..];
        while !absent.is_empty() {
            let wanted: Vec<TaskId> = absent.iter().map(|index| ids[*index]).collect();
            let loaded = self.load_tasks(&wanted, true).await?;
            let (some, rest) = absent.split_at(loaded.len());
            for (index, loaded) in some.iter().zip(loaded) {
                heads[*index] = loaded.map(Loaded::bare);
            }
            absent = rest;
        }
        Ok(heads)
    }

    async fn read_missing(
        &self,
        ids: &[TaskId],
        few: bool,
        generation: u64,
    ) -> Result<Vec<Option<Loaded>>, StoreError> {
        let mut loaded = self.loaded(ids);
        let missing: Vec<usize> = (0..ids.len()).filter(|index| loaded[*index].is_none()).collect();
        let (mut missing, mut portions) = (&missing[..], Portions::default());
        while !missing.is_empty() {
            let Some(count) = (if few { portions.next() } else { Some(usize::MAX) }) else {
                loaded.truncate(missing[0]);
                break;
            };
            let (indexes, rest) = missing.split_at(count.min(missing.len()));
            missing = rest;
            let mut bytes = 0;
            let (away, absent): (Vec<usize>, Vec<usize>) = {
                let inner = self.inner();
                indexes.iter().partition(|index| inner.scheduler.is_body_away(ids[**index]))
            };
            for (indexes, are_active) in [(away, true), (absent, false)] {
                if indexes.is_empty() {
                    continue;
                }
                let wanted: Vec<TaskId> = indexes.iter().map(|index| ids[*index]).collect();
                let rows = match are_active {
                    true => self.sink.load_active(&wanted).await?,
                    false => self.sink.load(&wanted).await?,
                };
                for (index, row) in indexes.into_iter().zip(rows) {
                    loaded[index] = self.of_row(ids[index], row, are_active, generation)?;
                    bytes += loaded[index].as_ref().map_or(0, |loaded| loaded.task.payload_bytes());
                }
            }
            portions.add(indexes.len(), bytes);
        }
        Ok(loaded)
    }

    /// A task of which a row was read, `was_active` when the read began: as it is in memory if it is whole there, else as
    /// the row has it. One whose row is damaged, gone or of another version leaves memory, as a start would leave it out.
    fn of_row(
        &self,
        id: TaskId,
        row: Option<ReadTask>,
        was_active: bool,
        generation: u64,
    ) -> Result<Option<Loaded>, StoreError> {
        let in_memory = {
            let inner = self.inner();
            match inner.scheduler.loaded(id) {
                Some(loaded) => return Ok(Some(loaded)),
                None => inner.scheduler.without_body(id),
            }
        };
        // Another read found its row damaged. This one may be from before the damage: the task stays in quarantine.
        if was_active && in_memory.is_none() && self.quarantine.contains(id) {
            return Ok(None);
        }
        let read = match row {
            Some(row) => self.loaded_row(row, generation)?,
            None => None,
        };
        let Some(in_memory) = in_memory else { return Ok(read) };
        let expected = in_memory.task.state.events;
        let found = read.as_ref().map(|read| read.task.state.events);
        match read {
            Some(read) if found == Some(expected) => {
                return Ok(Some(Loaded { task: read.task, ..in_memory }));
            }
            Some(read) if is_planted(Bug::BodyDroppedEarly) => {
                let mut task = Arc::unwrap_or_clone(read.task);
                task.state.events = expected;
                return Ok(Some(Loaded { task: Arc::new(task), ..in_memory }));
            }
            _ => {}
        }
        let mut inner = self.inner();
        // After a failed write it is loaded again.
        if inner.is_still(generation) {
            let found = found.map_or("no such task".to_owned(), |found| format!("it as of event {found}"));
            let reason = format!("task {id}: the disk has {found}, and event {expected} was written");
            // What is known of it already, such as a wrong checksum, stays.
            self.quarantine.add(DamagedTask { id, row: Box::default(), reason: reason.into() });
            inner.drop_damaged(id);
        }
        Ok(None)
    }
}

impl Inner {
    /// A task that cannot be read any more leaves memory. Those who have attempts of it lose them, and the places in limits
    /// that these take up. Its attempts may have begun, so their starts stay counted.
    fn drop_damaged(&mut self, id: TaskId) {
        for key in self.scheduler.claims.acts_of(id) {
            self.end_hold(id, key);
        }
        self.scheduler.forget(id);
    }
}
