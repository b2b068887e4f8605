//! Power cuts under the real store, and disks that lie, which must be found out.

use std::sync::OnceLock;

use windlass_powercut::{Fault, Figures, Honesty, Recorded, record};

/// What chances come from.
const SEED: u64 = 1;

fn recorded() -> &'static Recorded {
    static RECORDED: OnceLock<Recorded> = OnceLock::new();
    RECORDED.get_or_init(|| record(SEED).unwrap())
}

fn cut(count: usize, honesty: Honesty) -> Figures {
    recorded().cut(count, SEED, honesty, None).unwrap()
}

#[test]
fn nothing_acknowledged_is_missing_after_200_power_cuts() {
    let figures = cut(200, Honesty::Honest);
    println!("{figures}");
    let findings: Vec<String> = figures.findings.iter().map(ToString::to_string).collect();
    assert_eq!(findings, [""; 0]);
    // They hit what they are about.
    assert_eq!(figures.cuts, 200);
    assert!(figures.cut_starts > 20 && figures.entries > 500, "{figures}");
    assert!(figures.acknowledged > 100 * figures.entries / 2, "{figures}");
}

fn is_loss(fault: Fault) -> bool {
    matches!(fault, Fault::Missing(_))
}

#[test]
fn a_disk_that_ignores_syncs_of_the_log_is_found_out() {
    let figures = cut(12, Honesty::IgnoresLogSyncs);
    println!("{figures}");
    assert!(figures.missing > 0, "{figures}");
    assert!(figures.findings.iter().any(|finding| is_loss(finding.fault)), "{figures}");
}

#[test]
fn a_disk_that_ignores_syncs_of_the_file_is_found_out() {
    let figures = cut(12, Honesty::IgnoresFileSyncs);
    println!("{figures}");
    assert!(!figures.findings.is_empty(), "{figures}");
}

#[test]
fn a_disk_that_ignores_syncs_of_names_is_found_out() {
    let figures = cut(12, Honesty::IgnoresFolderSyncs);
    println!("{figures}");
    assert!(figures.missing > 0, "{figures}");
}

#[test]
fn a_disk_that_ignores_all_syncs_is_found_out() {
    let figures = cut(12, Honesty::IgnoresSyncs);
    println!("{figures}");
    assert!(figures.missing > 0, "{figures}");
}
