//! Environment variables of options: usage errors that name them, and variables that are almost one of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    ffi::{OsStr, OsString},
};

use clap::{
    ArgMatches, Command,
    builder::StyledStr,
    error::{ContextKind, ContextValue},
};

use super::{command, command_of, logging::FILTER_VARIABLE};
use crate::{config::variables, flowfile::nearest};

/// What names of variables have between `WINDLASS_` and the option of a server.
const SERVER: &str = "SERVER_";

/// Kubernetes sets variables that begin like this, if there is a service with the name `windlass`.
const OF_KUBERNETES: &str = "SERVICE_";

/// The command line of the process. A usage error is printed and ends the process with 2.
pub(super) fn matches() -> ArgMatches {
    let arguments: Vec<OsString> = env::args_os().collect();
    let matches = command().try_get_matches_from(&arguments);
    matches.unwrap_or_else(|error| explained(error, &arguments).exit())
}

/// The error as a user needs it: about the command line as it was written, or with the variable that it is about.
fn explained(error: clap::Error, arguments: &[OsString]) -> clap::Error {
    // clap counts an option with a variable as given, and shows it in usage lines as if it were required.
    let written = command_of(without_variables).try_get_matches_from(arguments);
    match written {
        Err(written) if written.kind() == error.kind() && written.get(ContextKind::Usage).is_some() => {
            written
        }
        _ => naming_variables(error, arguments),
    }
}

/// The same command, whose options have no variables.
fn without_variables(command: Command) -> Command {
    command.mut_args(|option| option.env(None::<&'static str>)).mut_subcommands(without_variables)
}

/// Adds the variables that set the options of this error.
fn naming_variables(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let mut of_error: Vec<String> = Vec::new();
    for kind in [ContextKind::InvalidArg, ContextKind::PriorArg] {
        match error.get(kind) {
            Some(ContextValue::String(option)) => of_error.push(option.clone()),
            Some(ContextValue::Strings(options)) => of_error.extend(options.iter().cloned()),
            _ => {}
        }
    }
    let mut tips: BTreeSet<String> = BTreeSet::new();
    each_variable(&command(), &mut |option, variable| {
        let flag = option.get_long().map(|long| format!("--{long}")).unwrap_or_default();
        let is_written = arguments.iter().filter_map(|argument| argument.to_str()).any(|argument| {
            argument.strip_prefix(&flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        });
        if of_error.contains(&option.to_string()) && !is_written && env::var_os(variable).is_some() {
            tips.insert(format!("{flag} comes from the variable {}", variable.display()));
        }
    });
    if !tips.is_empty() {
        let tips = tips.into_iter().map(StyledStr::from).collect();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

/// Calls `found` with each option of the command and its subcommands that has a variable.
fn each_variable(command: &Command, found: &mut impl FnMut(&clap::Arg, &OsStr)) {
    for option in command.get_arguments() {
        if let Some(variable) = option.get_env() {
            found(option, variable);
        }
    }
    command.get_subcommands().for_each(|command| each_variable(command, found));
}

/// Warnings about unknown variables whose names are almost those of known ones.
pub(super) fn misspelt_variables() -> Vec<String> {
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let warning =
        |(name, meant)| format!("the variable {name} is unknown and ignored: did you mean {meant}?");
    misspelt(names).into_iter().map(warning).collect()
}

/// Of these variables those that are almost one that has a meaning, each with that one.
fn misspelt(names: impl IntoIterator<Item = String>) -> Vec<(String, String)> {
    let mut known: BTreeSet<String> = BTreeSet::from([FILTER_VARIABLE.to_owned()]);
    // A variable has not always the name of its option.
    let mut of_options: BTreeMap<String, String> = BTreeMap::new();
    each_variable(&command(), &mut |option, variable| {
        let Some(variable) = variable.to_str() else { return };
        known.insert(variable.to_owned());
        if let Some(long) = option.get_long() {
            of_options.insert(long.replace('-', "_").to_uppercase(), variable.to_owned());
        }
    });
    let known: Vec<&str> = known.iter().filter_map(|name| name.strip_prefix(variables::PREFIX)).collect();
    let of_server = known.iter().filter_map(|name| name.strip_prefix(SERVER));
    let candidates: Vec<&str> = known.iter().copied().chain(of_server).collect();
    let of_option = |own: &str| of_options.get(own.strip_prefix(SERVER).unwrap_or(own)).cloned();
    let meant = |name: String| {
        let own = name.strip_prefix(variables::PREFIX)?;
        if known.contains(&own) || variables::names_a_key(&name) || own.starts_with(OF_KUBERNETES) {
            return None;
        }
        if let Some(meant) = of_option(own) {
            return Some((name, meant));
        }
        let near = nearest(own, candidates.iter().copied())?;
        let server = if known.contains(&near) { "" } else { SERVER };
        let near = format!("{}{server}{near}", variables::PREFIX);
        Some((name, near))
    };
    let mut found: Vec<(String, String)> = names.into_iter().filter_map(meant).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_with_a_typing_mistake_are_found_and_those_of_others_are_not() {
        let of = |names: &[&str]| misspelt(names.iter().map(|name| (*name).to_owned()));
        for (name, meant) in [
            ("WINDLASS_LISTNE", "WINDLASS_SERVER_LISTEN"),
            ("WINDLASS_STORE", "WINDLASS_SERVER_STORE"),
            ("WINDLASS_SERVER_LISTNE", "WINDLASS_SERVER_LISTEN"),
            ("WINDLASS_LOG_LEVEL", "WINDLASS_LOG"),
            ("WINDLASS_TOKEN_FIEL", "WINDLASS_TOKEN_FILE"),
            ("WINDLASS_REQUIRE_TOKENS", "WINDLASS_ACCESS_TOKENS"),
            ("WINDLASS_SERVER_REQUIRE_TOKENS", "WINDLASS_ACCESS_TOKENS"),
            ("WINDLASS_ADMIN_TOKEN_FILE", "WINDLASS_ACCESS_ADMIN_TOKEN_FILE"),
        ] {
            assert_eq!(of(&[name]), [(name.to_owned(), meant.to_owned())]);
        }
        for name in [
            "WINDLASS_SERVER_LISTEN",
            "WINDLASS_LOG",
            "WINDLASS_QUEUES__mysql__BROKER",
            "WINDLASS_STEP",
            "WINDLASS_ATTEMPT_TOKEN",
            "WINDLASS_SERVICE_HOST",
            "WINDLASS_PORT_7700_TCP_ADDR",
            "WINDLASS_DATABASE",
            "LISTEN",
        ] {
            assert_eq!(of(&[name]), [], "{name}");
        }
    }
}
