//! The documents of the job API (`/api/asyncwork`) and of its events. Their field names are those that its clients and
//! workers already use.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// A job to start.
#[derive(Debug, Deserialize, ToSchema)]
pub struct CreateJob {
    /// Its name, 1 to 1,024 bytes. It selects the flow, where the server's configuration has one for this name.
    #[serde(alias = "jobName")]
    pub name: String,
    /// Any JSON value, which the worker gets; null if it is missing.
    #[serde(default = "null", alias = "jobValue")]
    #[schema(value_type = Object)]
    pub value: Box<RawValue>,
}

fn null() -> Box<RawValue> {
    RawValue::NULL.to_owned()
}

/// A job that was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobAccepted {
    /// Its id, a UUID: the id of its task.
    pub job_id: String,
    /// The path of its state.
    pub state_endpoint: String,
    /// After how many milliseconds to ask for the state.
    pub retry_after: u32,
}

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum JobState {
    /// No worker has started it.
    New,
    /// A worker has started it, or it rolls back.
    Running,
    /// It is paused.
    Pause,
    /// It succeeded.
    Finish,
    /// It was cancelled.
    Cancel,
    /// It failed, or it waits for an operator.
    Failure,
}

/// The state of a job, and where its result is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobStateAnswer {
    /// Its id.
    pub job_id: String,
    /// Its state.
    pub state: JobState,
    /// In the state FINISH: the path of its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_endpoint: Option<String>,
}

/// A job. Times are in UTC, as `yyyy-MM-dd HH:mm:ss.SSS`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its value, as the client sent it.
    #[schema(value_type = Object)]
    pub value: Box<RawValue>,
    /// Its state.
    pub state: JobState,
    /// Milliseconds from its start to its end, or until now; 0 before its start.
    pub execution_time: u64,
    /// When it was accepted.
    pub created_time: String,
    /// When it last changed.
    pub updated_time: String,
}

/// The result of a job.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobResult {
    /// Its id.
    pub job_id: String,
    /// The parameter `result` of its task, if a worker returned one; otherwise an object with all that workers returned.
    #[schema(value_type = Object)]
    pub result: Box<RawValue>,
    /// When it ended, in UTC, as `yyyy-MM-dd HH:mm:ss.SSS`.
    pub finished_time: String,
}

/// The event that a worker gets from the queue of its module: a message on a broker with `message = "job"`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobEvent {
    /// The id of the job.
    pub job_id: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its value. It is missing where the message would be too large: read the job then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub value: Option<Box<RawValue>>,
    /// Whether the job is to be rolled back. It is missing where it is to be run.
    #[serde(default, skip_serializing_if = "is_false")]
    pub rollback: bool,
    /// The token of the attempt, where the queue has no headers. Otherwise it is in the header `windlass-token`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The idempotency key of the execution, where the queue has no headers. Otherwise it is in the header
    /// `windlass-idempotency-key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_a_job_are_read_and_its_value_keeps_its_digits() {
        for text in [
            r#"{"name":"a","value":{"n":12345678901234567890123}}"#,
            r#"{"jobName":"a","jobValue":{"n":12345678901234567890123},"more":1}"#,
        ] {
            let job: CreateJob = serde_json::from_str(text).unwrap();
            assert_eq!((job.name.as_str(), job.value.get()), ("a", r#"{"n":12345678901234567890123}"#));
        }
        let job: CreateJob = serde_json::from_str(r#"{"name":"a"}"#).unwrap();
        assert_eq!(job.value.get(), "null");
        assert!(serde_json::from_str::<CreateJob>(r#"{"name":"a","jobName":"b"}"#).is_err());
    }

    #[test]
    fn states_have_the_names_that_clients_know() {
        let states = [
            JobState::New,
            JobState::Running,
            JobState::Pause,
            JobState::Finish,
            JobState::Cancel,
            JobState::Failure,
        ];
        let text = serde_json::to_string(&states).unwrap();
        assert_eq!(text, r#"["NEW","RUNNING","PAUSE","FINISH","CANCEL","FAILURE"]"#);
    }
}
