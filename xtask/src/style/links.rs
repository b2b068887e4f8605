//! Relative links of the Markdown files: the file is there, and so is the heading.

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
};

use crate::{findings::Findings, workspace::Workspace};

/// Checks the links of all Markdown files.
pub(crate) fn check(workspace: &Workspace, files: &[String]) -> anyhow::Result<Findings> {
    let mut findings = Findings::default();
    for path in files.iter().filter(|path| path.ends_with(".md")) {
        let text = workspace.read(path)?;
        for (line, target) in links(&text) {
            if let Err(fault) = check_link(workspace, path, &text, target) {
                findings.add(format_args!("{path}:{line}"), format_args!("the link to `{target}` {fault}"));
            }
        }
    }
    Ok(findings)
}

fn check_link(workspace: &Workspace, from: &str, text: &str, target: &str) -> Result<(), String> {
    let Some((file, heading)) = within(target) else { return Ok(()) };
    let other;
    let text = if file.is_empty() {
        text
    } else {
        let path = resolve(from, file).ok_or("leaves the project")?;
        if !workspace.path(&path).exists() {
            return Err("leads nowhere: there is no such file".to_owned());
        }
        if heading.is_none() {
            return Ok(());
        }
        other = workspace.read(&path).map_err(|error| error.to_string())?;
        &other
    };
    match heading {
        Some(heading) if !headings(text).any(|slug| slug == heading) => {
            Err("names a heading that is not there".to_owned())
        }
        _ => Ok(()),
    }
}

/// The file and the heading of a link that stays within the project; the file is empty for the same page.
pub(crate) fn within(target: &str) -> Option<(&str, Option<&str>)> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    Some(target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading))))
}

/// The path of `target` as seen from the file `from`, both relative to the root.
pub(crate) fn resolve(from: &str, target: &str) -> Option<String> {
    let mut path = PathBuf::from(from);
    path.pop();
    for component in Path::new(target).components() {
        match component {
            Component::Normal(part) => path.push(part),
            Component::ParentDir => {
                if !path.pop() {
                    return None;
                }
            }
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    path.to_str().map(str::to_owned)
}

/// The lines of a text outside fenced blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        (!fenced).then_some((index + 1, line))
    })
}

/// Targets of inline links with the number of their line.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).flat_map(|(number, line)| {
        line.match_indices("](").filter_map(move |(at, open)| {
            let rest = &line[at + open.len()..];
            Some((number, &rest[..rest.find(')')?]))
        })
    })
}

/// The names under which the headings of a text can be linked to.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let mut names = HeadingNames::default();
    let titles = prose(text).filter(|(_, line)| line.starts_with('#'));
    titles.map(move |(_, line)| names.next(line.trim_start_matches('#').trim()))
}

/// Names the headings of one page, in their order.
#[derive(Debug, Default)]
pub(crate) struct HeadingNames(BTreeMap<String, usize>);

impl HeadingNames {
    /// The name of the next heading: lower case, words joined by hyphens, nothing but letters, digits, hyphens and
    /// underscores. A number distinguishes it from earlier headings of the same name.
    pub(crate) fn next(&mut self, title: &str) -> String {
        let kept = |c: char| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        };
        let name: String = title.to_lowercase().chars().filter_map(kept).collect();
        let seen = self.0.entry(name.clone()).or_default();
        *seen += 1;
        match *seen {
            1 => name,
            more => format!("{name}-{}", more - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_outside_of_code_are_found() {
        let text = "a [b](c.md) [d](#e)\n```\n[no](link)\n```\n[f](../g.md#h)";
        assert_eq!(links(text).collect::<Vec<_>>(), [(1, "c.md"), (1, "#e"), (5, "../g.md#h")]);
    }

    #[test]
    fn targets_are_resolved_from_their_file() {
        assert_eq!(resolve("docs/a/b.md", "../c.md").as_deref(), Some("docs/c.md"));
        assert_eq!(resolve("README.md", "./docs/").as_deref(), Some("docs"));
        assert_eq!(resolve("README.md", "../x"), None);
    }

    #[test]
    fn headings_have_the_names_that_links_use() {
        let text = "# What happens when…\n## task show, watch, why\n```\n# no heading\n```\n### `flow.yaml`";
        let slugs: Vec<String> = headings(text).collect();
        assert_eq!(slugs, ["what-happens-when", "task-show-watch-why", "flowyaml"]);
        let repeated: Vec<String> = headings("# A\n## B\n## B\n## `B`").collect();
        assert_eq!(repeated, ["a", "b", "b-1", "b-2"]);
    }
}
