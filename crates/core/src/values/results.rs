//! Results of steps under the names of their steps, where no other result can hide them.

use crate::{
    ActKey, Expression, Json, Role, Task,
    planted::{Bug, is_planted},
};

/// The name of the map of results, in expressions and in the input of a command.
pub const RESULTS: &str = "results";

impl Task {
    /// The results of the steps before this one, by step name: `{"vm": {"id": "vm-1"}}`. A step without a result is not
    /// in the map; a step with `each` has the list of its results. The `on_error` step gets those of all steps. `None`
    /// if there is no result at all.
    #[must_use]
    pub fn results_for(&self, key: ActKey) -> Option<Json> {
        // Most tasks have steps without results: they need not pay for this.
        let has_any = |step: usize| self.state.steps[step].forward.result.is_some();
        if !self.flow.plain_steps().any(has_any) {
            return None;
        }
        let ancestors = match self.flow.steps[key.step].role {
            Role::OnError => None,
            Role::Plain if is_planted(Bug::ResultsOfAllSteps) => None,
            Role::Plain => Some(self.flow.ancestors(key.step)),
        };
        let results = self.results(|step| ancestors.as_ref().is_none_or(|ancestors| ancestors[step]));
        (!results.is_empty()).then_some(results)
    }

    /// The input for expressions of a step: `params` and the results that they read.
    pub(crate) fn with_results_for<'e>(
        &self,
        step: usize,
        expressions: impl Iterator<Item = &'e Expression>,
        params: Json,
    ) -> Json {
        // In a flow that was stored before this map existed, `results` may be the name of a parameter.
        let reads =
            |expression: &&Expression| expression.results().all(|name| self.flow.is_before(name, step));
        let names: Vec<&str> = expressions.filter(reads).flat_map(Expression::results).collect();
        if names.is_empty() {
            return params;
        }
        let results = self.results(|step| names.contains(&self.flow.steps[step].name.as_str()));
        let results = Json::of_members(std::iter::once((RESULTS.to_owned(), results.as_str())));
        Json::merge([&params, &results])
    }

    fn results(&self, wanted: impl Fn(usize) -> bool) -> Json {
        let steps = self.flow.plain_steps().filter(|step| wanted(*step));
        let results = steps.filter_map(|step| {
            let definition = &self.flow.steps[step];
            let result = self.state.steps[step].forward.result.as_ref()?;
            // Those of items are already stored under the name of their step.
            let list = definition.each.as_ref().and_then(|_| result.member(&definition.name));
            Some((definition.name.to_string(), list.unwrap_or(result.as_str())))
        });
        Json::of_members(results)
    }
}
