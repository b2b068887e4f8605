//! How many attempts stand before one, in memory and at rest.

use windlass_core::{ActKey, Ready, TaskId, Wakeup, waiting};

use super::{LinePlace, Resident};
use crate::port::StoreError;

impl Resident {
    /// How many attempts of its module stand before this one, if it is in line.
    pub(super) async fn place_in_line(&self, task: TaskId, key: ActKey) -> Result<Option<u64>, StoreError> {
        let _reading = self.begin_read();
        let in_memory = {
            let inner = self.inner();
            let scheduler = &inner.scheduler;
            scheduler.active.contains_key(&task).then(|| {
                let ready = scheduler.published_ready(task, key)?;
                scheduler.queues.contains(task, key, ready).then(|| ready.clone())
            })
        };
        let ready = match in_memory {
            Some(ready) => ready,
            None => self.resting_ready(task, key).await?,
        };
        let Some(ready) = ready else { return Ok(None) };
        {
            let inner = self.inner();
            let queues = &inner.scheduler.queues;
            if let Some(own) = queues.same_key_before(task, key, &ready) {
                return Ok(Some(queues.place(&ready, own)));
            }
        }
        let place = LinePlace { rank: ready.rank, task };
        let (mut before, lines) = {
            let inner = self.inner();
            let scheduler = &inner.scheduler;
            // What came back and rests on disk as well is counted there, where it is behind what is in memory of its line.
            let is_counted_on_disk = |id: &TaskId| {
                let entry = scheduler.active.get(id);
                entry.is_some_and(|entry| {
                    let mut ready = entry.published().iter().filter_map(|waiting| waiting.ready.as_ref());
                    entry.rests_on_disk && ready.any(|ready| scheduler.queues.is_behind(*id, ready))
                })
            };
            let before = scheduler.queues.before(task, key, &ready).filter(|id| !is_counted_on_disk(id));
            (before.count() as u64, scheduler.queues.resting(&ready.module))
        };
        for (line, reach) in lines {
            before += self.sink.line_count(&line, reach, place).await?;
        }
        Ok(Some(self.inner().scheduler.queues.place(&ready, before)))
    }

    /// What is ready of an act of a task that rests.
    async fn resting_ready(&self, task: TaskId, key: ActKey) -> Result<Option<Ready>, StoreError> {
        let generation = self.current_generation().await?;
        let Some(row) = self.sink.load(&[task]).await?.pop().flatten() else { return Ok(None) };
        let Some(loaded) = self.loaded_row(row, generation)? else { return Ok(None) };
        Ok(waiting(&loaded.task, Wakeup::Act(key)).and_then(|waiting| waiting.ready))
    }
}
