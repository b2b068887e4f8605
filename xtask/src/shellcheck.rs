//! `shellcheck` over every shell script, by its first lines: also those without `.sh`, such as module commands.

use std::fs;

use crate::{findings::Findings, workspace::Workspace};

/// Checks all shell scripts.
pub(crate) fn check(workspace: &Workspace) -> anyhow::Result<Findings> {
    let mut findings = Findings::default();
    let mut scripts = Vec::new();
    for path in workspace.files()? {
        let is_script = fs::read(workspace.path(&path)).is_ok_and(|bytes| is_shell(&bytes));
        if is_script {
            scripts.push(path);
        } else if path.ends_with(".sh") {
            findings.add(path, "is called .sh and does not begin with `#!/bin/sh`, or say `# shellcheck shell=sh` where it is sourced");
        }
    }
    if !scripts.is_empty() {
        // What a script sources is read as well, from where the script is.
        let mut arguments = vec!["--external-sources", "--source-path=SCRIPTDIR"];
        arguments.extend(scripts.iter().map(String::as_str));
        workspace.run("shellcheck", &arguments)?;
    }
    println!("{} shell scripts", scripts.len());
    Ok(findings)
}

/// Whether a file is run by a shell, or says in the comment it begins with that shells source it.
fn is_shell(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Some(interpreter) = text.lines().next().and_then(|line| line.strip_prefix("#!")) else {
        let mut comment = text.lines().take_while(|line| line.starts_with('#'));
        return comment.any(|line| line.starts_with("# shellcheck shell="));
    };
    let mut words = interpreter.split_whitespace();
    let program = match words.next() {
        Some(path) if path.ends_with("/env") => words.next(),
        other => other,
    };
    program.is_some_and(|program| matches!(program.rsplit('/').next(), Some("sh" | "bash" | "dash")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_told_by_their_first_line() {
        let sourced = "# Shared.\n# shellcheck shell=sh\nset -e\n";
        for script in [sourced, "#!/bin/sh\n", "#!/usr/bin/env bash\n", "#! /bin/sh -eu\nls\n"] {
            assert!(is_shell(script.as_bytes()), "{script}");
        }
        for other in
            ["#!/usr/bin/env python3\n", "#![forbid(unsafe_code)]\n", "sh\n", "", "\n# shellcheck shell=sh"]
        {
            assert!(!is_shell(other.as_bytes()), "{other}");
        }
    }
}
