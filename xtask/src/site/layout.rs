//! What is around the text of a page, and the index of the search.

use std::fmt::Write as _;

use pulldown_cmark::HeadingLevel;
use serde::Serialize;

use super::{
    pages::{INDEX, Page, Pages, output},
    render::{Rendered, relative},
};

/// The longest text of an entry of the search, in characters: enough for a match and what is around it.
const ENTRY_CHARS_MAX: usize = 1_500;

/// A section that the search can find.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Entry {
    /// Where it is, from the root of the site.
    url: String,
    /// The title of its page.
    page: String,
    /// Its heading.
    title: String,
    text: String,
}

/// The entries of a page.
pub(super) fn search_entries(page: &Page, rendered: &Rendered) -> Vec<Entry> {
    let entry = |section: &super::render::Section| Entry {
        url: match section.id.as_str() {
            "" => page.output(),
            id => format!("{}#{id}", page.output()),
        },
        page: page.title.clone(),
        title: section.title.clone(),
        text: section
            .text
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .chars()
            .take(ENTRY_CHARS_MAX)
            .collect(),
    };
    rendered.sections.iter().map(entry).collect()
}

/// The index of the search, as a script: pages that are opened as files cannot fetch anything.
pub(super) fn search_index(entries: &[Entry]) -> anyhow::Result<String> {
    // So that no text can end the element that holds the script.
    let entries = serde_json::to_string(entries)?.replace('<', "\\u003c");
    Ok(format!("window.searchIndex = {entries};\n"))
}

/// A whole page.
pub(super) fn page(pages: &Pages, page: &Page, rendered: &Rendered) -> String {
    let from = page.output();
    let to = |file: &str| relative(&from, file);
    let root = from.matches('/').count();
    let root = "../".repeat(root);
    let title = match page.path.as_str() {
        "README.md" => page.title.clone(),
        _ => format!("{} · Windlass", page.title),
    };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <link rel=\"stylesheet\" href=\"{css}\">\n</head>\n<body data-root=\"{root}\">\n\
         <a class=\"skip\" href=\"#content\">Skip to the text</a>\n\
         <header>\n<a class=\"name\" href=\"{home}\">Windlass</a>\n\
         <form role=\"search\" onsubmit=\"return false\"><label for=\"search\">Search</label>\
         <input id=\"search\" type=\"search\" autocomplete=\"off\" placeholder=\"Search (press /)\"></form>\n\
         <a href=\"{index}\">All pages</a>\n</header>\n<div id=\"results\" role=\"region\" aria-live=\"polite\" aria-label=\"Results\" hidden></div>\n\
         <div class=\"columns\">\n{navigation}<main id=\"content\">\n{html}{neighbours}</main>\n{contents}</div>\n\
         <script src=\"{search}\" defer></script>\n<script src=\"{js}\" defer></script>\n</body>\n</html>\n",
        title = escape(&title),
        css = to("site.css"),
        home = to("index.html"),
        index = to(&output(INDEX)),
        navigation = navigation(pages, page),
        html = rendered.html,
        neighbours = neighbours(pages, page),
        contents = contents(rendered),
        search = to("search.js"),
        js = to("site.js"),
    )
}

fn navigation(pages: &Pages, page: &Page) -> String {
    let from = page.output();
    let mut html =
        String::from("<nav class=\"pages\" aria-label=\"Pages\">\n<details open><summary>Pages</summary>\n");
    for group in &pages.navigation {
        let _ = write!(html, "<h2>{}</h2>\n<ul>\n", escape(&group.title));
        for (path, words) in &group.pages {
            let current = if *path == page.path { " aria-current=\"page\"" } else { "" };
            let url = relative(&from, &output(path));
            let _ = writeln!(html, "<li><a href=\"{url}\"{current}>{}</a></li>", escape(words));
        }
        html.push_str("</ul>\n");
    }
    html.push_str("</details>\n</nav>\n");
    html
}

fn neighbours(pages: &Pages, page: &Page) -> String {
    let from = page.output();
    let link = |side: &str, found: Option<&(String, String)>| match found {
        Some((path, words)) => {
            let url = relative(&from, &output(path));
            format!("<a rel=\"{side}\" href=\"{url}\">{}</a>\n", escape(words))
        }
        None => String::new(),
    };
    let [before, after] = pages.neighbours(&page.path);
    if before.is_none() && after.is_none() {
        return String::new();
    }
    format!(
        "<nav class=\"neighbours\" aria-label=\"Previous and next page\">\n{}{}</nav>\n",
        link("prev", before),
        link("next", after)
    )
}

/// The headings of the page.
fn contents(rendered: &Rendered) -> String {
    if rendered.headings.len() < 2 {
        return "<div class=\"contents\"></div>\n".to_owned();
    }
    let mut html =
        String::from("<nav class=\"contents\" aria-label=\"On this page\">\n<h2>On this page</h2>\n<ul>\n");
    for heading in &rendered.headings {
        let class = if heading.level == HeadingLevel::H3 { " class=\"sub\"" } else { "" };
        let _ = writeln!(html, "<li{class}><a href=\"#{}\">{}</a></li>", heading.id, escape(&heading.title));
    }
    html.push_str("</ul>\n</nav>\n");
    html
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::render::{Targets, render};

    fn pages() -> Pages {
        let index = "# Docs\n\n## Start\n\n[first <b>](a.md) [second](b/c.md)";
        Pages::of(&[
            (INDEX, index),
            ("docs/a.md", "# A & <i>"),
            ("docs/b/c.md", "# C\n\n## One\n\n### Two\n\ntext </script>"),
        ])
    }

    fn laid_out(path: &str) -> String {
        let pages = pages();
        let found = pages.all().find(|page| page.path == path).unwrap();
        let rendered = render(path, &found.text, &Targets { pages: &pages, repository: None });
        page(&pages, found, &rendered)
    }

    #[test]
    fn a_page_has_its_place_in_the_navigation() {
        let html = laid_out("docs/b/c.md");
        assert!(html.contains("<li><a href=\"c.html\" aria-current=\"page\">Second</a></li>"), "{html}");
        assert!(html.contains("<a rel=\"prev\" href=\"../a.html\">"), "{html}");
        assert!(
            html.contains("<body data-root=\"../../\">") && html.contains("href=\"../../site.css\""),
            "{html}"
        );
        assert!(html.contains("<li class=\"sub\"><a href=\"#two\">Two</a></li>"), "{html}");
        assert!(!html.contains("rel=\"next\""), "{html}");
    }

    #[test]
    fn titles_are_escaped_and_no_text_ends_the_script() {
        let html = laid_out("docs/a.md");
        assert!(html.contains("<title>A &amp; &lt;i&gt; · Windlass</title>"), "{html}");
        let pages = pages();
        let found = pages.all().find(|page| page.path == "docs/b/c.md").unwrap();
        let rendered = render("docs/b/c.md", &found.text, &Targets { pages: &pages, repository: None });
        let entries = search_entries(found, &rendered);
        let urls: Vec<&str> = entries.iter().map(|entry| entry.url.as_str()).collect();
        assert_eq!(urls, ["docs/b/c.html", "docs/b/c.html#one", "docs/b/c.html#two"]);
        assert!(!search_index(&entries).unwrap().contains("</script>"));
    }
}
