//! Tasks that run to their ends by the real rules, several at a time.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use windlass_core::{
    Action, Attempt, Command, Context, Effect, EventKind, Failure, Flow, Input, Json, Millis, Name, Outcome,
    Report, StepDefinition, Task, TaskId, Timestamp, apply,
};
use windlass_store::{Change, StoredFlow, TaskChange};

/// The time of all events, long after those of the random walk before.
const AT: Timestamp = Timestamp(1_800_000_000_000);

/// A flow of three steps, each with a rollback.
pub(crate) fn flow(named: &str) -> Result<Arc<Flow>> {
    let name = |text: &str| Name::new(text).context("a name is not one");
    let action = |command: &str| -> Result<Action> {
        Ok(Action { timeout: Millis::from_secs(60), ..Action::of_worker(name("module")?, name(command)?) })
    };
    let step = |index: usize| -> Result<StepDefinition> {
        Ok(StepDefinition {
            rollback: Some(action("undo")?),
            ..StepDefinition::new(
                name(&format!("step-{index}"))?,
                action("do")?,
                index.checked_sub(1).into_iter().collect(),
            )
        })
    };
    let steps = (0..3).map(step).collect::<Result<_>>()?;
    Ok(Arc::new(Flow::new(name(named)?, steps)))
}

/// The change that adds a flow.
pub(crate) fn flow_change(flow: &Arc<Flow>) -> Change {
    Change::Flow(StoredFlow { flow: flow.clone(), created_at: AT })
}

/// A task that is running.
#[derive(Debug)]
pub(crate) struct Story {
    task: Arc<Task>,
}

impl Story {
    /// The task with this number, whose parameters have about `bytes` bytes. With several pages, a cut can tear the
    /// transaction.
    pub(crate) fn new(flow: &Arc<Flow>, number: u64, bytes: usize) -> Result<Self> {
        let params = format!(r#"{{"text":"{}"}}"#, "x".repeat(bytes));
        let input = Input::new(Json::parse(&params).context("the parameters are not JSON")?, AT);
        let id = TaskId(u128::try_from(AT.0)? << 80 | 7 << 76 | 2 << 62 | u128::from(number));
        Ok(Self { task: Arc::new(Task::new(id, flow.clone(), input.into())) })
    }

    /// Accepts the task.
    pub(crate) fn accept(&mut self) -> Result<Change> {
        self.apply(&Command::Accept { done: Vec::new(), overrides_unique: false, by: None })
    }

    /// The next attempt succeeds, or fails for good if its step is `failing`. Returns nothing once the task has ended.
    pub(crate) fn go_on(&mut self, failing: Option<usize>) -> Result<Option<Change>> {
        let Some((key, act)) = self.task.acts().find(|(_, act)| act.is_open()) else {
            ensure!(self.task.is_ended(), "a task has not ended, but nothing is ready");
            return Ok(None);
        };
        let attempt = Attempt { key, number: act.attempt, started_at: Some(AT) };
        let fails = key.direction == windlass_core::Direction::Forward && failing == Some(key.step);
        let outcome = if fails {
            Outcome::Failed(Failure::new("no space", 28, false))
        } else {
            Outcome::Succeeded(Json::parse(r#"{"size": 3}"#).ok())
        };
        self.apply(&Command::Report(Report { attempt, outcome })).map(Some)
    }

    fn apply(&mut self, command: &Command) -> Result<Change> {
        let before = self.task.state.events;
        let transition = apply(&self.task, command, &Context::at(AT))
            .map_err(|rejection| anyhow::anyhow!("the rules refuse: {rejection:?}"))?;
        let results = transition.events.iter().filter_map(|event| match &event.kind {
            EventKind::ActSucceeded { key, result: Some(result), .. } => Some((*key, result.clone())),
            _ => None,
        });
        let results = results.collect();
        let waits = transition.effects.iter();
        let waits = waits.filter(|effect| matches!(effect, Effect::Wait(_) | Effect::Forget(_)));
        let waits = waits.cloned().collect();
        self.task = Arc::new(transition.task);
        Ok(Change::Task(Box::new(TaskChange {
            before,
            generation: 0,
            task: self.task.clone(),
            events: transition.events,
            waits,
            results,
            logs: Vec::new(),
            journal: Vec::new(),
            messages: Vec::new(),
            submit_key: None,
            consumes: None,
            lost: Vec::new(),
            reported: Vec::new(),
            offered: Vec::new(),
            handed_out: Vec::new(),
            announces: true,
            fence: None,
        })))
    }
}

/// Accepts the tasks with these numbers and runs them to their ends, one after the other. Every third one is rolled back,
/// every fifth one is large, every seventh one stops halfway. The events of every second one are announced.
pub(crate) async fn run(
    store: &dyn windlass_store::Store,
    flow: &Arc<Flow>,
    numbers: impl Iterator<Item = u64>,
) -> Result<()> {
    for number in numbers {
        let mut story = Story::new(flow, number, if number % 5 == 0 { 40_000 } else { 300 })?;
        let failing = (number % 3 == 0).then_some(2);
        let mut next = Some(story.accept()?);
        while let Some(change) = next {
            let outcomes = store.commit(vec![change]).await?;
            ensure!(outcomes == [windlass_store::Outcome::Committed], "a commit resulted in {outcomes:?}");
            next =
                if number % 7 == 0 && story.task.state.events > 2 { None } else { story.go_on(failing)? };
        }
        if number % 2 == 0 {
            let told = store.unannounced(TaskId::NONE, usize::MAX).await?;
            let of_task = told.iter().filter(|told| told.task == story.task.id);
            let announced = of_task.map(windlass_store::Unannounced::announced).collect();
            store.commit(vec![windlass_store::Change::Announced(announced)]).await?;
        }
    }
    Ok(())
}
