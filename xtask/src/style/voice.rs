//! Words and phrases for which the project has better ones: how often each folder still has them may only fall.
//!
//! Both are in `xtask/voice.toml`: which phrases, and how often each folder has them. `cargo xtask style --bless` writes
//! lower counts down. A folder that is not named there has none.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::prose;
use crate::{findings::Findings, workspace::Workspace};

const FILE: &str = "xtask/voice.toml";

/// How many places a finding names.
const PLACES_MAX: usize = 5;

#[derive(Deserialize)]
struct Voice {
    /// What to write instead of a phrase.
    instead: BTreeMap<String, String>,
    /// Good English that has such a phrase in it.
    except: Vec<String>,
    /// How often the files directly in a folder have such phrases.
    folders: BTreeMap<String, usize>,
}

/// A phrase in a file.
struct Place<'v> {
    path: String,
    line: usize,
    phrase: &'v str,
}

/// Checks that no folder has more than are written down. Fewer are no finding: `bless` lowers the count.
pub(super) fn check(workspace: &Workspace, files: &[String]) -> Result<Findings> {
    let voice = read(workspace)?;
    let mut findings = Findings::default();
    let found = count(workspace, files, &voice);
    for (folder, places) in &found {
        let allowed = voice.folders.get(folder).copied().unwrap_or_default();
        if places.len() > allowed {
            // The last ones: most often, what is new is behind what was there.
            for place in places.iter().rev().take(PLACES_MAX) {
                findings.add(
                    format_args!("{}:{}", place.path, place.line),
                    format_args!(
                        "`{}`: write {}. {folder} has {} such phrases, and {allowed} are written down",
                        place.phrase,
                        voice.instead[place.phrase],
                        places.len()
                    ),
                );
            }
        }
    }
    Ok(findings)
}

/// Writes lower counts down; those that rose stay as they are.
pub(crate) fn bless(workspace: &Workspace) -> Result<()> {
    let voice = read(workspace)?;
    let found = count(workspace, &workspace.files()?, &voice);
    let path = workspace.path(FILE);
    let text = workspace.read(FILE)?;
    let (phrases, _) = text.split_once("[folders]").context("there is no [folders]")?;
    let mut text = format!("{phrases}[folders]\n");
    for (folder, allowed) in &voice.folders {
        let now = found.get(folder).map_or(0, Vec::len).min(*allowed);
        if now > 0 {
            text.push_str(&format!("{folder:?} = {now}\n"));
        }
    }
    std::fs::write(&path, text).with_context(|| format!("cannot write {FILE}"))
}

fn read(workspace: &Workspace) -> Result<Voice> {
    toml::from_str(&workspace.read(FILE)?).with_context(|| format!("cannot read {FILE}"))
}

/// The phrases in each folder.
fn count<'v>(workspace: &Workspace, files: &[String], voice: &'v Voice) -> BTreeMap<String, Vec<Place<'v>>> {
    let mut found: BTreeMap<String, Vec<Place<'v>>> = BTreeMap::new();
    for path in files {
        let Ok(text) = workspace.read(path) else { continue };
        let folder = path.rsplit_once('/').map_or(".", |(folder, _)| folder);
        for (line, piece) in prose::of_file(path, &text) {
            let piece = voice.except.iter().fold(piece.to_lowercase(), |piece, good| piece.replace(good, ""));
            for phrase in voice.instead.keys() {
                let times = occurrences(&piece, phrase);
                let places = (0..times).map(|_| Place { path: path.clone(), line, phrase });
                found.entry(folder.to_owned()).or_default().extend(places);
            }
        }
    }
    found
}

/// How often `phrase` is in `text` as words of its own: names in it are not prose, such as the variable of `{undo}` and
/// the command of `disk.undo`.
fn occurrences(text: &str, phrase: &str) -> usize {
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    let is_whole = |at: &usize| {
        let (before, after) = (text[..*at].chars().next_back(), text[at + phrase.len()..].chars().next());
        !before.is_some_and(|c| is_letter(c) || "{.-".contains(c)) && !after.is_some_and(is_letter)
    };
    text.match_indices(phrase).map(|(at, _)| at).filter(is_whole).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrases_are_found_as_words_of_their_own() {
        assert_eq!(occurrences("a step, the step's and steps", "step"), 2);
        assert_eq!(occurrences("one_step_or_1step and step", "step"), 1);
        assert_eq!(occurrences("{step}, {step:?}, disk.step, two-step and step", "step"), 1);
    }
}
