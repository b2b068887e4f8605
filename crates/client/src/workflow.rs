//! Workflows composed in code: chains, groups and chords of steps, without a flow in the catalogue.
//!
//! ```
//! use windlass_client::workflow::{chain, chord, delay, group, step};
//! use windlass_client::api::Span;
//!
//! let workflow = chain([
//!     step("fetch", "files.fetch"),
//!     chord(
//!         group([step("small", "image.resize"), step("large", "image.resize")]),
//!         step("index", "search.index"),
//!     ),
//!     delay(Span::from_ms(60_000), step("remind", "mail.send").with(|step| step.timeout = Some(Span::from_ms(5_000)))),
//! ]);
//! let mut task = workflow.into_task();
//! task.key = Some("order-4711".to_owned());
//! assert_eq!(task.steps.len(), 5);
//! assert_eq!(task.steps[3].after.as_deref(), Some(["small".to_owned(), "large".to_owned()].as_slice()));
//! ```
//!
//! The result is the body of a submit: [`Client::submit`](crate::Client::submit) accepts it. The server
//! checks it like a flow; the names of the steps must be different.

use windlass_api::{Span, StepDocument, SubmitTask};

/// Steps and their dependencies.
#[derive(Debug, Clone, Default)]
pub struct Workflow {
    steps: Vec<StepDocument>,
    /// Indices of the steps without a predecessor in it.
    first: Vec<usize>,
    /// Indices of the steps without a successor in it.
    last: Vec<usize>,
}

/// One step: its name, and `MODULE.COMMAND`.
#[must_use]
pub fn step(name: impl Into<String>, run: impl Into<String>) -> Workflow {
    let step = StepDocument { after: Some(Vec::new()), ..StepDocument::new(name, run) };
    Workflow { steps: vec![step], first: vec![0], last: vec![0] }
}

/// Runs workflows one after another: each starts when the one before it has succeeded, and gets the results
/// of all earlier steps.
#[must_use]
pub fn chain(links: impl IntoIterator<Item = Workflow>) -> Workflow {
    links.into_iter().filter(|link| !link.steps.is_empty()).reduce(Workflow::then).unwrap_or_default()
}

/// Runs all workflows concurrently.
#[must_use]
pub fn group(members: impl IntoIterator<Item = Workflow>) -> Workflow {
    members.into_iter().fold(Workflow::default(), Workflow::beside)
}

/// A group, and a step that runs once with the results of the whole group.
#[must_use]
pub fn chord(members: Workflow, callback: Workflow) -> Workflow {
    chain([members, callback])
}

/// Delays a workflow: its first steps wait this long after they become ready.
#[must_use]
pub fn delay(length: Span, mut workflow: Workflow) -> Workflow {
    for index in &workflow.first {
        let before = workflow.steps[*index].delay.map_or(0, |before| before.ms);
        workflow.steps[*index].delay = Some(Span::from_ms(before.saturating_add(length.ms)));
    }
    workflow
}

impl Workflow {
    /// Changes each of its steps: a timeout, retries, a rollback, `each`, …
    #[must_use]
    pub fn with(mut self, change: impl FnMut(&mut StepDocument)) -> Self {
        self.steps.iter_mut().for_each(change);
        self
    }

    /// A task of this workflow, to be submitted; you may add parameters, an idempotency key and so on.
    #[must_use]
    pub fn into_task(self) -> SubmitTask {
        SubmitTask { steps: self.steps, ..SubmitTask::default() }
    }

    /// This workflow, followed by `next`.
    fn then(self, next: Self) -> Self {
        let names: Vec<String> = self.last.iter().map(|index| self.steps[*index].name.clone()).collect();
        let first = self.first.clone();
        let begins: Vec<usize> = next.first.iter().map(|index| index + self.steps.len()).collect();
        let last = next.last.iter().map(|index| index + self.steps.len()).collect();
        let mut both = self.beside(next);
        for index in begins {
            both.steps[index].after.get_or_insert_default().extend(names.iter().cloned());
        }
        Self { steps: both.steps, first, last }
    }

    /// This workflow and `other`, concurrently.
    fn beside(mut self, other: Self) -> Self {
        let count = self.steps.len();
        self.steps.extend(other.steps);
        self.first.extend(other.first.into_iter().map(|index| index + count));
        self.last.extend(other.last.into_iter().map(|index| index + count));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(workflow: Workflow) -> Vec<(String, Vec<String>)> {
        workflow.steps.into_iter().map(|step| (step.name, step.after.unwrap())).collect()
    }

    fn s(name: &str) -> Workflow {
        step(name, "m.c")
    }

    fn expected(steps: &[(&str, &[&str])]) -> Vec<(String, Vec<String>)> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        steps.iter().map(|(name, after)| ((*name).to_owned(), owned(after))).collect()
    }

    #[test]
    fn groups_in_chains_wait_for_all_before_and_are_waited_for() {
        let workflow = chain([s("a"), group([chain([s("b"), s("c")]), s("d")]), s("e")]);
        assert_eq!(
            after(workflow),
            expected(&[("a", &[]), ("b", &["a"]), ("c", &["b"]), ("d", &["a"]), ("e", &["c", "d"])])
        );
    }

    #[test]
    fn what_is_empty_is_passed_over() {
        let workflow = chain([s("a"), group([]), chain([]), s("b")]);
        assert_eq!(after(workflow), expected(&[("a", &[]), ("b", &["a"])]));
        assert!(chain([]).into_task().steps.is_empty());
    }

    #[test]
    fn a_delay_is_that_of_the_first_steps_and_delays_add_up() {
        let second = Span::from_ms(1_000);
        let workflow = delay(second, delay(second, chain([group([s("a"), s("b")]), s("c")])));
        let delays: Vec<Option<u64>> =
            workflow.steps.iter().map(|step| step.delay.map(|delay| delay.ms)).collect();
        assert_eq!(delays, [Some(2_000), Some(2_000), None]);
    }
}
