//! The account that a server runs as: the caller's, or an unprivileged user's if the caller is root.

use std::{
    fs,
    os::unix::fs::chown,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result};

/// A user of this machine.
#[derive(Debug, Clone)]
pub(crate) struct Account {
    /// User and group ids; absent for the caller.
    other: Option<(u32, u32)>,
}

impl Account {
    /// The caller. If the caller is root: the user `name`, or `nobody` if there is no such user.
    pub(crate) fn choose(name: &str) -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self { other: None });
        }
        let users = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
        let ids = ids_of(&users, name).or_else(|| ids_of(&users, "nobody"));
        Ok(Self { other: Some(ids.with_context(|| format!("there is neither a user {name} nor nobody"))?) })
    }

    /// A command that runs as this user. The kernel sends it `signal` when the thread that started it ends.
    pub(crate) fn command(&self, signal: &str, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command.arg("--pdeathsig").arg(signal);
        if let Some((user, group)) = self.other {
            command.arg(format!("--reuid={user}")).arg(format!("--regid={group}")).arg("--clear-groups");
        }
        command.arg("--").arg(program).stdin(Stdio::null());
        command
    }

    /// Gives a file or directory to this user.
    pub(crate) fn own(&self, path: &Path) -> Result<()> {
        let Some((user, group)) = self.other else { return Ok(()) };
        chown(path, Some(user), Some(group))
            .with_context(|| format!("cannot change the owner of {}", path.display()))
    }

    /// A name that distinguishes users in the names of templates.
    pub(crate) fn id(&self) -> u32 {
        self.other.map_or_else(|| rustix::process::geteuid().as_raw(), |(user, _)| user)
    }
}

/// User and group ids of `name` in the text of `/etc/passwd`.
fn ids_of(users: &str, name: &str) -> Option<(u32, u32)> {
    let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let fields = fields.into_iter().find(|fields| fields.len() > 3 && fields[0] == name)?;
    Some((fields[2].parse().ok()?, fields[3].parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_their_whole_name() {
        let users =
            "root:x:0:0:root:/:/bin/sh\npostgresql:x:7:8::/:/bin/sh\npostgres:x:101:104:,,,:/:/bin/sh\n";
        assert_eq!(ids_of(users, "postgres"), Some((101, 104)));
        assert_eq!(ids_of(users, "mysql"), None);
    }
}
