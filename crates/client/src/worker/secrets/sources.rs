//! Where a worker finds the values of secrets.

use std::{ffi::OsString, io::ErrorKind, path::PathBuf, process::Stdio, time::Duration};

use tokio::{io::AsyncReadExt, process::Command, time::timeout};

use crate::worker::{Failure, registry::is_name};

/// The prefix of a reference.
pub(super) const REFERENCE: &str = "secret://";

/// The least bytes of a value. Anything shorter could not be hidden without hiding ordinary words.
const VALUE_BYTES_MIN: usize = 4;

/// The most bytes of a value.
const VALUE_BYTES_MAX: usize = 64 * 1024;

/// How long the command may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// `EX_CONFIG` of sysexits.h: the code of an attempt whose secrets the worker does not have.
const CODE: i32 = 78;

/// Where a worker finds the values of secrets. The sources are asked in the order in which they were added, again for
/// each attempt.
///
/// # Examples
/// ```
/// use windlass_client::Secrets;
///
/// let secrets = Secrets::new().environment("SECRET_").folder("/run/credentials/worker");
/// ```
#[derive(Debug, Clone, Default)]
pub struct Secrets {
    sources: Vec<Source>,
}

#[derive(Debug, Clone)]
enum Source {
    /// The prefix of the variables.
    Environment(String),
    Folder(PathBuf),
    /// The program.
    Command(OsString),
}

impl Secrets {
    /// No sources: attempts with references fail.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds environment variables: the secret `db-admin` is in `{prefix}DB_ADMIN`. An empty prefix would give tasks
    /// every variable of the worker.
    #[must_use]
    pub fn environment(mut self, prefix: impl Into<String>) -> Self {
        self.sources.push(Source::Environment(prefix.into()));
        self
    }

    /// Adds the files of a folder: a file's name is the name of the secret. A newline at its end is not part of the
    /// value.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.sources.push(Source::Folder(folder.into()));
        self
    }

    /// Adds a program, which gets the name of the secret as its only argument and prints the value. A newline at its
    /// end is not part of it. It has 10 s.
    #[must_use]
    pub fn command(mut self, program: impl Into<OsString>) -> Self {
        self.sources.push(Source::Command(program.into()));
        self
    }

    /// The value of a secret.
    ///
    /// # Errors
    /// A failure of the attempt, when no source has it or the value cannot be used. It names no value.
    pub(super) async fn value(&self, name: &str) -> Result<String, Failure> {
        let fail = |message: String| Failure::new(message).with_code(CODE);
        if !is_name(name) {
            return Err(fail(format!(
                "\"{REFERENCE}{}\" is not the reference of a secret: after {REFERENCE} comes a name of 1 to 128 of \
                 A-Z a-z 0-9 _ . -, beginning with a letter or digit",
                name.chars().take(128).collect::<String>()
            )));
        }
        if self.sources.is_empty() {
            return Err(fail(format!(
                "the step needs the secret {name}, and this worker has no source of secrets: give it an environment \
                 prefix, a folder or a command"
            )));
        }
        let mut asked = Vec::new();
        for source in &self.sources {
            match source.value(name).await {
                Ok(Some(value)) => return checked(value, name).map_err(fail),
                Ok(None) => asked.push(source.place(name)),
                Err(problem) => {
                    return Err(fail(format!("the secret {name}: {}: {problem}", source.place(name))));
                }
            }
        }
        Err(fail(format!("this worker does not have the secret {name}: it is not in {}", asked.join(", "))))
    }
}

impl Source {
    /// Where it looks for this secret.
    fn place(&self, name: &str) -> String {
        match self {
            Self::Environment(prefix) => format!("the variable {}", variable(prefix, name)),
            Self::Folder(folder) => format!("the file {}", folder.join(name).display()),
            Self::Command(program) => format!("the output of `{} {name}`", program.display()),
        }
    }

    /// The value, or none if this source does not have it.
    async fn value(&self, name: &str) -> Result<Option<String>, String> {
        match self {
            Self::Environment(prefix) => match std::env::var(variable(prefix, name)) {
                Ok(value) => Ok(Some(value)),
                Err(std::env::VarError::NotPresent) => Ok(None),
                Err(std::env::VarError::NotUnicode(_)) => Err("it is not UTF-8".to_owned()),
            },
            Self::Folder(folder) => {
                let file = folder.join(name);
                let read =
                    tokio::task::spawn_blocking(move || std::fs::File::open(file).and_then(read_from)).await;
                match read.map_err(std::io::Error::other).flatten() {
                    Ok(bytes) => text(bytes).map(Some),
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(error.to_string()),
                }
            }
            Self::Command(program) => run(program, name).await.map(Some),
        }
    }
}

/// The environment variable of a secret.
fn variable(prefix: &str, name: &str) -> String {
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
    format!("{prefix}{name}")
}

/// Reads at most one byte more than a value may have.
fn read_from(file: std::fs::File) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut std::io::Read::take(file, VALUE_BYTES_MAX as u64 + 2), &mut bytes)?;
    Ok(bytes)
}

async fn run(program: &OsString, name: &str) -> Result<String, String> {
    let mut command = Command::new(program);
    // What it prints to stderr goes where the worker's own messages go, and not into the task: it may have parts of a secret.
    command.arg(name).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let output = async {
        let mut bytes = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            stdout.take(VALUE_BYTES_MAX as u64 + 2).read_to_end(&mut bytes).await?;
        }
        std::io::Result::Ok((bytes, child.wait().await?))
    };
    let ended = timeout(COMMAND_TIMEOUT, output).await;
    match ended.map_err(|_| format!("it did not end within {} s", COMMAND_TIMEOUT.as_secs()))? {
        Ok((bytes, status)) if status.success() => text(bytes),
        Ok((_, status)) => Err(format!("{status}; its stderr is in the log of the worker")),
        Err(error) => Err(error.to_string()),
    }
}

/// The text without the newline at its end.
fn text(bytes: Vec<u8>) -> Result<String, String> {
    let mut text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

fn checked(value: String, name: &str) -> Result<String, String> {
    match value.len() {
        ..VALUE_BYTES_MIN => Err(format!(
            "the secret {name} has less than {VALUE_BYTES_MIN} bytes, which could not be hidden in logs: use a longer one"
        )),
        VALUE_BYTES_MIN..=VALUE_BYTES_MAX => Ok(value),
        _ => Err(format!("the secret {name} has more than {VALUE_BYTES_MAX} bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn message(secrets: &Secrets, name: &str) -> String {
        let failure = secrets.value(name).await.unwrap_err();
        assert_eq!((failure.code, failure.retryable), (CODE, true));
        failure.message
    }

    #[tokio::test]
    async fn the_first_source_that_has_a_secret_gives_its_value() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("db"), "hunter2\n").unwrap();
        std::fs::write(folder.path().join("key"), "a\nb\r\n\r\n").unwrap();
        std::fs::write(folder.path().join("pin"), "123\n").unwrap();
        std::fs::write(folder.path().join("large"), "x".repeat(VALUE_BYTES_MAX + 1)).unwrap();
        let secrets = Secrets::new().folder(folder.path()).command("echo").environment("NONE_SUCH_");
        assert_eq!(secrets.value("db").await.unwrap(), "hunter2");
        assert_eq!(secrets.value("key").await.unwrap(), "a\nb\r\n");
        assert_eq!(secrets.value("printed").await.unwrap(), "printed");
        assert!(message(&secrets, "pin").await.contains("less than 4 bytes"));
        assert!(message(&secrets, "large").await.contains("more than 65536 bytes"));
        for bad in ["", "../db", "a/b", ".hidden", &"x".repeat(129)] {
            assert!(message(&secrets, bad).await.contains("is not the reference of a secret"), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_secret_that_is_nowhere_is_a_failure_that_says_where_it_was_sought() {
        assert!(message(&Secrets::new(), "db").await.contains("no source of secrets"));
        let secrets = Secrets::new().environment("NONE_SUCH_").folder("/no/such/folder");
        let expected = "this worker does not have the secret db-admin: it is not in the variable NONE_SUCH_DB_ADMIN, the file \
                        /no/such/folder/db-admin";
        assert_eq!(message(&secrets, "db-admin").await, expected);
        let failing = message(&Secrets::new().command("false"), "db").await;
        assert_eq!(
            failing,
            "the secret db: the output of `false db`: exit status: 1; its stderr is in the log of the worker"
        );
        assert!(message(&Secrets::new().command("/no/such/program"), "db").await.contains("No such file"));
    }
}
