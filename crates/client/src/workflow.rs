//! Workflows put together in code: chains, groups and chords of steps, without a flow in the catalogue.
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
//! What comes out is the body of a submit: [`Client::submit`](crate::Client::submit) takes it. The server checks it as it
//! checks flows; names of steps must be unlike one another.

use windlass_api::{Span, StepDocument, SubmitTask};

/// Steps and how they wait for one another.
#[derive(Debug, Clone, Default)]
pub struct Workflow {
    steps: Vec<StepDocument>,
    /// Indices of the steps that wait for nothing in it.
    first: Vec<usize>,
    /// Indices of the steps that nothing in it waits for.
    last: Vec<usize>,
}

/// One step: its name, and `MODULE.COMMAND`.
#[must_use]
pub fn step(name: impl Into<String>, run: impl Into<String>) -> Workflow {
    let step = StepDocument { after: Some(Vec::new()), ..StepDocument::new(name, run) };
    Workflow { steps: vec![step], first: vec![0], last: vec![0] }
}

/// One after the other: each begins when the one before it is done, and gets what the steps before it returned.
#[must_use]
pub fn chain(links: impl IntoIterator<Item = Workflow>) -> Workflow {
    links.into_iter().filter(|link| !link.steps.is_empty()).reduce(Workflow::then).unwrap_or_default()
}

/// All at the same time.
#[must_use]
pub fn group(members: impl IntoIterator<Item = Workflow>) -> Workflow {
    members.into_iter().fold(Workflow::default(), Workflow::beside)
}

/// A group and what is done once with the results of all its members.
#[must_use]
pub fn chord(members: Workflow, callback: Workflow) -> Workflow {
    chain([members, callback])
}

/// The same, that much later: its first steps wait once it is their turn.
#[must_use]
pub fn delay(length: Span, mut workflow: Workflow) -> Workflow {
    for index in &workflow.first {
        let before = workflow.steps[*index].delay.map_or(0, |before| before.ms);
        workflow.steps[*index].delay = Some(Span::from_ms(before.saturating_add(length.ms)));
    }
    workflow
}

impl Workflow {
    /// The same with something changed about each of its steps: a timeout, retries, a rollback, `each`, …
    #[must_use]
    pub fn with(mut self, change: impl FnMut(&mut StepDocument)) -> Self {
        self.steps.iter_mut().for_each(change);
        self
    }

    /// A task that does it, to be submitted; parameters, a key and the rest may be added.
    #[must_use]
    pub fn into_task(self) -> SubmitTask {
        SubmitTask { steps: self.steps, ..SubmitTask::default() }
    }

    /// This, and `next` when all of it is done.
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

    /// This and `other`, at the same time.
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
