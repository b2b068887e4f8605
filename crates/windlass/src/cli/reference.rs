//! The reference page and the program agree.

use super::command;

const PAGE: &str = include_str!("../../../../docs/reference/cli.md");

#[test]
fn every_command_and_option_is_on_the_page() {
    fn check(command: &clap::Command, path: &str) {
        for subcommand in command.get_subcommands() {
            let name = subcommand.get_name();
            assert!(
                PAGE.contains(&format!("windlass {path}{name}")),
                "windlass {path}{name} is not on the page"
            );
            check(subcommand, &format!("{path}{name} "));
        }
        for long in command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(clap::Arg::get_long) {
            let there = PAGE.contains(&format!("--{long}"))
                || matches!(long, "help" | "version" | "output" | "param");
            assert!(there, "--{long} of windlass {path}is not on the page");
        }
    }
    check(&command(), "");
}

#[test]
fn every_example_is_understood() {
    let examples: Vec<&str> = PAGE.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    assert!(examples.len() >= 8, "the page has examples");
    for example in examples {
        let line = example.strip_prefix("id=$(").map_or(example, |line| line.trim_end_matches(')'));
        let line = line.split([';', '|', '>', '&']).next().unwrap();
        if let Err(error) = command().try_get_matches_from(words(line)) {
            panic!("{example}: {error}");
        }
    }
}

/// The words of a shell's line, as far as the page needs it.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in line.split('\'').enumerate() {
        if index % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}
