//! The handlers of a worker, by command.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

use windlass_api::ModuleOffer;

use super::Handler;
use crate::Error;

/// The modules of a worker.
#[derive(Debug, Default)]
pub(super) struct Registry {
    modules: BTreeMap<String, Module>,
}

/// The handlers of one module.
#[derive(Default)]
struct Module {
    commands: HashMap<String, Arc<dyn Handler>>,
    /// The handler for all other commands.
    any: Option<Arc<dyn Handler>>,
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module")
            .field("commands", &self.commands.keys())
            .field("any", &self.any.is_some())
            .finish()
    }
}

impl Registry {
    /// Adds one handler for some commands of a module, or for all.
    pub(super) fn add_module(
        &mut self,
        name: &str,
        commands: Option<Vec<String>>,
        handler: &Arc<dyn Handler>,
    ) -> Result<(), Error> {
        check_name("module", name)?;
        match commands {
            None => {
                let module = self.modules.entry(name.to_owned()).or_default();
                if module.any.replace(handler.clone()).is_some() {
                    return Err(Error::Invalid(format!(
                        "the module {name} has two handlers for all its commands"
                    )));
                }
            }
            Some(commands) if commands.is_empty() => {
                return Err(Error::Invalid(format!(
                    "the module {name} has no commands: name some, or serve all"
                )));
            }
            Some(commands) => {
                for command in commands {
                    self.add_command(name, &command, handler.clone())?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn add_command(
        &mut self,
        module: &str,
        command: &str,
        handler: Arc<dyn Handler>,
    ) -> Result<(), Error> {
        check_name("module", module)?;
        check_name("command", command)?;
        let commands = &mut self.modules.entry(module.to_owned()).or_default().commands;
        if commands.insert(command.to_owned(), handler).is_some() {
            return Err(Error::Invalid(format!("the command {module}.{command} has two handlers")));
        }
        Ok(())
    }

    /// Puts another handler around each one.
    pub(super) fn wrap(&mut self, wrap: impl Fn(Arc<dyn Handler>) -> Arc<dyn Handler>) {
        for module in self.modules.values_mut() {
            for handler in module.commands.values_mut().chain(&mut module.any) {
                *handler = wrap(handler.clone());
            }
        }
    }

    pub(super) fn find(&self, module: &str, command: &str) -> Option<&Arc<dyn Handler>> {
        let module = self.modules.get(module)?;
        module.commands.get(command).or(module.any.as_ref())
    }

    /// The modules to announce to the server: each may use all free slots.
    pub(super) fn offers(&self, free: u32) -> Vec<ModuleOffer> {
        let offer = |(name, module): (&String, &Module)| ModuleOffer {
            name: name.clone(),
            commands: module.any.is_none().then(|| {
                let mut commands: Vec<String> = module.commands.keys().cloned().collect();
                commands.sort_unstable();
                commands
            }),
            free,
        };
        self.modules.iter().map(offer).collect()
    }

    /// The names of the modules.
    #[cfg(feature = "brokers")]
    pub(super) fn modules(&self) -> impl Iterator<Item = &str> {
        self.modules.keys().map(String::as_str)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.modules.is_empty()
    }
}

/// Whether this is a name as the server accepts it. Such a name is never a path to another folder.
pub(super) fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    let begins = bytes.next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    begins && name.len() <= 128 && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

/// Checks names here too, so that a typing error is found when the worker is built, not when a step waits for
/// a worker in vain.
fn check_name(what: &str, name: &str) -> Result<(), Error> {
    // A flow splits MODULE.COMMAND at the first dot: it could never name a module with a dot.
    let dotted_module = what == "module" && name.contains('.');
    if is_name(name) && !dotted_module {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "\"{name}\" cannot be the name of a {what}: use up to 128 letters, digits, '_', '-'{}, \
         beginning with a letter or a digit",
        if what == "module" { "" } else { ", '.'" }
    )))
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use crate::worker::{Job, Outcome};

    struct Nothing;

    #[async_trait]
    impl Handler for Nothing {
        async fn run(&self, _job: Job) -> Outcome {
            Outcome::Succeeded(None)
        }
    }

    fn handler() -> Arc<dyn Handler> {
        Arc::new(Nothing)
    }

    #[test]
    fn a_command_of_its_own_goes_before_the_handler_of_the_module() {
        let mut registry = Registry::default();
        let (own, any) = (handler(), handler());
        registry.add_command("mysql", "dump.full", own.clone()).unwrap();
        assert!(registry.find("mysql", "load").is_none());
        assert_eq!(registry.offers(3)[0].commands, Some(vec!["dump.full".to_owned()]));
        registry.add_module("mysql", None, &any).unwrap();
        assert!(Arc::ptr_eq(registry.find("mysql", "dump.full").unwrap(), &own));
        assert!(Arc::ptr_eq(registry.find("mysql", "load").unwrap(), &any));
        assert!(registry.find("other", "load").is_none());
        let offers = registry.offers(3);
        assert_eq!((offers.len(), &offers[0].commands, offers[0].free), (1, &None, 3));
    }

    #[test]
    fn what_could_never_work_is_refused() {
        let mut registry = Registry::default();
        registry.add_module("m", Some(vec!["a".to_owned()]), &handler()).unwrap();
        registry.add_module("n", None, &handler()).unwrap();
        for refused in [
            registry.add_command("m", "a", handler()),
            registry.add_module("n", None, &handler()),
            registry.add_module("m", Some(vec![]), &handler()),
            registry.add_module("a.b", None, &handler()),
            registry.add_module("", None, &handler()),
            registry.add_command("m", "../etc", handler()),
            registry.add_command("m", &"x".repeat(129), handler()),
        ] {
            refused.unwrap_err();
        }
    }
}
