//! One page of Markdown as HTML, with its links as they are on the site.

use pulldown_cmark::{CowStr, Event, HeadingLevel, Parser, Tag, TagEnd, html};

use super::pages::{OPTIONS, Pages, output, target};
use crate::style::links::HeadingNames;

/// What links can lead to.
pub(super) struct Targets<'a> {
    pub(super) pages: &'a Pages,
    /// The address under which sources of the project can be read.
    pub(super) repository: Option<&'a str>,
}

/// A page as HTML.
#[derive(Debug, Default)]
pub(super) struct Rendered {
    pub(super) html: String,
    /// Its second-level and third-level headings.
    pub(super) headings: Vec<Heading>,
    /// Its text, by headings.
    pub(super) sections: Vec<Section>,
    /// Files of the project that the page shows or links to, and that are copied to the site.
    pub(super) copies: Vec<String>,
}

/// A heading of a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Heading {
    pub(super) level: HeadingLevel,
    pub(super) id: String,
    pub(super) title: String,
}

/// The text under a heading, for the search.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Section {
    /// Empty at the beginning of the page.
    pub(super) id: String,
    pub(super) title: String,
    pub(super) text: String,
}

/// Where a link leads on the site.
#[derive(Debug, PartialEq, Eq)]
enum Link {
    To(String),
    /// A source that the site does not have: its words stay, without a link.
    Nowhere,
}

/// Renders a page.
pub(super) fn render(path: &str, text: &str, targets: &Targets<'_>) -> Rendered {
    let mut rendered = Rendered { sections: vec![Section::default()], ..Rendered::default() };
    let mut names = HeadingNames::default();
    let mut events: Vec<Event<'_>> = Vec::new();
    let mut heading: Option<usize> = None;
    let mut unlinked = 0;
    for event in Parser::new_ext(text, OPTIONS) {
        match event {
            Event::Start(Tag::Heading { .. }) => {
                heading = Some(events.len());
                events.push(event);
            }
            Event::End(TagEnd::Heading(level)) => {
                let begin = heading.take().unwrap_or(events.len());
                let title = words(&events[begin..]);
                let id = names.next(&title);
                name_heading(&mut events[begin], &id);
                if matches!(level, HeadingLevel::H2 | HeadingLevel::H3) {
                    rendered.headings.push(Heading { level, id: id.clone(), title: title.clone() });
                }
                let id = if level == HeadingLevel::H1 { String::new() } else { id };
                rendered.sections.push(Section { id, title, text: String::new() });
                events.push(event);
            }
            Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                match link(path, &dest_url, targets, &mut rendered.copies) {
                    Link::To(url) => {
                        events.push(Event::Start(Tag::Link { link_type, dest_url: url.into(), title, id }));
                    }
                    Link::Nowhere => unlinked += 1,
                }
            }
            Event::End(TagEnd::Link) if unlinked > 0 => unlinked -= 1,
            Event::Start(Tag::Image { ref dest_url, .. }) => {
                rendered.copies.extend(target(path, dest_url));
                events.push(event);
            }
            // As on a code host, a comment is not shown; anything else is text, whatever it would do in a browser.
            Event::Html(ref html) | Event::InlineHtml(ref html) if html.trim_start().starts_with("<!--") => {}
            Event::Html(html) | Event::InlineHtml(html) => events.push(Event::Text(html)),
            Event::Start(Tag::Table(_)) => {
                events.push(Event::Html(CowStr::Borrowed("<div class=\"table\" tabindex=\"0\">")));
                events.push(event);
            }
            Event::End(TagEnd::Table) => {
                events.push(event);
                events.push(Event::Html(CowStr::Borrowed("</div>\n")));
            }
            Event::Text(ref text) | Event::Code(ref text) => {
                if heading.is_none()
                    && let Some(section) = rendered.sections.last_mut()
                {
                    section.text.push_str(text);
                    section.text.push(' ');
                }
                events.push(event);
            }
            event => events.push(event),
        }
    }
    html::push_html(&mut rendered.html, events.into_iter());
    rendered.sections.retain(|section| !section.text.trim().is_empty() || !section.title.is_empty());
    rendered
}

/// The words of these events.
fn words(events: &[Event<'_>]) -> String {
    let words = events.iter().filter_map(|event| match event {
        Event::Text(text) | Event::Code(text) => Some(&**text),
        _ => None,
    });
    words.collect()
}

fn name_heading(event: &mut Event<'_>, name: &str) {
    if let Event::Start(Tag::Heading { id, .. }) = event {
        *id = Some(name.to_owned().into());
    }
}

/// Where a link on a page leads on the site. Files that are part of the documentation are copied.
fn link(path: &str, link: &str, targets: &Targets<'_>, copies: &mut Vec<String>) -> Link {
    let Some(file) = target(path, link) else { return Link::To(link.to_owned()) };
    let anchor = link.find('#').map_or("", |at| &link[at..]);
    let index = format!("{}/README.md", file.trim_end_matches('/'));
    let page = [&file, &index].into_iter().find(|file| targets.pages.has(file));
    let from = output(path);
    if let Some(page) = page {
        return Link::To(format!("{}{anchor}", relative(&from, &output(page))));
    }
    let is_file = file.rsplit('/').next().is_some_and(|name| name.contains('.'));
    if is_file && ["docs/", "examples/"].iter().any(|folder| file.starts_with(folder)) {
        let to = relative(&from, &file);
        copies.push(file);
        return Link::To(to);
    }
    match targets.repository {
        Some(repository) => Link::To(format!("{}/{file}{anchor}", repository.trim_end_matches('/'))),
        None => Link::Nowhere,
    }
}

/// The way from one file of the site to another.
pub(super) fn relative(from: &str, to: &str) -> String {
    let from: Vec<&str> = from.split('/').collect();
    let to: Vec<&str> = to.split('/').collect();
    let folders = from.len().min(to.len()) - 1;
    let common = (0..folders).take_while(|at| from[*at] == to[*at]).count();
    let up = std::iter::repeat_n("..", from.len() - 1 - common);
    up.chain(to[common..].iter().copied()).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::pages::INDEX;

    fn rendered(text: &str, repository: Option<&str>) -> Rendered {
        let pages = Pages::of(&[
            (INDEX, "# Docs"),
            ("docs/a/b.md", "# B"),
            ("docs/c.md", "# C"),
            ("README.md", "# R"),
            ("examples/e/README.md", "# E"),
        ]);
        render("docs/a/b.md", text, &Targets { pages: &pages, repository })
    }

    #[test]
    fn links_lead_to_pages_of_the_site() {
        for (link, to) in [
            ("../c.md#x-y", "../c.html#x-y"),
            ("#here", "#here"),
            ("../../README.md", "../../index.html"),
            ("../README.md", "../index.html"),
            ("../../examples/e", "../../examples/e/index.html"),
            ("https://example.invalid/a.md", "https://example.invalid/a.md"),
        ] {
            let html = rendered(&format!("[w]({link} \"t\")"), None).html;
            assert!(html.contains(&format!("<a href=\"{to}\" title=\"t\">w</a>")), "{html}");
        }
    }

    #[test]
    fn other_files_are_copied_or_are_links_to_the_repository() {
        let page = rendered(
            "[d](../x.json) ![p](../images/p.svg) [`s`](../../crates/core/src/lib.rs) [f](../../fuzz)",
            None,
        );
        assert_eq!(page.copies, ["docs/x.json", "docs/images/p.svg"]);
        assert!(page.html.contains("<a href=\"../x.json\">d</a>"), "{}", page.html);
        assert!(page.html.contains("<code>s</code> f"), "no link: {}", page.html);
        let page = rendered("[`s`](../../crates/core/src/lib.rs#L1)", Some("https://host.invalid/main/"));
        assert!(page.html.contains("https://host.invalid/main/crates/core/src/lib.rs#L1"), "{}", page.html);
    }

    #[test]
    fn headings_have_names_and_sections_have_text() {
        let page = rendered(
            "# T\n\nintro `x`\n\n## A `b.c`, d?\n\ntext\n\n### A b.c, d\n\n| h |\n|---|\n| cell |\n",
            None,
        );
        let ids: Vec<&str> = page.headings.iter().map(|heading| heading.id.as_str()).collect();
        assert_eq!(ids, ["a-bc-d", "a-bc-d-1"]);
        assert!(page.html.contains("<h2 id=\"a-bc-d\">A <code>b.c</code>, d?</h2>"), "{}", page.html);
        let texts: Vec<_> = page.sections.iter().map(|section| (&*section.id, section.text.trim())).collect();
        assert_eq!(texts, [("", "intro  x"), ("a-bc-d", "text"), ("a-bc-d-1", "h cell")]);
    }

    #[test]
    fn html_is_text() {
        let page =
            rendered("a <script>alert(1)</script> `<b>`\n\n<img src=x onerror=y>\n\n<!-- hidden -->\n", None);
        assert!(
            !page.html.contains("<script") && !page.html.contains("<img") && !page.html.contains("hidden"),
            "{}",
            page.html
        );
        assert!(page.html.contains("&lt;script&gt;"), "{}", page.html);
    }

    #[test]
    fn ways_between_files_are_relative() {
        assert_eq!(relative("docs/a/b.html", "docs/c.html"), "../c.html");
        assert_eq!(relative("index.html", "docs/c.html"), "docs/c.html");
        assert_eq!(relative("docs/a.html", "docs/b.html"), "b.html");
        assert_eq!(relative("docs/a/b.html", "index.html"), "../../index.html");
    }
}
