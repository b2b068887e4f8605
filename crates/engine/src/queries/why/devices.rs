//! The device that an execution waits for.

use windlass_core::{ActKey, Name, Task, device_of_lock};

use crate::{
    EngineError,
    deciding::device_log::device_of,
    queries::why::{AwaitedDevice, Why, acts::Look},
};

impl Look<'_> {
    /// The device that an execution waits for: another task has it, or it is offline.
    pub(super) async fn awaited_device(
        &self,
        key: ActKey,
        why: &Why,
    ) -> Result<Option<AwaitedDevice>, EngineError> {
        let name = match why {
            Why::Lock { name, .. } => device_of_lock(name),
            Why::Offered { .. } => job_device(&self.loaded.task, key),
            _ => None,
        };
        let Some(name) = name else { return Ok(None) };
        let (online, since) = match self.engine.device(&name).await {
            Ok(report) => (Some(report.is_online()), report.presence.map(|presence| presence.since)),
            Err(EngineError::UnknownDevice(_)) => (None, None),
            Err(error) => return Err(error),
        };
        Ok(Some(AwaitedDevice { name, online, since }))
    }
}

/// The device of an execution that is a job of a device.
pub(super) fn job_device(task: &Task, key: ActKey) -> Option<Name> {
    task.action(key)?.device_job()?;
    device_of(task, key)
}
