//! Commands that a flow names and the module folders at hand do not have.

use windlass_core::{Doer, Flow};

use crate::{flowfile::nearest, modules::Catalogue};

/// A warning for each command of a module in `folders` that none of them has. Modules that are in none of the folders
/// may be served by other workers and are left out.
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
