//! Finds the commands of a module folder: every executable `DIR/<module>/<command>`.
//!
//! The worker reads the folder once, when it starts. After that it finds a command only by looking up its
//! name. It never joins a name from the network to a path, so no name can lead out of the folder.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use windlass_core::reserved_module;

/// The longest name of a module or a command.
const NAME_LENGTH_MAX: usize = 128;

/// Bits of a file's mode.
const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
const STICKY: u32 = 0o1000;
const WRITABLE_BY_OTHERS: u32 = 0o0002;

/// The modules and commands of one folder.
#[derive(Debug)]
pub struct Catalogue {
    modules: BTreeMap<String, BTreeMap<String, PathBuf>>,
    passed_over: Vec<PassedOver>,
}

/// An entry of the folder that is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedOver {
    /// Its path.
    pub path: PathBuf,
    /// Why it is not served.
    pub reason: &'static str,
}

/// The reasons why a folder cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// The folder does not exist, is not a folder, or cannot be read.
    #[error("cannot read the module folder {}: {source}", path.display())]
    Unreadable {
        /// The folder.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The folder contains no command.
    #[error(
        "the module folder {} has no commands: put an executable file at {}/<module>/<command>{}",
        path.display(), path.display(), list(passed_over)
    )]
    Empty {
        /// The folder.
        path: PathBuf,
        /// The entries in it, and why they are not served.
        passed_over: Vec<PassedOver>,
    },
    /// The folder lacks a module that was named.
    #[error("the module folder has no module `{name}`; it has {}", known.join(", "))]
    NoSuchModule {
        /// The name asked for.
        name: String,
        /// The modules that are there.
        known: Vec<String>,
    },
}

impl Catalogue {
    /// Reads a folder. Skips entries that are not commands; see [`Catalogue::passed_over`].
    ///
    /// # Errors
    /// When the folder cannot be read, or contains no command.
    pub fn read(folder: &Path) -> Result<Self, CatalogueError> {
        let unreadable = |source| CatalogueError::Unreadable { path: folder.to_owned(), source };
        // Commands run in their own folder, so their paths must be absolute.
        let root = fs::canonicalize(folder).map_err(unreadable)?;
        let mut catalogue = Self { modules: BTreeMap::new(), passed_over: Vec::new() };
        for entry in fs::read_dir(&root).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            match module_name(&path) {
                Ok(name) => catalogue.read_module(name, &path).map_err(unreadable)?,
                Err(reason) => catalogue.passed_over.push(PassedOver { path, reason }),
            }
        }
        catalogue.passed_over.sort_by(|a, b| a.path.cmp(&b.path));
        if catalogue.modules.is_empty() {
            return Err(CatalogueError::Empty { path: root, passed_over: catalogue.passed_over });
        }
        Ok(catalogue)
    }

    /// Keeps only the named modules; an empty list keeps all.
    ///
    /// # Errors
    /// When a named module does not exist.
    pub fn only(mut self, names: &[String]) -> Result<Self, CatalogueError> {
        if let Some(name) = names.iter().find(|name| !self.modules.contains_key(*name)) {
            let known = self.modules.into_keys().collect();
            return Err(CatalogueError::NoSuchModule { name: name.clone(), known });
        }
        if !names.is_empty() {
            self.modules.retain(|module, _| names.contains(module));
        }
        Ok(self)
    }

    /// The modules, each with the names of its commands, in order.
    pub fn modules(&self) -> impl Iterator<Item = (&str, Vec<String>)> {
        self.modules.iter().map(|(name, commands)| (name.as_str(), commands.keys().cloned().collect()))
    }

    /// The names of a module's commands, in order; none if the folder lacks the module.
    pub fn commands(&self, module: &str) -> impl Iterator<Item = String> {
        self.modules.get(module).into_iter().flat_map(|commands| commands.keys().cloned())
    }

    /// The executable of a command. None if the command does not exist.
    #[must_use]
    pub fn find(&self, module: &str, command: &str) -> Option<&Path> {
        self.modules.get(module)?.get(command).map(PathBuf::as_path)
    }

    /// Entries of the folder that are not served, for warnings.
    #[must_use]
    pub fn passed_over(&self) -> &[PassedOver] {
        &self.passed_over
    }

    /// Commands that are symbolic links to files outside of the folder. They are served, and change with
    /// those files.
    #[must_use]
    pub fn leading_out(&self) -> Vec<&Path> {
        let commands = self.modules.values().flat_map(BTreeMap::values);
        let leads_out = |path: &Path| {
            let module = path.parent().and_then(Path::parent);
            fs::canonicalize(path).is_ok_and(|target| module.is_some_and(|root| !target.starts_with(root)))
        };
        commands.map(PathBuf::as_path).filter(|path| leads_out(path)).collect()
    }

    fn read_module(&mut self, name: String, folder: &Path) -> std::io::Result<()> {
        let mut commands = BTreeMap::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            match command_name(&path) {
                Ok(command) => drop(commands.insert(command, path)),
                Err(reason) => self.passed_over.push(PassedOver { path, reason }),
            }
        }
        if commands.is_empty() {
            self.passed_over
                .push(PassedOver { path: folder.to_owned(), reason: "a folder without commands" });
        } else {
            self.modules.insert(name, commands);
        }
        Ok(())
    }
}

fn module_name(path: &Path) -> Result<String, &'static str> {
    let name = valid_name(path)?;
    if reserved_module(&name).is_some() {
        return Err("the name of the module is reserved for the server: rename the folder");
    }
    if name.contains('.') {
        return Err(
            "a module's name must not contain a dot, because `run: MODULE.COMMAND` is split at the first one: rename the folder",
        );
    }
    if path.is_dir() { Ok(name) } else { Err("not a folder: commands go into the folder of their module") }
}

fn command_name(path: &Path) -> Result<String, &'static str> {
    let name = valid_name(path)?;
    if !path.is_file() {
        return Err("not a file");
    }
    if rustix::fs::access(path, Access::EXEC_OK).is_err() {
        return Err("not executable: run `chmod +x` on it if it is a command");
    }
    safe_mode(path)?;
    Ok(name)
}

/// Refuses a command that other users could replace, or that would run with other rights than the worker's.
/// For a symbolic link the target is checked.
fn safe_mode(path: &Path) -> Result<(), &'static str> {
    let mode = |path: &Path| path.metadata().map(|metadata| metadata.permissions().mode());
    let target = fs::canonicalize(path).map_err(|_| "cannot be read")?;
    let command = mode(&target).map_err(|_| "cannot be read")?;
    if command & (SETUID | SETGID) != 0 {
        return Err("setuid or setgid: run `chmod ug-s` on it, and give the worker the rights that it needs");
    }
    if command & WRITABLE_BY_OTHERS != 0 {
        return Err(
            "writable by all users, who could then run anything as the worker: run `chmod o-w` on it",
        );
    }
    let folder = target.parent().map_or(Ok(0), mode).map_err(|_| "cannot be read")?;
    if folder & WRITABLE_BY_OTHERS != 0 && folder & STICKY == 0 {
        return Err(
            "its folder is writable by all users, who could then replace it: run `chmod o-w` on the folder",
        );
    }
    Ok(())
}

/// The last part of the path, if it is a valid name for flows: `[A-Za-z0-9][A-Za-z0-9_.-]{0,127}`.
fn valid_name(path: &Path) -> Result<String, &'static str> {
    let name = path.file_name().and_then(|name| name.to_str()).ok_or("its name is not UTF-8")?;
    if name.starts_with('.') {
        return Err("hidden");
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    let starts_well = name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
    if !starts_well || name.len() > NAME_LENGTH_MAX || !name.bytes().all(allowed) {
        return Err("its name is not of the form [A-Za-z0-9][A-Za-z0-9_.-]{0,127}");
    }
    Ok(name.to_owned())
}

fn list(passed_over: &[PassedOver]) -> String {
    // A few entries show the problem.
    let mut text = String::new();
    for entry in passed_over.iter().take(5) {
        text.push_str(&format!("\n  skipped: {} ({})", entry.path.display(), entry.reason));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, path: &str, mode: u32) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("has a parent")).expect("create folder");
        fs::write(&path, "#!/bin/sh\n").expect("write file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set mode");
    }

    fn reason<'a>(catalogue: &'a Catalogue, end: &str) -> &'a str {
        let entry = catalogue.passed_over().iter().find(|entry| entry.path.ends_with(end));
        entry.unwrap_or_else(|| panic!("{end} was not skipped")).reason
    }

    #[test]
    fn every_executable_is_a_command_and_the_rest_is_passed_over() {
        let folder = tempfile::tempdir().expect("temporary folder");
        put(folder.path(), "mysql/init_instance", 0o755);
        put(folder.path(), "mysql/backup.v2", 0o755);
        put(folder.path(), "mysql/README.md", 0o644);
        put(folder.path(), "mysql/.hidden", 0o755);
        put(folder.path(), "mysql/with space", 0o755);
        put(folder.path(), "mysql/lib/helper", 0o755);
        put(folder.path(), "empty/notes", 0o644);
        put(folder.path(), "flow/sleep", 0o755);
        put(folder.path(), "stray", 0o755);
        let catalogue = Catalogue::read(folder.path()).expect("readable");
        let modules: Vec<_> = catalogue.modules().collect();
        assert_eq!(modules, [("mysql", vec!["backup.v2".to_owned(), "init_instance".to_owned()])]);
        assert!(reason(&catalogue, "mysql/README.md").starts_with("not executable"));
        assert_eq!(reason(&catalogue, "mysql/.hidden"), "hidden");
        assert!(reason(&catalogue, "mysql/with space").contains("form"));
        assert_eq!(reason(&catalogue, "mysql/lib"), "not a file");
        assert_eq!(reason(&catalogue, "empty"), "a folder without commands");
        assert!(reason(&catalogue, "flow").contains("reserved"));
        assert!(reason(&catalogue, "stray").starts_with("not a folder"));
    }

    #[test]
    fn a_command_that_others_could_replace_is_refused() {
        let folder = tempfile::tempdir().expect("temporary folder");
        put(folder.path(), "m/plain", 0o755);
        put(folder.path(), "m/setuid", 0o4755);
        put(folder.path(), "m/setgid", 0o2755);
        put(folder.path(), "m/writable", 0o757);
        put(folder.path(), "open/inside", 0o755);
        put(folder.path(), "sticky/inside", 0o755);
        for (module, mode) in [("open", 0o777), ("sticky", 0o1777)] {
            fs::set_permissions(folder.path().join(module), fs::Permissions::from_mode(mode))
                .expect("set mode");
        }
        std::os::unix::fs::symlink(folder.path().join("open/inside"), folder.path().join("m/linked"))
            .expect("link");
        let catalogue = Catalogue::read(folder.path()).expect("readable");
        let modules: Vec<_> = catalogue.modules().collect();
        assert_eq!(modules, [("m", vec!["plain".to_owned()]), ("sticky", vec!["inside".to_owned()])]);
        assert!(reason(&catalogue, "m/setuid").starts_with("setuid"));
        assert!(reason(&catalogue, "m/setgid").starts_with("setuid or setgid"));
        assert!(reason(&catalogue, "m/writable").starts_with("writable by all users"));
        assert!(reason(&catalogue, "open/inside").starts_with("its folder is writable"));
        assert!(reason(&catalogue, "m/linked").starts_with("its folder is writable"), "by what it leads to");
    }

    #[test]
    fn a_link_out_of_the_folder_is_served_and_named() {
        let (folder, outside) =
            (tempfile::tempdir().expect("temporary folder"), tempfile::tempdir().expect("temporary folder"));
        put(folder.path(), "m/inside", 0o755);
        put(outside.path(), "tool", 0o755);
        let link = |target: &Path, name: &str| {
            std::os::unix::fs::symlink(target, folder.path().join("m").join(name)).expect("link");
        };
        link(&outside.path().join("tool"), "out");
        link(&folder.path().join("m/inside"), "within");
        let catalogue = Catalogue::read(folder.path()).expect("readable");
        assert!(catalogue.find("m", "out").is_some() && catalogue.find("m", "within").is_some());
        let out = catalogue.leading_out();
        assert_eq!(out.len(), 1, "{out:?}");
        assert!(out[0].ends_with("m/out"));
    }

    #[test]
    fn a_name_never_leads_out_of_the_folder() {
        let outer = tempfile::tempdir().expect("temporary folder");
        put(outer.path(), "outside", 0o755);
        put(outer.path(), "dir/a/inside", 0o755);
        put(outer.path(), "dir/b/other", 0o755);
        let catalogue = Catalogue::read(&outer.path().join("dir")).expect("readable");
        assert!(catalogue.find("a", "inside").is_some());
        for name in ["../outside", "../../outside", "../b/other", "./inside", "/bin/sh", "", ".", ".."] {
            assert_eq!(catalogue.find("a", name), None, "{name}");
        }
        for module in ["..", ".", "", "../dir/a", "a/"] {
            assert_eq!(catalogue.find(module, "inside"), None, "{module}");
        }
    }

    #[test]
    fn a_missing_or_empty_folder_is_a_clear_error() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let missing = Catalogue::read(&folder.path().join("nothing")).expect_err("is missing");
        assert!(missing.to_string().contains("nothing: No such file"), "{missing}");
        put(folder.path(), "mysql/notes", 0o644);
        let empty = Catalogue::read(folder.path()).expect_err("is empty").to_string();
        assert!(empty.contains("/<module>/<command>"), "{empty}");
        assert!(empty.contains("mysql/notes (not executable"), "{empty}");
    }

    #[test]
    fn only_the_modules_asked_for() {
        let folder = tempfile::tempdir().expect("temporary folder");
        put(folder.path(), "a/run", 0o755);
        put(folder.path(), "b/run", 0o755);
        let read = || Catalogue::read(folder.path()).expect("readable");
        let only = read().only(&["b".to_owned()]).expect("b is there");
        assert_eq!(only.modules().map(|(name, _)| name).collect::<Vec<_>>(), ["b"]);
        assert_eq!(read().only(&[]).expect("all").modules().count(), 2);
        let error = read().only(&["c".to_owned()]).expect_err("c is not there").to_string();
        assert!(error.contains("no module `c`; it has a, b"), "{error}");
    }
}
