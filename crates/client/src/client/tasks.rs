//! Looking at tasks and steering them.

use std::borrow::Cow;

use windlass_api::{
    List, Member, RerunTask, ResolveStep, SendSignal, StepStatus, Task, TaskCounts, TaskStatus, Why,
};

use super::Client;
use crate::Error;

/// Which tasks to list; the default is all of them, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskFilter {
    /// Only those in this status.
    pub status: Option<TaskStatus>,
    /// Only those of this flow.
    pub flow: Option<String>,
    /// Only those with all these labels.
    pub labels: Vec<(String, String)>,
    /// Only the task submitted under this idempotency key; without `flow` one for each flow that it was used with.
    pub idempotency_key: Option<String>,
    /// Only those with this value of their flow's unique key.
    pub unique_key: Option<String>,
    /// Only those with all these parameters: a path (`name`, `outer.inner` or a JSON pointer) and JSON, or else a string.
    pub params: Vec<(String, String)>,
    /// Only those accepted at or after this time: RFC 3339, or how long ago (`15m`).
    pub since: Option<String>,
    /// Only those accepted before this time: RFC 3339, or how long ago (`15m`).
    pub until: Option<String>,
    /// Where the page before ended: its `next`.
    pub cursor: Option<String>,
    /// At most this many, up to 1,000; 100 when left out.
    pub limit: Option<u32>,
    /// Without parameters: they are `{}` in each task. A page may then have more tasks with large parameters.
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
        put("status", self.status.map(|status| status.as_str().into()));
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
    /// [`Error::Refused`] with status 404 if there is none of this id.
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

    /// How many tasks meet the filter, whose limit does not count. The server counts in pieces, which are added up here.
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

    /// The members of a step with `each`, in the order of the list; only those in that status, if one is given.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if there is no such task or step, or the step has no members.
    pub async fn members(
        &self,
        id: &str,
        step: &str,
        status: Option<StepStatus>,
    ) -> Result<List<Member>, Error> {
        let filter: Vec<_> = status.map(|status| ("status", status.as_str().into())).into_iter().collect();
        self.all_pages(&["v1", "tasks", id, "steps", step, "members"], &filter).await
    }

    /// Why the task is where it is.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if there is none of this id.
    pub async fn why(&self, id: &str) -> Result<Why, Error> {
        self.get(&["v1", "tasks", id, "why"]).await
    }

    /// Stops the task and undoes what was touched.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is none of this id (404), or it has ended (409).
    pub async fn cancel(&self, id: &str) -> Result<Task, Error> {
        self.verb(&["v1", "tasks", id, "cancel"]).await
    }

    /// Starts nothing new of the task; what runs may end.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is none of this id (404), or it has ended (409).
    pub async fn pause(&self, id: &str) -> Result<Task, Error> {
        self.verb(&["v1", "tasks", id, "pause"]).await
    }

    /// Lets a paused task go on.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is none of this id (404), or it is not paused (409).
    pub async fn resume(&self, id: &str) -> Result<Task, Error> {
        self.verb(&["v1", "tasks", id, "resume"]).await
    }

    /// Runs a task that has ended again: a new task, which takes over what is done of the steps that do not come after
    /// `from`.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is no such task or step (404), or the task has not ended, or a step to be taken
    /// over was rolled back (409).
    pub async fn rerun(&self, id: &str, rerun: &RerunTask) -> Result<Task, Error> {
        self.post(&["v1", "tasks", id, "rerun"], rerun).await
    }

    /// Settles a stuck or held step.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is no such task or step (404), or the step waits for nobody (409).
    pub async fn resolve(&self, id: &str, step: &str, resolve: &ResolveStep) -> Result<Task, Error> {
        self.post(&["v1", "tasks", id, "steps", step, "resolve"], resolve).await
    }

    /// Sends a signal: the first step that waits for it is done. Without `keep: false` it is kept where its step does
    /// not wait yet.
    ///
    /// # Errors
    /// [`Error::Refused`] if there is no such task, or no step of it ever waits for the signal (404); if the task has
    /// ended, or none waits now and the signal is not to be kept (409).
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
            status: Some(TaskStatus::RollingBack),
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
                ("status", "rolling_back"),
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
