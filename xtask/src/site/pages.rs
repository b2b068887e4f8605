//! The pages of the site and their order.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use crate::{
    style::links::{resolve, within},
    workspace::Workspace,
};

/// The page whose tables are the navigation.
pub(super) const INDEX: &str = "docs/README.md";

/// Folders whose pages are on the site, and pages in the root.
const FOLDERS: &[&str] = &["docs/", "examples/"];
const IN_ROOT: &[&str] = &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];

/// How pages are parsed, everywhere.
pub(super) const OPTIONS: Options = Options::ENABLE_TABLES.union(Options::ENABLE_STRIKETHROUGH);

/// One page.
#[derive(Debug)]
pub(super) struct Page {
    /// Its file, relative to the root.
    pub(super) path: String,
    /// Its Markdown.
    pub(super) text: String,
    /// Its first heading.
    pub(super) title: String,
}

impl Page {
    /// Its file on the site.
    pub(super) fn output(&self) -> String {
        output(&self.path)
    }
}

/// The file on the site of a Markdown file.
pub(super) fn output(path: &str) -> String {
    match path.strip_suffix("README.md") {
        Some(folder) => format!("{folder}index.html"),
        None => format!("{}.html", path.strip_suffix(".md").unwrap_or(path)),
    }
}

/// A group of the navigation.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) title: String,
    /// Pages, each with the words of its link.
    pub(super) pages: Vec<(String, String)>,
}

/// All pages.
#[derive(Debug)]
pub(super) struct Pages {
    pages: BTreeMap<String, Page>,
    pub(super) navigation: Vec<Group>,
}

impl Pages {
    /// Reads the pages among these files.
    pub(super) fn read(workspace: &Workspace, files: &[String]) -> anyhow::Result<Self> {
        let is_page = |path: &&String| {
            path.ends_with(".md")
                && (IN_ROOT.contains(&path.as_str()) || FOLDERS.iter().any(|folder| path.starts_with(folder)))
        };
        let mut pages = BTreeMap::new();
        for path in files.iter().filter(is_page) {
            pages.insert(path.clone(), page(path, workspace.read(path)?)?);
        }
        Self::new(pages)
    }

    fn new(pages: BTreeMap<String, Page>) -> anyhow::Result<Self> {
        let index = pages.get(INDEX).with_context(|| format!("{INDEX} is missing"))?;
        let navigation = navigation(&index.text, |path| pages.contains_key(path));
        Ok(Self { pages, navigation })
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Page> {
        self.pages.values()
    }

    /// Whether a file is a page.
    pub(super) fn has(&self, path: &str) -> bool {
        self.pages.contains_key(path)
    }

    /// The pages before and after this one in the navigation, with the words of their links.
    pub(super) fn neighbours(&self, path: &str) -> [Option<&(String, String)>; 2] {
        let order: Vec<_> = self.navigation.iter().flat_map(|group| &group.pages).collect();
        let Some(at) = order.iter().position(|(page, _)| page == path) else { return [None, None] };
        [at.checked_sub(1).map(|before| order[before]), order.get(at + 1).copied()]
    }

    /// Pages that no way of links from the index leads to.
    pub(super) fn unreachable(&self) -> Vec<&str> {
        let mut reached = BTreeSet::from([INDEX]);
        let mut open = vec![INDEX];
        while let Some(page) = open.pop().and_then(|path| self.pages.get(path)) {
            for target in targets(&page.path, &page.text) {
                if let Some((path, _)) = self.pages.get_key_value(&target)
                    && reached.insert(path)
                {
                    open.push(path);
                }
            }
        }
        self.pages.keys().map(String::as_str).filter(|path| !reached.contains(path)).collect()
    }
}

fn page(path: &str, text: String) -> anyhow::Result<Page> {
    let title = text.lines().find_map(|line| line.strip_prefix("# "));
    let title = title.with_context(|| format!("{path} has no heading: begin it with `# TITLE`"))?;
    let title = plain(title);
    Ok(Page { path: path.to_owned(), text, title })
}

/// The words of a line of Markdown.
pub(super) fn plain(line: &str) -> String {
    let words = Parser::new_ext(line, OPTIONS).filter_map(|event| match event {
        Event::Text(text) | Event::Code(text) | Event::InlineHtml(text) => Some(text.into_string()),
        Event::SoftBreak | Event::HardBreak => Some(" ".to_owned()),
        _ => None,
    });
    words.collect()
}

/// The files that the links of a page lead to.
fn targets(path: &str, text: &str) -> Vec<String> {
    let targets = Parser::new_ext(text, OPTIONS).filter_map(|event| match event {
        Event::Start(Tag::Link { dest_url, .. }) => target(path, &dest_url),
        _ => None,
    });
    targets.collect()
}

/// The file that a link on a page leads to; nothing for links to the page itself and to elsewhere.
pub(super) fn target(path: &str, link: &str) -> Option<String> {
    let (file, _) = within(link).filter(|(file, _)| !file.is_empty())?;
    resolve(path, file)
}

/// The second-level headings of the index, each with the pages that are linked below it. A page is listed once.
fn navigation(index: &str, is_page: impl Fn(&str) -> bool) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut listed = BTreeSet::new();
    let (mut heading, mut link): (Option<String>, Option<(String, String)>) = (None, None);
    for event in Parser::new_ext(index, OPTIONS) {
        match event {
            Event::Start(Tag::Heading { level: HeadingLevel::H2, .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(HeadingLevel::H2)) => {
                let title = heading.take().unwrap_or_default();
                groups.push(Group { title, pages: Vec::new() });
            }
            Event::Start(Tag::Link { dest_url, .. }) => {
                let file = target(INDEX, &dest_url).filter(|path| is_page(path));
                link = file.map(|file| (file, String::new()));
            }
            Event::End(TagEnd::Link) => {
                if let (Some((file, words)), Some(group)) = (link.take(), groups.last_mut())
                    && listed.insert(file.clone())
                {
                    group.pages.push((file, capitalised(&words)));
                }
            }
            Event::Text(text) | Event::Code(text) | Event::InlineHtml(text) => {
                let words = heading.as_mut().or(link.as_mut().map(|(_, words)| words));
                words.into_iter().for_each(|words| words.push_str(&text));
            }
            _ => {}
        }
    }
    groups.retain(|group| !group.pages.is_empty());
    groups
}

fn capitalised(words: &str) -> String {
    let mut characters = words.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Pages {
        /// Pages of these texts, for tests.
        pub(in crate::site) fn of(texts: &[(&str, &str)]) -> Self {
            let read =
                |(path, text): &(&str, &str)| ((*path).to_owned(), page(path, (*text).to_owned()).unwrap());
            Self::new(texts.iter().map(read).collect()).unwrap()
        }
    }

    #[test]
    fn the_navigation_is_the_index() {
        let index = "# Docs\n\n[not](a.md)\n\n## One\n\n| [a *b*](a.md) | [`c`](../README.md#x) · [again](a.md) |\n|-|-|\n\n\
                     ## None\n\ntext [out](https://x.invalid) [file](x.json)\n\n## Two\n\n- [d](d/README.md)\n";
        let pages = Pages::of(&[
            (INDEX, index),
            ("docs/a.md", "# A"),
            ("README.md", "# R"),
            ("docs/d/README.md", "# D"),
        ]);
        let group = |title: &str, pages: &[(&str, &str)]| Group {
            title: title.to_owned(),
            pages: pages.iter().map(|(path, words)| ((*path).to_owned(), (*words).to_owned())).collect(),
        };
        assert_eq!(
            pages.navigation,
            [
                group("One", &[("docs/a.md", "A b"), ("README.md", "C")]),
                group("Two", &[("docs/d/README.md", "D")])
            ]
        );
        let words = |page: Option<&(String, String)>| page.map(|(_, words)| words.clone());
        assert_eq!(pages.neighbours("README.md").map(words), [Some("A b".to_owned()), Some("D".to_owned())]);
        assert_eq!(pages.neighbours("docs/a.md").map(words), [None, Some("C".to_owned())]);
        assert_eq!(pages.neighbours(INDEX), [None, None]);
    }

    #[test]
    fn a_page_that_nothing_links_to_is_found() {
        let pages = Pages::of(&[
            (INDEX, "# Docs\n\n[a](a.md)"),
            ("docs/a.md", "# A\n\n[b](../docs/b.md#x)\n\n```\n[c](c.md)\n```"),
            ("docs/b.md", "# B"),
            ("docs/c.md", "# C"),
        ]);
        assert_eq!(pages.unreachable(), ["docs/c.md"]);
    }

    #[test]
    fn a_page_has_a_title_and_a_file() {
        assert_eq!(page("a.md", "x\n# The `b` & c\n".to_owned()).unwrap().title, "The b & c");
        assert!(page("a.md", "no heading".to_owned()).unwrap_err().to_string().contains("a.md"));
        assert_eq!(output("docs/a/b.md"), "docs/a/b.html");
        assert_eq!(output("README.md"), "index.html");
        assert_eq!(output("docs/README.md"), "docs/index.html");
    }
}
