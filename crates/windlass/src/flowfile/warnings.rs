//! Warns about possible mistakes in a valid flow: expressions that use parameters which the flow does not
//! declare.

use windlass_core::{ERRORS_PARAM, Flow, INDEX_PARAM, ITEM_PARAM, Json, RESULTS, StepDefinition};

use super::nearest;

/// Names in expressions that are not parameters.
const TYPES: [&str; 9] = ["null_type", "bool", "int", "uint", "double", "string", "list", "map", "type"];

/// The warnings about a flow. Checks only flows that declare `params`: other flows leave their parameters to
/// the caller.
#[must_use]
pub fn warnings(flow: &Flow) -> Vec<String> {
    let declared = flow.params.as_deref().map(names).unwrap_or_default();
    if declared.is_empty() {
        return Vec::new();
    }
    flow.steps.iter().enumerate().flat_map(|(index, step)| of_step(flow, index, step, &declared)).collect()
}

fn of_step(flow: &Flow, index: usize, step: &StepDefinition, declared: &[String]) -> Vec<String> {
    let ancestors = flow.ancestors(index);
    let lists = flow.steps.iter().zip(ancestors).filter(|(step, before)| *before && step.each.is_some());
    let joined = lists.flat_map(|(step, _)| [step.name.to_string(), format!("{}_errors", step.name)]);
    let own = [ITEM_PARAM, INDEX_PARAM, ERRORS_PARAM, RESULTS].into_iter().chain(TYPES).map(str::to_owned);
    let known: Vec<String> = declared.iter().cloned().chain(joined).chain(own).collect();
    let mut found = Vec::new();
    for expression in step.expressions() {
        for name in expression.names().filter(|name| !known.iter().any(|known| known == name)) {
            let meant = nearest(name, declared.iter().map(String::as_str));
            let hint = match meant {
                Some(meant) => format!("did you mean `{meant}`?"),
                // The expression checks for the parameter itself.
                None if expression.source().contains("has(") => continue,
                None => "the task or an earlier step must provide it".to_owned(),
            };
            let source = expression.source();
            let warning = format!(
                "step {}: `{source}` reads `{name}`, which `params` does not declare: {hint}",
                step.name
            );
            if !found.contains(&warning) {
                found.push(warning);
            }
        }
    }
    found
}

/// The names of an object's members.
fn names(object: &str) -> Vec<String> {
    match serde_json::from_str(Json::from_stored(object).as_str()) {
        Ok(serde_json::Value::Object(members)) => members.into_iter().map(|(name, _)| name).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flowfile::{Format, compile, read};

    fn warned(params: &str, steps: &str) -> Vec<String> {
        let text = format!("flow: f\nparams: {params}\nsteps:\n{steps}");
        let sources = read(&text, Format::Yaml).unwrap();
        warnings(&compile(&sources[0]).unwrap())
    }

    #[test]
    fn a_parameter_that_is_not_declared_is_warned_about() {
        let step = "  - { name: pay, run: m.pay, when: 'ammount > 3' }\n";
        assert_eq!(
            warned("{ amount: 1 }", step),
            [
                "step pay: `ammount > 3` reads `ammount`, which `params` does not declare: did you mean `amount`?"
            ]
        );
        let other = warned("{ size: 1 }", step);
        assert!(other.len() == 1 && other[0].ends_with("the task or an earlier step must provide it"));
        assert!(warned("{}", step).is_empty(), "nothing is declared");
    }

    #[test]
    fn what_is_known_is_not_warned_about() {
        let steps = "
  - { name: list, run: m.list }
  - { name: sum, run: m.sum, each: files, key: item }
  - { name: pay, run: m.pay, when: 'amount > 3 && size(sum) > 0' }
  - { name: tell, run: m.tell, when: 'has(params.dry_run) && results.list.n > 1' }
";
        assert_eq!(warned("{ amount: 1, files: [] }", steps), Vec::<String>::new());
    }
}
