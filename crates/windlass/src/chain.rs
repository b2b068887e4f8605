//! Checks flows that run other flows: a flow that runs itself would start tasks for ever.
//!
//! Each flow is checked when it is applied, against the newest versions of the others. The check misses flows
//! that are applied at the same time, and later versions: these meet the limit on nested child tasks.

use std::collections::BTreeMap;

use windlass_core::{Doer, Flow};
use windlass_engine::{Engine, EngineError};

/// The longest chain of flows that run one another: the limit on nested child tasks.
const CHAIN_MAX: usize = windlass_core::DEPTH_MAX as usize;

/// A chain that is not allowed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadChain {
    /// Index of the step that starts it.
    step: usize,
    /// The problem.
    pub(crate) message: String,
}

impl BadChain {
    /// The place of that step in the document of the flow.
    pub(crate) fn path(&self) -> String {
        format!("steps[{}].run", self.step)
    }
}

/// Checks the chains that start at `flow`: whether one leads back to it, or is too long.
pub(crate) async fn check(engine: &Engine, flow: &Flow) -> Result<Option<BadChain>, EngineError> {
    if children(flow).next().is_none() {
        return Ok(None);
    }
    let stored = engine.flows().await?;
    let newest = stored.iter().map(|stored| (stored.flow.name.as_str(), &*stored.flow)).collect();
    Ok(wrong(flow, &newest))
}

/// The steps of a flow that run other flows, with their indices.
fn children(flow: &Flow) -> impl Iterator<Item = (usize, &str)> {
    flow.steps.iter().enumerate().filter_map(|(index, step)| match &step.run.doer {
        Doer::Flow { name } => Some((index, name.as_str())),
        Doer::Worker { .. } | Doer::Signal { .. } | Doer::Device(_) => None,
    })
}

fn wrong<'a>(flow: &'a Flow, newest: &BTreeMap<&str, &'a Flow>) -> Option<BadChain> {
    let own = flow.name.as_str();
    // The flows reachable in this number of rounds, each with the first path to it.
    let mut reached: BTreeMap<&str, (usize, Vec<&str>)> = BTreeMap::new();
    for (step, child) in children(flow) {
        reached.entry(child).or_insert_with(|| (step, vec![own, child]));
    }
    for _ in 1..CHAIN_MAX {
        if let Some((step, way)) = reached.get(own) {
            let message =
                format!("the flow would start itself for ever: {}; remove one of them", way.join(" → "));
            return Some(BadChain { step: *step, message });
        }
        let mut next = BTreeMap::new();
        for (name, (step, way)) in &reached {
            let Some(flow) = newest.get(name) else { continue };
            for (_, child) in children(flow) {
                next.entry(child).or_insert_with(|| (*step, way.iter().copied().chain([child]).collect()));
            }
        }
        reached = next;
    }
    let (step, way) = reached.into_values().next()?;
    let message =
        format!("child flows are nested too deeply: {} …; the limit is {CHAIN_MAX}", way.join(" → "));
    Some(BadChain { step, message })
}

#[cfg(test)]
mod tests {
    use windlass_core::{Action, Name, StepDefinition};

    use super::*;

    /// A flow that runs these flows, after a step of a worker.
    fn flow(name: &str, others: &[&str]) -> Flow {
        let named = |name: &str| Name::new(name).unwrap();
        let work = Action::of_worker(named("m"), named("c"));
        let runs =
            others.iter().map(|other| Action { doer: Doer::Flow { name: named(other) }, ..work.clone() });
        let actions = [work.clone()].into_iter().chain(runs).enumerate();
        let steps =
            actions.map(|(index, run)| StepDefinition::new(named(&format!("s{index}")), run, Vec::new()));
        Flow::new(named(name), steps.collect())
    }

    fn said(applied: &Flow, others: &[Flow]) -> Option<(usize, String)> {
        let bad = wrong(applied, &others.iter().map(|flow| (flow.name.as_str(), flow)).collect())?;
        Some((bad.step, bad.message))
    }

    #[test]
    fn a_chain_that_comes_back_is_refused_and_one_that_ends_is_not() {
        let others = [flow("b", &["d", "c"]), flow("c", &["a"]), flow("d", &["unknown"])];
        let (step, message) = said(&flow("a", &["d", "b"]), &others).unwrap();
        assert_eq!(
            (step, &*message),
            (2, "the flow would start itself for ever: a → b → c → a; remove one of them")
        );
        assert_eq!(said(&flow("a", &["d"]), &others), None);
        assert_eq!(said(&flow("e", &["d", "d"]), &others), None, "the same twice is not a circle");
        let (step, message) = said(&flow("a", &["a"]), &[]).unwrap();
        assert_eq!((step, &*message), (1, "the flow would start itself for ever: a → a; remove one of them"));
        // The new version counts, not the stored one.
        assert_eq!(said(&flow("c", &[]), &others), None);
    }

    #[test]
    fn a_chain_has_a_length() {
        let names: Vec<String> = (0..=CHAIN_MAX).map(|index| format!("f{index}")).collect();
        let chain = |last: usize| -> Vec<Flow> {
            (1..last).map(|index| flow(&names[index], &[&names[index + 1]])).collect()
        };
        assert_eq!(said(&flow("f0", &["f1"]), &chain(CHAIN_MAX - 1)), None);
        let (step, message) = said(&flow("f0", &["f1"]), &chain(CHAIN_MAX)).unwrap();
        assert!(step == 1 && message.contains("nested too deeply: f0 → f1 →"), "{message}");
        // The check also ends when other flows, applied concurrently, run one another for ever.
        let others = [flow("x", &["y"]), flow("y", &["x"])];
        assert!(said(&flow("f0", &["x"]), &others).is_some());
    }
}
