//! Warns about commands of a flow that the given module folders lack.

use windlass_core::{Doer, Flow};

use crate::{flowfile::nearest, modules::Catalogue};

/// A warning for each command that no folder has, though some folder has its module. Modules in none of the
/// folders are left out: other workers may serve them.
pub(super) fn warnings(flow: &Flow, folders: &[Catalogue]) -> Vec<String> {
    let mut found = Vec::new();
    for step in &flow.steps {
        for action in [Some(&step.run), step.rollback.as_ref()].into_iter().flatten() {
            let Doer::Worker { module, command } = &action.doer else { continue };
            let commands: Vec<String> = folders.iter().flat_map(|folder| folder.commands(module)).collect();
            if commands.is_empty() || commands.iter().any(|known| **known == **command) {
                continue;
            }
            let hint = match nearest(command, commands.iter().map(String::as_str)) {
                Some(meant) => format!("did you mean `{module}.{meant}`?"),
                None => format!("it has {}", commands.join(", ")),
            };
            found.push(format!(
                "step {}: the folder of module {module} has no command `{command}`: {hint}",
                step.name
            ));
        }
    }
    found
}
