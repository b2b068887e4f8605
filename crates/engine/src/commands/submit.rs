//! Submits: new tasks are accepted.

use std::{collections::HashMap, sync::Arc};

use windlass_core::{EvaluationBudget, Flow, Input, Json, LockName, LockRef, Name, OnConflict, Task, TaskId};
use windlass_store::{Change, KeyChange, Leadership, Loaded, Now, StoreError, SubmitKey};

use crate::{
    Engine, EngineError,
    deciding::inbox::{Item, NewTask, Reply},
    queries::named,
};

/// A flow of the catalogue; `None` if it does not exist, an error if its row is damaged.
type FoundFlow = Result<Option<Arc<Flow>>, StoreError>;

/// A task to accept.
#[derive(Debug, Clone)]
pub struct Submission {
    /// Name of the flow.
    pub flow: Name,
    /// Version of the flow; `None` = the newest.
    pub version: Option<u32>,
    /// Parameters, labels and options of the task.
    pub input: Input,
    /// Idempotency key.
    pub key: Option<SubmitKey>,
    /// With an idempotency key: the fingerprint that earlier versions computed for the same content. It counts as the
    /// same.
    pub fingerprint_before: Option<[u8; 32]>,
}

/// A task that was accepted now, or one that exists already.
#[derive(Debug, Clone)]
pub struct Accepted {
    /// The task.
    pub loaded: Loaded,
    /// Why an existing task is returned; `None` = the task is new.
    pub existing: Option<Existing>,
}

/// Why an existing task is returned and no new one was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// The same content was submitted before under the same idempotency key.
    IdempotencyKey,
    /// It has the same unique key.
    Unique,
}

impl Engine {
    /// Accepts a task. When this returns, it is on disk.
    ///
    /// # Errors
    /// When it is refused; nothing was accepted then.
    pub async fn submit(&self, submission: Submission, now: Now) -> Result<Accepted, EngineError> {
        let mut results = self.submit_all(vec![submission], now).await?;
        results.pop().unwrap_or(Err(EngineError::Conflict))
    }

    /// An id for a task that is accepted next or later, by [`Engine::submit_under`].
    #[must_use]
    pub fn next_task_id(&self, now: Now) -> TaskId {
        self.ids.next(now.wall)
    }

    /// Accepts a task under an id of [`Engine::next_task_id`]. Where the id was recorded before, the submission needs an
    /// idempotency key, by which the task is found when it was accepted before.
    ///
    /// # Errors
    /// When it is refused; nothing was accepted then.
    pub async fn submit_under(&self, id: TaskId, submission: Submission) -> Result<Accepted, EngineError> {
        let mut results = self.submit_as(None, vec![(id, submission)]).await?;
        results.pop().unwrap_or(Err(EngineError::Conflict))
    }

    /// Accepts many tasks, each separately.
    ///
    /// # Errors
    /// When none could be processed.
    pub async fn submit_all(
        &self,
        submissions: Vec<Submission>,
        now: Now,
    ) -> Result<Vec<Result<Accepted, EngineError>>, EngineError> {
        let with_id = |submission| (self.ids.next(now.wall), submission);
        self.submit_as(None, submissions.into_iter().map(with_id).collect()).await
    }

    /// Accepts many tasks under these ids, each separately. A task that was accepted before is found by its idempotency
    /// key. `led`: the caller is the leader of a service.
    pub(crate) async fn submit_as(
        &self,
        led: Option<Leadership>,
        submissions: Vec<(TaskId, Submission)>,
    ) -> Result<Vec<Result<Accepted, EngineError>>, EngineError> {
        if self.inbox.is_full() {
            return Err(EngineError::Overloaded);
        }
        let mut flows: HashMap<(Name, Option<u32>), FoundFlow> = HashMap::new();
        let mut tasks = Vec::with_capacity(submissions.len());
        let mut results = Vec::with_capacity(submissions.len());
        for (id, submission) in submissions {
            let Submission { flow, version, input, key, fingerprint_before } = submission;
            let wanted = (flow, version);
            if !flows.contains_key(&wanted) {
                let found = match self.store.flow(&wanted.0, wanted.1).await {
                    // Only the submissions that name this flow are refused.
                    Err(error @ StoreError::Damaged(_)) => Err(error),
                    found => Ok(found?.map(|stored| stored.flow)),
                };
                flows.insert(wanted.clone(), found);
            }
            let flow = flows.get(&wanted).cloned().unwrap_or(Ok(None)).map_err(EngineError::Store);
            let flow = flow
                .and_then(|flow| flow.ok_or_else(|| EngineError::UnknownFlow(named(&wanted.0, wanted.1))));
            results.push(flow.map(|flow| {
                let task = Task::new(id, flow, Arc::new(input));
                tasks.push(NewTask { key, fingerprint_before, ..NewTask::new(task) });
            }));
        }
        let mut accepted = self.accept(led, tasks).await?.into_iter();
        let mut next = || accepted.next().unwrap_or(Err(EngineError::Conflict));
        Ok(results.into_iter().map(|result| result.and_then(|()| next())).collect())
    }

    /// Accepts new tasks, each separately.
    pub(crate) async fn accept(
        &self,
        led: Option<Leadership>,
        tasks: Vec<NewTask>,
    ) -> Result<Vec<Result<Accepted, EngineError>>, EngineError> {
        if tasks.is_empty() {
            return Ok(Vec::new());
        }
        let asked: Vec<_> = tasks.iter().map(Asked::of).collect();
        let mut replies = self.inbox.decide_as(led, tasks.into_iter().map(Item::Submit).collect()).await?;
        let kept = self.keep_keys(led, &mut replies, &asked).await;
        let mut answers = Vec::with_capacity(replies.len());
        for ((reply, asked), kept) in replies.into_iter().zip(asked).zip(kept) {
            answers.push(match kept {
                Ok(()) => self.accepted(reply, &asked).await,
                Err(error) => Err(error),
            });
        }
        Ok(answers)
    }

    /// If a submit with an idempotency key is deduplicated to a task, that key is stored for that task before the reply
    /// is sent. If the reply is lost, the same submit then gets the same task again, whatever happened to the task
    /// meanwhile. The result says for each reply whether it may be sent: the other submits are accepted, whatever
    /// happens to these keys.
    async fn keep_keys(
        &self,
        led: Option<Leadership>,
        replies: &mut [Reply],
        asked: &[Asked],
    ) -> Vec<Result<(), EngineError>> {
        let mut kept = vec![Ok(()); replies.len()];
        let (mut repeats, mut items) = (Vec::new(), Vec::new());
        for (place, (reply, asked)) in replies.iter().zip(asked).enumerate() {
            if let (Reply::Repeats { task }, Some(key)) = (reply, &asked.key)
                && !asked.fails_on_conflict()
            {
                let at = asked.task.input.created_at;
                items.push(Item::Change(Change::Key(KeyChange { key: key.clone(), task: *task, at })));
                repeats.push(place);
            }
        }
        if items.is_empty() {
            return kept;
        }
        match self.inbox.decide_as(led, items).await {
            Ok(answers) => {
                for (place, answer) in repeats.into_iter().zip(answers) {
                    if !matches!(answer, Reply::Done) {
                        replies[place] = answer;
                    }
                }
            }
            Err(error) => repeats.into_iter().for_each(|place| kept[place] = Err(error.clone().into())),
        }
        kept
    }

    async fn accepted(&self, reply: Reply, asked: &Asked) -> Result<Accepted, EngineError> {
        match reply {
            Reply::Task(loaded) => Ok(Accepted { loaded, existing: None }),
            Reply::KeyTaken { task, fingerprint } if asked.is_same(&fingerprint) => {
                self.existing(task, Existing::IdempotencyKey, EngineError::KeyWithoutTask { task }).await
            }
            Reply::Repeats { task } if asked.fails_on_conflict() => {
                Err(EngineError::UniqueConflict { flow: asked.task.flow.name.clone(), task })
            }
            // If the task has ended and been deleted meanwhile, the same submit may be accepted on the next try.
            Reply::Repeats { task } => self.existing(task, Existing::Unique, EngineError::Conflict).await,
            Reply::KeyTaken { task, .. } => Err(EngineError::KeyReused { task }),
            Reply::NoUniqueKey { message } => {
                Err(EngineError::NoUniqueKey { flow: asked.task.flow.name.clone(), message })
            }
            Reply::NoQueueName { message } => {
                Err(EngineError::NoQueueName { flow: asked.task.flow.name.clone(), message })
            }
            Reply::Rejected(rejection) => Err(rejection.into()),
            _ => Err(EngineError::Conflict),
        }
    }

    async fn existing(
        &self,
        task: TaskId,
        why: Existing,
        missing: EngineError,
    ) -> Result<Accepted, EngineError> {
        match self.task(task).await {
            Ok(loaded) => Ok(Accepted { loaded, existing: Some(why) }),
            Err(EngineError::UnknownTask(_)) => Err(missing),
            Err(error) => Err(error),
        }
    }
}

/// The parts of a submit that determine its reply.
struct Asked {
    task: Arc<Task>,
    key: Option<SubmitKey>,
    fingerprint_before: Option<[u8; 32]>,
}

impl Asked {
    fn of(new: &NewTask) -> Self {
        let NewTask { task, key, fingerprint_before, .. } = new;
        Self { task: task.clone(), key: key.clone(), fingerprint_before: *fingerprint_before }
    }

    fn fails_on_conflict(&self) -> bool {
        self.task.flow.unique.as_ref().is_some_and(|unique| unique.on_conflict == OnConflict::Fail)
    }

    /// Whether the content accepted under the idempotency key, with this fingerprint, is the same.
    fn is_same(&self, fingerprint: &[u8; 32]) -> bool {
        let now = self.key.as_ref().map(|key| &key.fingerprint);
        now == Some(fingerprint) || self.fingerprint_before.as_ref() == Some(fingerprint)
    }
}

/// The unique key of a new task, if its flow has one, and the number of evaluation steps. Every start of a task comes
/// through here, and never on a thread that serves callers: the unique key is evaluated when the task is decided.
pub(crate) fn unique_key(flow: &Flow, input: &Input) -> (Result<Option<Box<str>>, String>, u64) {
    let Some(unique) = &flow.unique else { return (Ok(None), 0) };
    let budget = EvaluationBudget::default();
    let key = unique.key.text_within(&params(flow, input), &budget);
    (key.map(Some), budget.spent())
}

/// The exclusive queue of a new task, if its flow has one, and the number of evaluation steps.
pub(crate) fn exclusive_queue(flow: &Flow, input: &Input) -> (Result<Option<LockName>, String>, u64) {
    let expression = match &flow.exclusive {
        None => return (Ok(None), 0),
        Some(LockRef::Name(name)) => return (Ok(Some(name.clone())), 0),
        Some(LockRef::Expression(expression)) => expression,
    };
    let budget = EvaluationBudget::default();
    let name = expression.text_within(&params(flow, input), &budget).and_then(|text| {
        Name::new(&text).map_err(|error| {
            format!("the expression `{}` does not give the name of a queue: {error}", expression.source())
        })
    });
    (name.map(Some), budget.spent())
}

/// The parameters of a new task: its own over those of its flow.
fn params(flow: &Flow, input: &Input) -> Json {
    let common = flow.params.as_deref().map(Json::from_stored);
    Json::merge(common.iter().chain([&input.params]))
}

#[cfg(test)]
mod tests {
    use futures_executor::block_on;
    use futures_util::future::join;
    use windlass_core::{Action, Millis, StepDefinition, Timestamp};

    use super::*;
    use crate::deciding::Committer;
    use windlass_store::memory::SharedStore;

    #[test]
    fn a_task_of_a_batch_does_not_take_the_place_of_another_one_with_its_id() {
        let engine = Arc::new(Engine::new(Arc::new(SharedStore::new([7; 32])), 1));
        let committer = Committer::new(engine.clone());
        let now = Now { wall: Timestamp(1_000), mono: Millis(1_000) };
        let name = |text: &str| Name::new(text).unwrap();
        let step = StepDefinition::new(name("a"), Action::of_worker(name("m"), name("c")), vec![]);
        let applying = engine.apply_flow(Flow::new(name("f"), vec![step]), now);
        block_on(join(applying, committer.run_once(|| now))).0.unwrap();
        let submission = |params: &str| Submission {
            flow: name("f"),
            version: None,
            input: Input::new(Json::parse(params).unwrap(), now.wall),
            key: None,
            fingerprint_before: None,
        };
        let id = TaskId(7);
        let both = vec![(id, submission(r#"{"n":1}"#)), (id, submission(r#"{"n":2}"#))];
        let (results, _) = block_on(join(engine.submit_as(None, both), committer.run_once(|| now)));
        let results = results.unwrap();
        assert!(results[0].is_ok(), "{results:?}");
        assert!(matches!(results[1], Err(EngineError::Conflict)), "{results:?}");
        assert_eq!(block_on(engine.task(id)).unwrap().task.input.params.as_str(), r#"{"n":1}"#);
    }
}
