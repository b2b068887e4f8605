//! The classic document of a task that consists of jobs of devices: the queue of these jobs.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use windlass_core::{ActKey, Task, device_of_lock};

use crate::http::tasks::view::payload;

/// The jobs of a task, as the classic system stored them.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClassicQueue {
    /// `completed` once the task has ended, however it ended; `running` while it has the device of a job; else `pending`.
    status: &'static str,
    /// Index of the furthest job reached.
    job_pointer: usize,
    /// The jobs.
    jobs: Vec<ClassicJob>,
}

/// A job, as the classic system stored it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ClassicJob {
    /// Name of the step.
    name: String,
    /// The device; null while it cannot be computed.
    connection_name: Option<String>,
    /// The topic; null while it cannot be computed.
    api_topic: Option<String>,
    /// The arguments; null while they cannot be computed.
    #[schema(value_type = Option<Object>)]
    args: Option<Box<RawValue>>,
}

impl ClassicQueue {
    /// The classic queue of a task, if each of its steps is a job of a device.
    pub(crate) async fn of(task: &Arc<Task>) -> Option<Self> {
        let steps = &task.flow.steps;
        if steps.is_empty() || steps.iter().any(|step| step.run.device_job().is_none()) {
            return None;
        }
        // Its expressions may take long, and everything else in this process shares a thread.
        let task = task.clone();
        tokio::task::spawn_blocking(move || Self::new(&task)).await.ok()
    }

    fn new(task: &Task) -> Self {
        let has_device = task.open_acts().any(|(_, act)| {
            act.locks().iter().any(|lock| lock.is_held() && device_of_lock(&lock.name).is_some())
        });
        let status = match (task.is_ended(), has_device) {
            (true, _) => "completed",
            (false, true) => "running",
            (false, false) => "pending",
        };
        let jobs = (0..task.flow.steps.len()).map(|index| job(task, index)).collect();
        Self { status, job_pointer: task.cursor(), jobs }
    }
}

fn job(task: &Task, index: usize) -> ClassicJob {
    let key = ActKey::forward(index);
    let message = task.job_message(key).and_then(Result::ok);
    ClassicJob {
        name: task.flow.steps[index].name.to_string(),
        connection_name: task.job_device(key).map(|device| device.to_string()),
        api_topic: message.as_ref().map(|message| message.topic.to_string()),
        args: message.map(|message| payload(&message.args)),
    }
}
