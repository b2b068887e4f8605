//! The documentation as a site: HTML pages that need no server and nothing from elsewhere.
//!
//! ```text
//! *.md ─▶ pages: which, in which order ─▶ render: Markdown to HTML ─▶ layout: one file per page, and the search index
//! ```
//!
//! `docs/README.md` is the only list of pages: its headings and links are the navigation.

mod layout;
mod operations;
mod pages;
mod render;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context as _, ensure};

use crate::{findings::Findings, style::links, workspace::Workspace};
use pages::{INDEX, Page, Pages};
use render::Rendered;

/// Marks a folder that this chore has written, and may replace.
const MARK: &str = ".windlass-site";

/// Builds the site. `repository` is the address under which sources of the project can be read.
pub(crate) fn build(workspace: &Workspace, out: &Path, repository: Option<&str>) -> anyhow::Result<()> {
    let began = Instant::now();
    let out = workspace.path(&out.to_string_lossy());
    let files = workspace.files()?;
    links::check(workspace, &files)?.into_result()?;
    let pages = Pages::read(workspace, &files)?;
    check_reachable(&pages).into_result()?;
    clear(&out)?;
    let mut site = Site { workspace, out, pages: &pages, repository, written: 0, copied: 0 };
    let mut entries = Vec::new();
    for page in pages.all() {
        let rendered = site.render(page)?;
        entries.extend(layout::search_entries(page, &rendered));
        site.write(&page.output(), &layout::page(&pages, page, &rendered))?;
        for file in &rendered.copies {
            site.copy(file)?;
        }
    }
    site.write("site.css", include_str!("site.css"))?;
    site.write("site.js", include_str!("site.js"))?;
    site.write("search.js", &layout::search_index(&entries)?)?;
    println!(
        "{} pages, {} search entries, {} other files, in {:.1} s: {}",
        site.written,
        entries.len(),
        site.copied,
        began.elapsed().as_secs_f64(),
        site.out.join("index.html").display()
    );
    Ok(())
}

struct Site<'a> {
    workspace: &'a Workspace,
    out: PathBuf,
    pages: &'a Pages,
    repository: Option<&'a str>,
    written: usize,
    copied: usize,
}

impl Site<'_> {
    fn render(&self, page: &Page) -> anyhow::Result<Rendered> {
        let text = match operations::is_wanted(&page.text) {
            true => operations::insert(&page.text, &self.workspace.read(operations::CONTRACT)?)
                .with_context(|| format!("{}: the operations of {}", page.path, operations::CONTRACT))?,
            false => page.text.clone(),
        };
        Ok(render::render(
            &page.path,
            &text,
            &render::Targets { pages: self.pages, repository: self.repository },
        ))
    }

    fn write(&mut self, path: &str, text: &str) -> anyhow::Result<()> {
        let file = self.out.join(path);
        create_parent(&file)?;
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        self.written += usize::from(path.ends_with(".html"));
        Ok(())
    }

    /// Copies a file that a page links to, such as a picture.
    fn copy(&mut self, path: &str) -> anyhow::Result<()> {
        let to = self.out.join(path);
        if to.exists() {
            return Ok(());
        }
        create_parent(&to)?;
        fs::copy(self.workspace.path(path), &to).with_context(|| format!("cannot copy {path}"))?;
        self.copied += 1;
        Ok(())
    }
}

fn create_parent(file: &Path) -> anyhow::Result<()> {
    let folder = file.parent().unwrap_or(file);
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

/// Empties the folder. A folder that this chore did not write is left alone.
fn clear(out: &Path) -> anyhow::Result<()> {
    if out.exists() {
        ensure!(
            out.join(MARK).exists(),
            "{} is there and is not a site: remove it, or give another folder with --out",
            out.display()
        );
        fs::remove_dir_all(out).with_context(|| format!("cannot remove {}", out.display()))?;
    }
    fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    fs::write(out.join(MARK), "").with_context(|| format!("cannot write to {}", out.display()))
}

/// Every page can be reached from the index.
fn check_reachable(pages: &Pages) -> Findings {
    let mut findings = Findings::default();
    for page in pages.unreachable() {
        findings.add(page, format_args!("no page that {INDEX} leads to links here: add it there"));
    }
    findings
}
