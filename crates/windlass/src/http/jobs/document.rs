//! From tasks to the documents of the job API.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::value::RawValue;
use windlass_api as api;
use windlass_core::{ActKey, Json, Task, TaskStatus, Timestamp, task_status};
use windlass_store::Loaded;

use crate::http::{
    submit::LABEL_BYTES_MAX,
    tasks::view::{self, started_at},
};

/// The label of tasks that started as jobs. Its value is the beginning of the job's name.
pub(super) const JOB_LABEL: &str = "job";

/// The longest name of a job, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 1_024;

/// The name and value of a job, as its task has them in its parameters.
#[derive(Deserialize)]
pub(crate) struct JobParams<'a> {
    #[serde(borrow, default)]
    pub(crate) name: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) value: Option<&'a RawValue>,
}

impl<'a> JobParams<'a> {
    /// Those in the parameters of a task. A task that did not start as a job may have none.
    pub(crate) fn of(params: &'a Json) -> Self {
        serde_json::from_str(params.as_str()).unwrap_or(Self { name: None, value: None })
    }

    /// The name, or nothing where it is not a string.
    pub(crate) fn name(&self) -> Option<String> {
        serde_json::from_str(self.name?.get()).ok()
    }
}

/// The parameters of the task of a job, as JSON.
pub(super) fn params(job: &api::CreateJob) -> String {
    format!(r#"{{"name":{},"value":{}}}"#, Json::quote(&job.name), job.value.get())
}

/// The beginning of a name, as long as a label may be.
pub(super) fn label(name: &str) -> String {
    name[..name.floor_char_boundary(LABEL_BYTES_MAX)].to_owned()
}

/// The job of a task.
pub(super) fn job(loaded: &Loaded, now: Timestamp) -> api::Job {
    let task = &loaded.task;
    let params = JobParams::of(&task.input.params);
    let started_at = started_at(loaded);
    let until = task.state.ended_at.unwrap_or(now);
    api::Job {
        id: task.id.to_string(),
        name: params.name().unwrap_or_default(),
        value: params.value.unwrap_or(RawValue::NULL).to_owned(),
        state: state(loaded),
        execution_time: started_at.map_or(0, |at| u64::try_from(until.0 - at.0).unwrap_or(0)),
        created_time: time(task.input.created_at),
        updated_time: time(updated_at(loaded)),
    }
}

/// The state of the job, and the path of its result.
pub(super) fn state_answer(loaded: &Loaded) -> api::JobStateAnswer {
    let job_id = loaded.task.id.to_string();
    let state = state(loaded);
    let result_endpoint =
        (state == api::JobState::Finish).then(|| format!("/api/asyncwork/result?jobId={job_id}"));
    api::JobStateAnswer { job_id, state, result_endpoint }
}

/// The name of its state.
pub(super) fn state_name(loaded: &Loaded) -> String {
    serde_json::to_value(state(loaded))
        .ok()
        .and_then(|name| Some(name.as_str()?.to_owned()))
        .unwrap_or_default()
}

/// The result of a job that has succeeded.
pub(super) fn result(loaded: &Loaded) -> Option<api::JobResult> {
    let task = &loaded.task;
    let finished_at = task.state.ended_at.filter(|_| state(loaded) == api::JobState::Finish)?;
    Some(api::JobResult {
        job_id: task.id.to_string(),
        result: returned(task),
        finished_time: time(finished_at),
    })
}

/// What workers returned: the parameter `result` if one of them returned it, and otherwise everything but the job itself.
fn returned(task: &Task) -> Box<RawValue> {
    let outcome = task.outcome();
    let mut all: BTreeMap<String, Box<RawValue>> = serde_json::from_str(outcome.as_str()).unwrap_or_default();
    if let Some(result) = all.remove("result") {
        return result;
    }
    let job = task.input.params.as_str();
    let job: BTreeMap<String, Box<RawValue>> = serde_json::from_str(job).unwrap_or_default();
    all.retain(|name, value| job.get(name).is_none_or(|sent| sent.get() != value.get()));
    serde_json::value::to_raw_value(&all).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

fn state(loaded: &Loaded) -> api::JobState {
    use api::JobState::{Cancel, Failure, Finish, New, Pause, Running};
    // A job whose event waits on the broker was started by nobody.
    let begun: BTreeSet<ActKey> = loaded.begun().map(|claim| claim.key).collect();
    match task_status(&loaded.task, &begun) {
        TaskStatus::Scheduled | TaskStatus::Pending => New,
        TaskStatus::Running | TaskStatus::RollingBack => Running,
        TaskStatus::Pausing | TaskStatus::Paused => Pause,
        TaskStatus::Succeeded => Finish,
        TaskStatus::Cancelled => Cancel,
        TaskStatus::RolledBack | TaskStatus::Failed | TaskStatus::Stuck => Failure,
    }
}

/// When it was accepted, started or ended, or an attempt of it was, whichever is the latest.
fn updated_at(loaded: &Loaded) -> Timestamp {
    let task = &loaded.task;
    let acts = task.acts().flat_map(|(_, act)| [act.started_at, act.ended_at]);
    let others = [task.state.ended_at, started_at(loaded)];
    acts.chain(others).flatten().fold(task.input.created_at, Timestamp::max)
}

/// A point in time as the documents have it, in UTC.
fn time(at: Timestamp) -> String {
    view::time(at).strftime("%Y-%m-%d %H:%M:%S%.3f").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_milliseconds_and_no_zone() {
        assert_eq!(time(Timestamp(1_700_000_000_007)), "2023-11-14 22:13:20.007");
        assert_eq!(time(Timestamp(1_700_000_000_000)), "2023-11-14 22:13:20.000");
    }

    #[test]
    fn a_label_is_the_beginning_of_the_name() {
        assert_eq!(label("cancel order"), "cancel order");
        let long = "ä".repeat(100);
        assert_eq!(label(&long), "ä".repeat(64));
        assert_eq!(label(&format!("x{long}")).len(), 127);
    }

    #[test]
    fn a_job_is_read_from_its_parameters() {
        let job = api::CreateJob {
            name: "a \"b\"".to_owned(),
            value: RawValue::from_string("[1.10]".to_owned()).unwrap(),
        };
        let params = Json::parse(&params(&job)).unwrap();
        let read = JobParams::of(&params);
        assert_eq!((read.name().unwrap().as_str(), read.value.unwrap().get()), ("a \"b\"", "[1.10]"));
        let other = Json::parse(r#"{"name":7}"#).unwrap();
        assert!(JobParams::of(&other).name().is_none());
    }
}
