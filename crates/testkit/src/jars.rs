//! The jars of servers that are written in Java, and the Java program that runs them.

use std::path::{Path, PathBuf};

/// How to install Java and the jars.
const HOW_TO_GET: &str = "apt-get install default-jre-headless maven, then crates/testkit/jars/fetch";

/// The variable that names the folder with the jars.
const VARIABLE: &str = "TESTKIT_JARS";

/// The jars of one product.
#[derive(Debug)]
pub(crate) struct Jars {
    /// The path of the program `java`.
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

    /// How to install what is missing, for the message of a test that is skipped.
    pub(crate) fn how_to_get() -> String {
        HOW_TO_GET.to_owned()
    }

    /// The folder of the product.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// All jars, in the form of Java's option `-cp`.
    pub(crate) fn class_path(&self) -> String {
        self.folder.join("*").display().to_string()
    }
}

/// The folder with one folder for each product.
fn folder() -> Option<PathBuf> {
    cache(VARIABLE, "jars")
}

/// The folder that this variable names. Without the variable, the folder of this name in the cache of `.ci/run`.
pub(crate) fn cache(variable: &str, name: &str) -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os(variable).filter(|folder| !folder.is_empty()) {
        return Some(folder.into());
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|cache| !cache.is_empty()).map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    Some(cache?.join("windlass-ci").join(name))
}
