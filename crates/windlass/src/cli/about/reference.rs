//! Checks that the reference page matches the program.

use crate::cli::command;

const PAGE: &str = include_str!("../../../../../docs/reference/cli.md");

#[test]
fn every_command_and_option_is_on_the_page() {
    let mut missing = Vec::new();
    check(&command(), &mut Vec::new(), &mut missing);
    assert!(missing.is_empty(), "not on the page: {missing:#?}");
}

fn check<'c>(command: &'c clap::Command, path: &mut Vec<&'c str>, missing: &mut Vec<String>) {
    let section = section(path);
    let has_word = |word: &str| {
        section.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).any(|found| found == word)
    };
    // Global options are described once, and checked for the program itself.
    let is_own =
        |argument: &&clap::Arg| path.is_empty() || !argument.is_global_set() && argument.get_id() != "help";
    for argument in command.get_arguments().filter(is_own).filter(|argument| !argument.is_hide_set()) {
        let long = argument.get_long().map(|long| format!("--{long}"));
        let short = argument.get_short().map(|short| format!("-{short}"));
        let mut names = [long, short].into_iter().flatten().peekable();
        // The page may name either form.
        if names.peek().is_some() && !names.clone().any(|name| has_word(&name)) {
            missing.push(format!("windlass {} {}", path.join(" "), names.collect::<Vec<_>>().join(", ")));
        }
    }
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        path.push(subcommand.get_name());
        let name = format!("windlass {}", path.join(" "));
        if !self::section(path).contains(&name) {
            missing.push(name);
        }
        check(subcommand, path, missing);
        path.pop();
    }
}

/// The part of the page about a command: the text under a heading that names it with its parent, `### task
/// show, watch`, or else under the parent's heading. The whole page for the program itself.
fn section(path: &[&str]) -> String {
    let Some(first) = path.first() else { return PAGE.to_owned() };
    let sections = || PAGE.split("\n## ").skip(1).flat_map(|chapter| chapter.split("\n### ").enumerate());
    let title = |text: &'static str| -> Vec<&'static str> {
        text.lines().next().unwrap_or_default().split([' ', ',']).filter(|word| !word.is_empty()).collect()
    };
    let is_own = |words: &[&str]| {
        words.first() == Some(first) && path.get(1).is_none_or(|second| words[1..].contains(second))
    };
    let own = || sections().filter(|(_, text)| is_own(&title(text)));
    let above = || sections().filter(|(index, text)| *index == 0 && title(text) == [*first]);
    let found: Vec<&str> = own().map(|(_, text)| text).collect();
    if found.is_empty() { above().map(|(_, text)| text).collect() } else { found.concat() }
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

/// Splits a shell line into words, as far as the page needs it.
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
