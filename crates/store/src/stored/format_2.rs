//! Flows as format 2 wrote them, when every rollback was given all parameters and results so far.

use serde::Deserialize;
#[cfg(test)]
use serde::Serialize;
use windlass_core::{
    Action, Backoff, Flow, Millis, Name, OnFailure, RetryBy, RollbackParams, StepDefinition, TIMEOUT_DEFAULT,
    Unique,
};

#[derive(Deserialize)]
#[cfg_attr(test, derive(Serialize))]
pub(super) struct Flow2 {
    name: Name,
    version: u32,
    params: Option<Box<str>>,
    retry_by: RetryBy,
    on_failure: OnFailure,
    deadline: Option<Millis>,
    unique: Option<Unique>,
    retention: Option<Millis>,
    steps: Vec<StepDefinition>,
}

impl From<Flow2> for Flow {
    fn from(flow: Flow2) -> Self {
        let Flow2 { name, version, params, retry_by, on_failure, deadline, unique, retention, steps } = flow;
        let flow = Self {
            version,
            params,
            retry_by,
            on_failure,
            deadline,
            unique,
            retention,
            ..Self::new(name, steps)
        };
        let rollback_params = rollback_params(&flow);
        Self { rollback_params, ..flow }
    }
}

/// Which parameters the rollbacks of a flow are given that was written when there was no choice. A later result must
/// not hide what a step was given, but its rollback may look for the step's own result among the parameters. In the
/// classic catalogue all steps share their parameters.
pub(super) fn rollback_params(flow: &Flow) -> RollbackParams {
    if is_classic(flow) { RollbackParams::Shared } else { RollbackParams::StepAndResult }
}

/// Whether a flow is what the classic catalogue comes to: a line of steps without a delay between attempts, each with
/// a deadline as long as its timeout, and nothing that the catalogue cannot say.
fn is_classic(flow: &Flow) -> bool {
    let is_action = |action: &Action| {
        let deadline = action.deadline.unwrap_or(TIMEOUT_DEFAULT);
        action.retry.backoff == Backoff::None && action.timeout == deadline && action.start_within.is_none()
    };
    let is_step = |(index, step): (usize, &StepDefinition)| {
        let line: Vec<usize> = index.checked_sub(1).into_iter().collect();
        let plain = StepDefinition {
            rollback: step.rollback.clone(),
            ..StepDefinition::new(step.name.clone(), step.run.clone(), line)
        };
        *step == plain && is_action(&step.run) && step.rollback.as_ref().is_none_or(is_action)
    };
    let plain = Flow { version: flow.version, ..Flow::new(flow.name.clone(), flow.steps.clone()) };
    let same = Flow { rollback_params: plain.rollback_params, ..flow.clone() } == plain;
    same && flow.steps.iter().enumerate().all(is_step)
}

#[cfg(test)]
mod tests {
    use windlass_core::Retry;

    use super::*;
    use crate::stored::read_flow;

    fn action(command: &str) -> Action {
        let name = |text: &str| Name::new(text).expect("a name");
        let retry = Retry { max: 3, backoff: Backoff::None, ..Retry::default() };
        let timeout = Millis::from_secs(1800);
        Action { retry, timeout, deadline: Some(timeout), ..Action::of_worker(name("mysql"), name(command)) }
    }

    fn steps() -> Vec<StepDefinition> {
        let step = |(index, command): (usize, &str)| StepDefinition {
            rollback: Some(action("clean")),
            ..StepDefinition::new(Name::new(command).expect("a name"), action(command), (0..index).collect())
        };
        ["check", "init"].into_iter().enumerate().map(step).collect()
    }

    /// The flow as this version reads what format 2 wrote of it.
    fn read(steps: Vec<StepDefinition>, change: impl FnOnce(&mut Flow2)) -> Flow {
        let mut flow = Flow2 {
            name: Name::new("create").expect("a name"),
            version: 7,
            params: None,
            retry_by: RetryBy::Engine,
            on_failure: OnFailure::Rollback,
            deadline: None,
            unique: None,
            retention: None,
            steps,
        };
        change(&mut flow);
        let bytes = postcard::to_extend(&flow, vec![2]).expect("it can be written");
        read_flow(&bytes).expect("it can be read")
    }

    #[test]
    fn a_classic_flow_goes_on_sharing_its_parameters() {
        let flow = read(steps(), |_| {});
        assert_eq!((flow.rollback_params, flow.version, flow.deaths_max), (RollbackParams::Shared, 7, 3));
        let mut without_timeout = steps();
        (without_timeout[0].run.timeout, without_timeout[0].run.deadline) = (TIMEOUT_DEFAULT, None);
        without_timeout[1].rollback = None;
        assert_eq!(read(without_timeout, |_| {}).rollback_params, RollbackParams::Shared);
    }

    #[test]
    fn other_flows_do_not_share_them() {
        let differs: [fn(&mut Flow2); 7] = [
            |flow| flow.params = Some(r#"{"a":1}"#.into()),
            |flow| flow.on_failure = OnFailure::Hold,
            |flow| flow.steps[1].run.retry.backoff = Backoff::Exponential,
            |flow| flow.steps[1].run.deadline = None,
            |flow| flow.steps[0].rollback.as_mut().expect("it has one").start_within = Some(Millis(1)),
            |flow| flow.steps[1].after = Vec::new(),
            |flow| flow.steps[1].delay = Some(Millis(1)),
        ];
        for (number, change) in differs.into_iter().enumerate() {
            let flow = read(steps(), change);
            assert_eq!(flow.rollback_params, RollbackParams::StepAndResult, "{number}");
        }
    }
}
