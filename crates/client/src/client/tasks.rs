//! Reads and changes tasks.

use std::borrow::Cow;

use windlass_api::{
    List, Member, PauseTask, RerunTask, ResolveStep, SendSignal, StepStatus, Task, TaskCounts, TaskStatus,
    Why,
};

use super::Client;
use crate::Error;

/// A filter for tasks. The default matches all of them, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskFilter {
    /// Only tasks with one of these statuses; empty = all.
    pub status: Vec<TaskStatus>,
    /// Only tasks of this flow.
    pub flow: Option<String>,
    /// Only tasks with all these labels.
    pub labels: Vec<(String, String)>,
    /// Only the task submitted with this idempotency key; without `flow` one task for each flow that it was
    /// used with.
    pub idempotency_key: Option<String>,
    /// Only tasks with this unique key.
    pub unique_key: Option<String>,
    /// Only tasks with all these parameters. Each has a path (`name`, `outer.inner` or a JSON pointer) and a
    /// value, which is parsed as JSON if possible and otherwise a string.
    pub params: Vec<(String, String)>,
    /// Only tasks accepted at or after this time: RFC 3339, or a time ago (`15m`).
    pub since: Option<String>,
    /// Only tasks accepted before this time: RFC 3339, or a time ago (`15m`).
    pub until: Option<String>,
    /// Continues after an earlier page: its `next`.
    pub cursor: Option<String>,
    /// The most tasks of a page, up to 1,000; none = 100.
    pub limit: Option<u32>,
    /// Leaves out the parameters: each task has `{}`. A page may then contain more tasks with large
    /// parameters.
    pub brief: bool,
}

impl TaskFilter {
    fn query(&self) -> Vec<(&'static str, Cow<'_, str>)> {
        let mut query = Vec::new();
        let mut put = |name, value: Option<Cow<'_, str>>| {
            if let Some(value) = value {
                query.push((name, Cow::Owned(value.into_owned())));
            }
        };
        let statuses: Vec<&str> = self.status.iter().map(|status| status.as_str()).collect();
        put("status", (!statuses.is_empty()).then(|| statuses.join(",").into()));
        put("flow", self.flow.as_deref().map(Cow::Borrowed));
        for (name, value) in &self.labels {
            put("label", Some(format!("{name}:{value}").into()));
        }
        put("idempotency_key", self.idempotency_key.as_deref().map(Cow::Borrowed));
        put("unique_key", self.unique_key.as_deref().map(Cow::Borrowed));
        for (path, value) in &self.params {
            put("param", Some(format!("{path}:{value}").into()));
        }
        put("since", self.since.as_deref().map(Cow::Borrowed));
        put("until", self.until.as_deref().map(Cow::Borrowed));
        put("cursor", self.cursor.as_deref().map(Cow::Borrowed));
        put("limit", self.limit.map(|limit| limit.to_string().into()));
        put("brief", self.brief.then(|| "true".into()));
        query
    }
}

impl Client {
    /// One task with its steps.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if no task has this id.
    pub async fn task(&self, id: &str) -> Result<Task, Error> {
        self.get(&["v1", "tasks", id]).await
    }

    /// A page of tasks, without their steps.
    ///
    /// # Errors
    /// [`Error::Refused`] if the filter is malformed.
    pub async fn tasks(&self, filter: &TaskFilter) -> Result<List<Task>, Error> {
        self.get_with(&["v1", "tasks"], &filter.query()).await
    }

    /// The number of tasks that match the filter, without regard to its limit. The server counts page by
    /// page; this method adds the results.
    ///
    /// # Errors
    /// [`Error::Refused`] if the filter is malformed.
    pub async fn count_tasks(&self, filter: &TaskFilter) -> Result<TaskCounts, Error> {
        let mut filter = TaskFilter { limit: None, brief: false, ..filter.clone() };
        let mut sum = TaskCounts::default();
        loop {
            let piece: TaskCounts = self.get_with(&["v1", "tasks", "counts"], &filter.query()).await?;
            sum.total += piece.total;
            for (status, count) in piece.by_status {
                *sum.by_status.entry(status).or_default() += count;
            }
            if piece.next.is_none() || piece.next == filter.cursor {
                return Ok(sum);
            }
            filter.cursor = piece.next;
        }
    }

    /// The items of a step with `each`, in the order of the list; only those with `status`, if given.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if the task or the step does not exist, or the step has no `each`.
    pub async fn members(
        &self,
        id: &str,
        step: &str,
        status: Option<StepStatus>,
    ) -> Result<List<Member>, Error> {
        let filter: Vec<_> = status.map(|status| ("status", status.as_str().into())).into_iter().collect();
        self.all_pages(&["v1", "tasks", id, "steps", step, "members"], &filter).await
    }

    /// The reason why a task is in its current state.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if no task has this id.
    pub async fn why(&self, id: &str) -> Result<Why, Error> {
        self.get(&["v1", "tasks", id, "why"]).await
    }

    /// Cancels the task: rolls back all steps that may have had effects.
    ///
    /// # Errors
    /// [`Error::Refused`] if no task has this id (404), or it has ended (409).
    pub async fn cancel(&self, id: &str) -> Result<Task, Error> {
        self.verb(&["v1", "tasks", id, "cancel"]).await
    }

    /// Pauses the task: no step starts, running ones finish.
    ///
    /// # Errors
    /// [`Error::Refused`] if no task has this id (404), or it has ended (409).
    pub async fn pause(&self, id: &str) -> Result<Task, Error> {
        self.verb(&["v1", "tasks", id, "pause"]).await
    }

    /// Pauses the task and has workers stop the attempts that they have. These are made again after the resume, and
    /// count neither as failures nor as lost workers.
    ///
    /// # Errors
    /// [`Error::Refused`] if no task has this id (404), or it has ended (409).
    pub async fn pause_and_stop(&self, id: &str) -> Result<Task, Error> {
        self.post(&["v1", "tasks", id, "pause"], &PauseTask { stop: true }).await
    }

    /// Resumes a paused task.
    ///
    /// # Errors
    /// [`Error::Refused`] if no task has this id (404), or it has ended or workers are still stopping attempts (409).
    pub async fn resume(&self, id: &str) -> Result<Task, Error> {
        self.verb(&["v1", "tasks", id, "resume"]).await
    }

    /// Runs an ended task again, as a new task. It keeps the results of the steps that do not come after
    /// `from`.
    ///
    /// # Errors
    /// [`Error::Refused`] if the task or step does not exist (404), or the task has not ended, or a step to
    /// keep was rolled back (409).
    pub async fn rerun(&self, id: &str, rerun: &RerunTask) -> Result<Task, Error> {
        self.post(&["v1", "tasks", id, "rerun"], rerun).await
    }

    /// Decides how a stuck or held step continues.
    ///
    /// # Errors
    /// [`Error::Refused`] if the task or step does not exist (404), or the step does not wait for an operator
    /// (409).
    pub async fn resolve(&self, id: &str, step: &str, resolve: &ResolveStep) -> Result<Task, Error> {
        self.post(&["v1", "tasks", id, "steps", step, "resolve"], resolve).await
    }

    /// Sends a signal: the first step that waits for it succeeds. If none waits yet, the signal is stored for
    /// it, unless `keep` is false.
    ///
    /// # Errors
    /// [`Error::Refused`] if the task does not exist, or none of its steps ever waits for the signal (404);
    /// if the task has ended, or none waits now and `keep` is false (409).
    pub async fn signal(&self, id: &str, name: &str, signal: &SendSignal) -> Result<Task, Error> {
        self.post(&["v1", "tasks", id, "signals", name], signal).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_asks_for_what_it_names_and_nothing_else() {
        assert!(TaskFilter::default().query().is_empty());
        let filter = TaskFilter {
            status: vec![TaskStatus::RollingBack, TaskStatus::Failed],
            labels: vec![("team".to_owned(), "a".to_owned()), ("zone".to_owned(), "b:c".to_owned())],
            idempotency_key: Some("k".to_owned()),
            unique_key: Some("u".to_owned()),
            params: vec![("a.b".to_owned(), "1".to_owned())],
            limit: Some(5),
            brief: true,
            ..TaskFilter::default()
        };
        let query = filter.query();
        let pairs: Vec<_> = query.iter().map(|(name, value)| (*name, value.as_ref())).collect();
        assert_eq!(
            pairs,
            [
                ("status", "rolling_back,failed"),
                ("label", "team:a"),
                ("label", "zone:b:c"),
                ("idempotency_key", "k"),
                ("unique_key", "u"),
                ("param", "a.b:1"),
                ("limit", "5"),
                ("brief", "true")
            ]
        );
    }
}
