//! The files of `examples/create-instance`, included in the program.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Context;

/// The ledger of the demo: CPUs, MB of memory, MB of storage.
pub(super) const CAPACITY: &str = "capacity 16 4096 1000\n";

macro_rules! example {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../../../examples/create-instance/", $path)))),*]
    };
}

/// Path and text of each file.
const FILES: &[(&str, &str)] = example![
    "flow.yaml",
    "lib/common.sh",
    "lib/instance.sh",
    "lib/json.awk",
    "modules/monitor/report_event",
    "modules/mysql/clean_instance",
    "modules/mysql/init_instance",
    "modules/resource/check_resource",
    "modules/resource/deduct_resource",
    "modules/resource/restore_resource",
];

/// Writes the example and a ledger to a folder.
pub(super) fn write(folder: &Path) -> anyhow::Result<()> {
    let ledger = ("ledger", CAPACITY);
    for (path, text) in FILES.iter().chain([&ledger]) {
        let file = folder.join(path);
        let mode = if path.starts_with("modules/") { 0o755 } else { 0o644 };
        file.parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&file, text))
            .and_then(|()| fs::set_permissions(&file, fs::Permissions::from_mode(mode)))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::*;

    fn files_below(folder: &Path, found: &mut BTreeSet<PathBuf>) {
        for entry in fs::read_dir(folder).expect("readable").map(|entry| entry.expect("readable").path()) {
            if entry.is_dir() { files_below(&entry, found) } else { assert!(found.insert(entry)) }
        }
    }

    #[test]
    fn the_demo_carries_every_command_of_the_example() {
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/create-instance");
        let mut there = BTreeSet::from([example.join("flow.yaml")]);
        files_below(&example.join("lib"), &mut there);
        files_below(&example.join("modules"), &mut there);
        let carried: BTreeSet<PathBuf> = FILES.iter().map(|(path, _)| example.join(path)).collect();
        assert_eq!(carried, there);
    }

    #[test]
    fn commands_are_written_as_executables() {
        let folder = tempfile::tempdir().expect("temporary folder");
        write(folder.path()).expect("writes");
        let catalogue = crate::modules::Catalogue::read(&folder.path().join("modules")).expect("readable");
        assert!(catalogue.find("mysql", "init_instance").is_some());
        assert_eq!(catalogue.passed_over(), []);
        assert!(folder.path().join("ledger").is_file());
    }
}
