//! Instructions of small pieces of the core, the engine and the store, counted by callgrind and compared with those
//! in `bench/instructions.toml`.
//!
//! Times on a shared machine vary by a fifth; instructions of the same code and compilers vary by less than a
//! hundredth, so a change that makes the hot path dearer is seen when it is made. The pieces are the cases of
//! `crates/stores/examples/instructions`. Each runs twice, once with more operations; the difference is
//! what they cost.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use crate::{findings::Findings, workspace::Workspace};

/// The counts that hold.
const FILE: &str = "bench/instructions.toml";

const HEADER: &str = "\
# Instructions per operation, as `cargo xtask instructions` counts and compares them: at most 5 % more and 15 % fewer, or within
# 15 % where the tools are others than these. `cargo xtask instructions --bless` writes this file anew. What the cases are and
# what varies: docs/reference/performance.md.
";

/// By how many percent a count may differ from the one that is kept. Where programs lie in memory moves the counts
/// by up to one percent, the random seeds of hash tables by a tenth; what the compiler inlines may change with code
/// elsewhere in the crate, and moves small cases by some percent.
const MARGIN_PERCENT: f64 = 5.0;

/// By how many percent it may be cheaper until that is to be kept: what the compiler inlines differs from folder to folder, and
/// has moved a small case by a tenth.
const MARGIN_PERCENT_CHEAPER: f64 = 15.0;

/// The same, both ways, where compilers or valgrind have other versions: enough to see what is gross.
const MARGIN_PERCENT_OTHER_TOOLS: f64 = 15.0;

/// What the file holds.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// The processor that the counts are of: others have other instructions.
    processor: String,
    /// What compiled and counted.
    tools: Vec<String>,
    /// Instructions of one operation of each case.
    counts: BTreeMap<String, u64>,
}

/// Counts all cases, and compares them with those kept.
pub(crate) fn check(workspace: &Workspace) -> anyhow::Result<Findings> {
    let counted = count(workspace)?;
    let kept = workspace.read(FILE)?;
    let kept: Kept = toml::from_str(&kept).with_context(|| format!("{FILE}: write it again with --bless"))?;
    for (case, count) in &counted.counts {
        let change = kept.counts.get(case).map(|kept| format!("{:+.1} %", percent(*count, *kept)));
        println!("{count:>10}  {:>8}  {case}", change.unwrap_or_default());
    }
    if counted.processor != kept.processor {
        println!("not compared: {FILE} is of {}, and this is {}", kept.processor, counted.processor);
        return Ok(Findings::default());
    }
    if counted.tools != kept.tools {
        println!("counted with {}; {FILE} with {}", counted.tools.join(", "), kept.tools.join(", "));
    }
    Ok(compare(&counted, &kept))
}

/// Counts all cases, and keeps what came out.
pub(crate) fn bless(workspace: &Workspace) -> anyhow::Result<()> {
    let counted = count(workspace)?;
    fs::write(workspace.path(FILE), format!("{HEADER}{}", toml::to_string_pretty(&counted)?))
        .with_context(|| format!("cannot write {FILE}"))?;
    println!("{FILE} has {} counts: look at what changed in it", counted.counts.len());
    Ok(())
}

fn compare(counted: &Kept, kept: &Kept) -> Findings {
    let mut findings = Findings::default();
    let margin = if counted.tools == kept.tools { MARGIN_PERCENT } else { MARGIN_PERCENT_OTHER_TOOLS };
    for (case, count) in &counted.counts {
        let Some(kept) = kept.counts.get(case) else {
            findings.add(FILE, format_args!("does not have the case \"{case}\": run with --bless"));
            continue;
        };
        let change = percent(*count, *kept);
        if change > margin || change < -MARGIN_PERCENT_CHEAPER {
            let advice = if change > 0.0 {
                "make it cheaper, or say in the commit what it buys and run with --bless"
            } else {
                "run with --bless, so that it stays so cheap"
            };
            findings.add(
                FILE,
                format_args!("\"{case}\" takes {count} instructions, {change:+.1} % of {kept}: {advice}"),
            );
        }
    }
    for case in kept.counts.keys().filter(|case| !counted.counts.contains_key(*case)) {
        findings.add(FILE, format_args!("there is no case \"{case}\" any more: run with --bless"));
    }
    findings
}

/// By how many percent `count` differs from `kept`.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn percent(count: u64, kept: u64) -> f64 {
    (count as f64 - kept as f64) / (kept.max(1) as f64) * 100.0
}

fn count(workspace: &Workspace) -> anyhow::Result<Kept> {
    let tools = tools(workspace)?;
    let program =
        workspace.build(&["--release", "--package", "windlass-stores", "--example", "instructions"])?;
    let listed = Command::new(&program).output().context("the list of cases cannot be read")?;
    let listed = String::from_utf8(listed.stdout)?;
    let mut counts = BTreeMap::new();
    for line in listed.lines() {
        let (case, operations) = line.split_once('\t').with_context(|| format!("no case: {line}"))?;
        let operations: u64 = operations.parse()?;
        let (warm, measured) = (run(&program, case, "warm")?, run(&program, case, "measured")?);
        ensure!(
            measured > warm,
            "\"{case}\": {measured} instructions measured, {warm} without the operations"
        );
        counts.insert(case.to_owned(), (measured - warm) / operations);
    }
    ensure!(!counts.is_empty(), "{} names no cases", program.display());
    Ok(Kept { processor: std::env::consts::ARCH.to_owned(), tools, counts })
}

/// The versions of what makes the counts: the C compiler makes SQLite.
fn tools(workspace: &Workspace) -> anyhow::Result<Vec<String>> {
    let valgrind = workspace.output("valgrind", &["--version"]).context("apt-get install valgrind")?;
    let outputs =
        [workspace.output("rustc", &["--version"])?, workspace.output("cc", &["--version"])?, valgrind];
    Ok(outputs.iter().filter_map(|output| output.lines().next()).map(str::to_owned).collect())
}

/// How many instructions a run of a case needs in total. The profile stays beside the program, for
/// `callgrind_annotate`.
fn run(program: &Path, case: &str, part: &str) -> anyhow::Result<u64> {
    let folder = program.parent().context("the program has no folder")?;
    let name = program.file_name().context("the program has no name")?.to_string_lossy();
    let words: Vec<&str> =
        case.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let profile = folder.join(format!("{name}-{}-{part}.callgrind", words.join("-")));
    let mut command = Command::new("valgrind");
    command
        .args(["--quiet", "--tool=callgrind"])
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .args([&format!("./{name}"), case, part])
        .current_dir(folder)
        // The environment lies above the stack: another one moves it.
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    let output = command.output().context("cannot start `valgrind`: is it installed?")?;
    ensure!(
        output.status.success(),
        "\"{case}\" {part}: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let profile =
        fs::read_to_string(&profile).with_context(|| format!("cannot read {}", profile.display()))?;
    total(&profile).with_context(|| format!("\"{case}\": the profile has no total"))
}

/// The total of a callgrind profile.
fn total(profile: &str) -> Option<u64> {
    profile.lines().find_map(|line| line.strip_prefix("totals: "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(tool: &str, counts: &[(&str, u64)]) -> Kept {
        Kept {
            processor: "x86_64".to_owned(),
            tools: vec![tool.to_owned()],
            counts: counts.iter().map(|(case, count)| ((*case).to_owned(), *count)).collect(),
        }
    }

    #[test]
    fn counts_within_the_margin_are_no_findings() {
        let kept = counts("cc 12", &[("accept", 1_000), ("lose", 1_000)]);
        let counted = counts("cc 12", &[("accept", 1_050), ("lose", 950)]);
        assert_eq!(compare(&counted, &kept), Findings::default());
    }

    #[test]
    fn dearer_cheaper_new_and_gone_cases_are_found() {
        let kept = counts("cc 12", &[("dearer", 1_000), ("cheaper", 1_000), ("gone", 1_000)]);
        let counted = counts("cc 12", &[("dearer", 1_051), ("cheaper", 849), ("new", 1_000)]);
        let findings = compare(&counted, &kept).to_string();
        for part in ["\"dearer\" takes 1051", "\"cheaper\" takes 849", "\"new\"", "\"gone\""] {
            assert!(findings.contains(part), "{part} is not in\n{findings}");
        }
        assert_eq!(findings.lines().count(), 4, "{findings}");
    }

    #[test]
    fn other_tools_have_a_wider_margin() {
        let kept = counts("cc 12", &[("accept", 1_000)]);
        assert_eq!(compare(&counts("cc 14", &[("accept", 1_150)]), &kept), Findings::default());
        assert_eq!(compare(&counts("cc 14", &[("accept", 1_151)]), &kept).lines().len(), 1);
    }

    #[test]
    fn totals_are_read_from_profiles() {
        assert_eq!(total("events: Ir\nfn=(1) main\n0 7\n\ntotals: 4531401\n"), Some(4_531_401));
        assert_eq!(total("events: Ir\n"), None);
    }
}
