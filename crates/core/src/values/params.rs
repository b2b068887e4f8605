//! Parameters: the input of an execution, and the outcome of a task.

use crate::{
    Act, ActKey, ActState, Cause, DATA_CODE, DEADLINE_CODE, Direction, EXPRESSION_MEMBER_STEPS_MAX,
    EXPRESSION_STEPS_MAX, EvaluationBudget, Expression, JobMessage, Json, LockRef, Name, RETRIES_MAX, Role,
    RollbackParams, Task, device_of_lock,
    expression::steps_to_find,
    planted::{Bug, is_planted},
    task::members::Shares,
};

/// The parameter with the element of an item.
pub const ITEM_PARAM: &str = "item";

/// The parameter with the index of an item in the list, from 0.
pub const INDEX_PARAM: &str = "index";

/// The parameter with the failures, for a join or the `on_error` step.
pub const ERRORS_PARAM: &str = "errors";

/// The maximum number of reported errors.
pub const ERRORS_MAX: usize = 100;

/// The maximum size of a fanned-out step's array of results, in bytes.
pub const JOINED_BYTES_MAX: usize = 4 << 20;

/// The distance between the numbers of the first jobs of two executions: above the number of attempts.
const JOBS_APART: u64 = 2 * RETRIES_MAX as u64;

/// The parameters for computing concurrency keys and lock names, and the limit of evaluation steps.
pub(crate) struct Naming {
    params: Json,
    steps_max: u64,
}

impl Naming {
    /// The name that `expression` evaluates to.
    pub(crate) fn text(
        &self,
        expression: &Expression,
        budget: &EvaluationBudget,
    ) -> Result<Box<str>, String> {
        expression.text_in(&self.params, self.steps_max, budget)
    }
}

impl Shares {
    /// The parameters of one item only.
    fn own(&self, key: ActKey) -> Json {
        let index = key.index().unwrap_or_default();
        let element = self.elements.get(index as usize).map_or("null", |element| &**element);
        Json::from_stored(&format!("{{\"{ITEM_PARAM}\":{element},\"{INDEX_PARAM}\":{index}}}"))
    }
}

impl Task {
    /// The parameters of an execution: the flow's, the caller's, then the results of the step's ancestors in definition
    /// order; last those that an operator gave it. A rollback gets the same parameters as the forward execution of its
    /// step: results of later steps do not change what it rolls back. [`RollbackParams`] describes the exceptions.
    ///
    /// An item gets the parameters that its step had when it was fanned out, with its element as `item` and its
    /// position as `index` instead of the list. A join that continues without some predecessors gets `errors`; the
    /// `on_error` step gets `errors` and all results so far.
    #[must_use]
    pub fn params_for(&self, key: ActKey) -> Json {
        let given = if key.is_member() { self.given_to_member(key) } else { self.given(key) };
        let with_result = match key.direction {
            Direction::Forward => false,
            // An item of a classic flow has no place of its own among the shared results.
            Direction::Rollback if key.is_member() => self.flow.rollback_params != RollbackParams::Step,
            Direction::Rollback => self.flow.rollback_params == RollbackParams::StepAndResult,
        };
        match self.done_by(key).filter(|_| with_result) {
            Some(result) if key.is_member() => {
                // Its element stays its element, whatever its result contains.
                let own = self.shares(key).map(|shares| shares.own(key));
                Json::merge([Some(&given), Some(result), own.as_ref()].into_iter().flatten())
            }
            Some(result) => Json::merge([&given, result]),
            None => given,
        }
    }

    /// The result of the forward execution of this step or item.
    #[must_use]
    pub fn done_by(&self, key: ActKey) -> Option<&Json> {
        let forward = self.act(ActKey { direction: Direction::Forward, ..key })?;
        forward.result.as_ref().filter(|_| !is_planted(Bug::RollbackWithoutResult))
    }

    /// The parameters of a step as a whole, forward or rollback.
    fn given(&self, key: ActKey) -> Json {
        let is_shared = match (key.direction, self.flow.steps[key.step].role) {
            (Direction::Forward, _) => false,
            (Direction::Rollback, Role::OnError) => true,
            (Direction::Rollback, Role::Plain) => self.flow.rollback_params == RollbackParams::Shared,
        };
        let sees_all = key.direction == Direction::Forward && is_planted(Bug::LaterResultsSeen)
            || key.direction == Direction::Rollback && is_planted(Bug::RollbackSeesLaterResults);
        let merged = if is_shared || sees_all {
            self.outcome()
        } else {
            let ancestors = self.flow.ancestors(key.step);
            self.merged(|step| ancestors[step])
        };
        let amended = self.state.steps[key.step].amended.as_deref().map(Json::from_stored);
        let errors = self.errors_for(key);
        match (&amended, &errors) {
            (None, None) => merged,
            _ => Json::merge([Some(&merged), amended.as_ref(), errors.as_ref()].into_iter().flatten()),
        }
    }

    /// What is published for an attempt of a device's job; `None` if no device executes it.
    ///
    /// # Errors
    /// When an expression cannot be evaluated, or gives something unsuitable.
    pub fn job_message(&self, key: ActKey) -> Option<Result<JobMessage, String>> {
        let job = self.action(key)?.device_job()?;
        let params = self.with_results_for(key.step, job.expressions(), self.params_for(key));
        Some(job.message(&params))
    }

    /// The device of a job: the one that it has, or that its step would request now. `None` if it is not a job, or the device
    /// cannot be computed yet.
    #[must_use]
    pub fn job_device(&self, key: ActKey) -> Option<Name> {
        self.action(key)?.device_job()?;
        let has =
            self.act(key).and_then(|act| act.locks().iter().find_map(|lock| device_of_lock(&lock.name)));
        has.or_else(|| match self.flow.steps.get(key.step)?.locks.first()? {
            LockRef::Name(name) => device_of_lock(name),
            LockRef::Expression(lock) => {
                let params = self.with_results_for(key.step, std::iter::once(lock), self.params_for(key));
                device_of_lock(&Name::new(&lock.text(&params).ok()?).ok()?)
            }
        })
    }

    /// The number that a device gets as the `attempt` of its job. No other job of the task has it: a device may do several
    /// steps of a task, and its answer to one must not count for the next. The jobs of the first step are 1, 2, 3….
    #[must_use]
    pub fn job_number(&self, key: ActKey, attempt: u32) -> u64 {
        let is_rollback = usize::from(key.direction == Direction::Rollback);
        let place = (2 * key.step + is_rollback) as u64;
        let place = place + u64::from(key.member) * 2 * self.flow.steps.len() as u64;
        let place = if is_planted(Bug::JobsAlike) { 0 } else { place };
        place * JOBS_APART + u64::from(attempt)
    }

    /// Whether the condition of a step is true.
    pub(crate) fn is_wanted(
        &self,
        key: ActKey,
        when: &Expression,
        budget: &EvaluationBudget,
    ) -> Result<bool, String> {
        if when.is_constant() {
            return when.holds_within(&Json::empty(), budget);
        }
        budget.look_through(self.bytes_of_params())?;
        let params = self.with_results_for(key.step, std::iter::once(when), self.params_for(key));
        when.holds_within(&params, budget)
    }

    /// An upper bound of the bytes that are merged for the parameters of an execution.
    pub(crate) fn bytes_of_params(&self) -> usize {
        let bytes = |act: &Act| act.result.as_ref().map_or(0, |result| result.as_str().len());
        let results = self.state.steps.iter().map(|step| bytes(&step.forward) + bytes(&step.undo));
        let common = self.flow.params.as_deref().map_or(0, str::len);
        common + self.input.params.as_str().len() + results.sum::<usize>()
    }

    /// The parameters for the concurrency key and the locks of an execution: its own parameters; for a rollback those
    /// of the forward execution. They do not change by the step's own result.
    ///
    /// # Errors
    /// When merging them takes more steps than the budget has left: as a message.
    pub(crate) fn naming(&self, key: ActKey, budget: &EvaluationBudget) -> Result<Naming, String> {
        if self.flow.steps[key.step].naming().all(Expression::is_constant) {
            return Ok(Naming { params: Json::empty(), steps_max: EXPRESSION_STEPS_MAX });
        }
        let on_error = self.flow.steps[key.step].role == Role::OnError;
        let key = if on_error { key } else { ActKey { direction: Direction::Forward, ..key } };
        let naming = match self.shares(key) {
            None => {
                budget.look_through(self.bytes_of_params())?;
                let expressions = self.flow.steps[key.step].naming();
                let params = self.with_results_for(key.step, expressions, self.params_for(key));
                Naming { params, steps_max: EXPRESSION_STEPS_MAX }
            }
            Some(shares) => {
                // If reading alone takes more steps than allowed, the parameters are not merged for each item first.
                let is_too_large = steps_to_find(&shares.naming) > EXPRESSION_MEMBER_STEPS_MAX;
                budget.look_through(shares.naming.as_str().len())?;
                let own = (!is_too_large).then(|| shares.own(key));
                let params = Json::merge([Some(&shares.naming), own.as_ref()].into_iter().flatten());
                Naming { params, steps_max: EXPRESSION_MEMBER_STEPS_MAX }
            }
        };
        Ok(naming)
    }

    /// The inputs of a step's items, if this is an item.
    fn shares(&self, key: ActKey) -> Option<&Shares> {
        let (step, definition) = (&self.state.steps[key.step], &self.flow.steps[key.step]);
        let (members, each) = (step.members.as_ref().filter(|_| key.is_member())?, definition.each.as_ref()?);
        Some(members.handed.get(|| {
            let all = self.params_for(ActKey::forward(key.step));
            let elements = all.elements(&each.list).unwrap_or_default();
            let common = all.without(&each.list);
            let naming = common.filtered(|name| definition.is_named_by(name));
            let naming = self.with_results_for(key.step, definition.naming(), naming);
            Shares { common, naming, elements }
        }))
    }

    fn given_to_member(&self, key: ActKey) -> Json {
        self.shares(key).map_or_else(Json::empty, |shares| Json::merge([&shares.common, &shares.own(key)]))
    }

    /// All parameters and results merged.
    #[must_use]
    pub fn outcome(&self) -> Json {
        self.merged(|_| true)
    }

    fn merged(&self, wanted: impl Fn(usize) -> bool) -> Json {
        let common = self.flow.params.as_deref().map(Json::from_stored);
        let steps = || self.state.steps.iter().enumerate().filter(|(index, _)| wanted(*index));
        let forward = steps().filter_map(|(_, step)| step.forward.result.as_ref());
        // Rollbacks run in reverse order, so their results are merged in that order.
        let undos = steps().rev().filter_map(|(_, step)| step.undo.result.as_ref());
        Json::merge(common.iter().chain([&self.input.params]).chain(forward).chain(undos))
    }

    /// The failures, for a join that continues without some predecessors, and for the `on_error` step.
    fn errors_for(&self, key: ActKey) -> Option<Json> {
        let definition = &self.flow.steps[key.step];
        let failed = |step: &usize| self.state.steps[*step].forward.state == ActState::Failed;
        let steps: Vec<usize> = match definition.role {
            Role::OnError => self.flow.plain_steps().collect(),
            Role::Plain => definition.after.iter().copied().filter(failed).collect(),
        };
        let told = definition.role == Role::OnError || !steps.is_empty();
        let of_task = match self.state.cause.as_ref().filter(|_| definition.role == Role::OnError) {
            Some(Cause::Deadline) => Some(DEADLINE_CODE),
            Some(Cause::ResultTooLarge { .. }) => Some(DATA_CODE),
            _ => None,
        };
        let of_task = of_task.map(|code| {
            let message = Json::quote(self.message().as_deref().unwrap_or_default());
            format!("{{\"code\":{code},\"message\":{message}}}")
        });
        told.then(|| {
            Json::from_stored(&format!("{{\"{ERRORS_PARAM}\":{}}}", self.errors(of_task, steps.into_iter())))
        })
    }

    /// The list `[{"step", "index"?, "code", "message"}]` of these steps, at most [`ERRORS_MAX`]; `first` concerns no
    /// step.
    fn errors(&self, first: Option<String>, steps: impl Iterator<Item = usize>) -> String {
        let keys = steps.flat_map(|index| {
            let key = ActKey::forward(index);
            let members = self.state.steps[index].members.iter();
            let failed = members.flat_map(|members| members.side(Direction::Forward).failed.iter());
            let of_members: Vec<ActKey> = failed.map(|number| key.of_member(*number)).collect();
            if of_members.is_empty() { vec![key] } else { of_members }
        });
        let errors = keys.filter_map(|key| {
            let act = self.act(key).filter(|act| act.state == ActState::Failed)?;
            let failure = act.failure.as_ref()?;
            let index = key.is_member().then(|| format!("\"{INDEX_PARAM}\":{},", key.member - 1));
            Some(format!(
                "{{\"step\":{},{}\"code\":{},\"message\":{}}}",
                Json::quote(&self.flow.steps[key.step].name),
                index.unwrap_or_default(),
                failure.code,
                Json::quote(&failure.message),
            ))
        });
        let list: Vec<String> = first.into_iter().chain(errors).take(ERRORS_MAX).collect();
        format!("[{}]", list.join(","))
    }

    /// The joined results of a step's items: an array under the step's name, in the order of the list, with null for
    /// items without a result; failures are under the name with `_errors`.
    ///
    /// # Errors
    /// When it is larger than [`JOINED_BYTES_MAX`]: its size.
    pub(crate) fn joined(&self, step: usize) -> Result<Json, usize> {
        let Some(members) = &self.state.steps[step].members else { return Ok(Json::empty()) };
        let name = &self.flow.steps[step].name;
        let mut text = format!("{{{}:[", Json::quote(name));
        for (number, member) in members.iter() {
            if number > 1 {
                text.push(',');
            }
            let number =
                if is_planted(Bug::MembersOutOfOrder) { members.total() + 1 - number } else { number };
            let returned = members.get(number).unwrap_or(member).forward.result.as_ref();
            text.push_str(returned.map_or("null", Json::as_str));
        }
        text.push(']');
        if !members.side(Direction::Forward).failed.is_empty() {
            let errors = Json::quote(&format!("{name}_errors"));
            text.push_str(&format!(",{errors}:{}", self.errors(None, [step].into_iter())));
        }
        text.push('}');
        if text.len() > JOINED_BYTES_MAX {
            return Err(text.len());
        }
        Ok(Json::from_stored(&text))
    }
}
