//! Where the jars of servers written in Java are, and the program that runs them.

use std::path::PathBuf;

/// What to do where Java or the jars are missing.
const HOW_TO_GET: &str = "apt-get install default-jre-headless maven, then crates/testkit/jars/fetch";

/// Says where the jars are.
const VARIABLE: &str = "WINDLASS_JARS";

/// A program in Java.
#[derive(Debug)]
pub(crate) struct Jars {
    /// The program that runs it.
    pub(crate) java: PathBuf,
    folder: PathBuf,
}

impl Jars {
    /// Finds Java and the folder of a product.
    pub(crate) fn find(name: &str) -> Option<Self> {
        let in_path = std::env::var_os("PATH").unwrap_or_default();
        let java = std::env::split_paths(&in_path).map(|folder| folder.join("java"));
        let java = java.into_iter().find(|path| path.is_file())?;
        let folder = folder()?.join(name);
        folder.is_dir().then_some(Self { java, folder })
    }

    /// What a test says when there are none.
    pub(crate) fn how_to_get() -> String {
        HOW_TO_GET.to_owned()
    }

    /// All of them, as Java wants to be told.
    pub(crate) fn class_path(&self) -> String {
        self.folder.join("*").display().to_string()
    }
}

/// The folder of all products, one folder each below it.
fn folder() -> Option<PathBuf> {
    cache(VARIABLE, "jars")
}

/// The folder that a variable names, or the one of this name where `.ci/run` keeps what it fetched and built.
pub(crate) fn cache(variable: &str, name: &str) -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os(variable).filter(|folder| !folder.is_empty()) {
        return Some(folder.into());
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|cache| !cache.is_empty()).map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    Some(cache?.join("windlass-ci").join(name))
}
