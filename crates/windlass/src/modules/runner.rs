//! The runner: gets an attempt from the worker library and runs its command.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::io;
use std::path::PathBuf;

use async_trait::async_trait;
use windlass_api::Attempt;
use windlass_client::{Failure, Handler, Job, Outcome, Term};

use super::catalogue::Catalogue;
use super::deadline::Deadline;
use super::spawner::{CommandLine, Spawner};
use super::{input, process, verdict};

/// The exit code of shells for an unknown command.
const EXIT_NOT_FOUND: i32 = 127;

/// Runs the commands of one module folder. Dropping it kills all running commands.
#[derive(Debug)]
pub struct Runner {
    catalogue: Catalogue,
    spawner: Spawner,
    /// The prefix of the variables that commands do not inherit, beside Windlass's own.
    withheld: Option<String>,
}

impl Runner {
    /// Makes a runner for the commands in `catalogue`. `program` is this program: the runner starts commands
    /// through it.
    ///
    /// # Errors
    /// When the guard of the commands cannot be started.
    pub fn new(catalogue: Catalogue, program: PathBuf) -> io::Result<Self> {
        Ok(Self { catalogue, spawner: Spawner::start(program)?, withheld: None })
    }

    /// Keeps the variables with this prefix from the commands.
    #[must_use]
    pub fn withholding(mut self, prefix: Option<String>) -> Self {
        self.withheld = prefix;
        self
    }

    /// Runs one attempt to its end. `stop` ends it early. Each line on its stderr is passed to `log`.
    pub async fn run_attempt(
        &self,
        attempt: &Attempt,
        stop: impl Future<Output = ()>,
        log: &mut (dyn FnMut(String) + Send),
    ) -> Outcome {
        self.run_under(None, attempt, stop, log).await
    }

    /// The same under a leadership: the guard kills the command before it is lost.
    async fn run_under(
        &self,
        term: Option<&Term>,
        attempt: &Attempt,
        stop: impl Future<Output = ()>,
        log: &mut (dyn FnMut(String) + Send),
    ) -> Outcome {
        let Some(path) = self.catalogue.find(&attempt.module, &attempt.command) else {
            return Outcome::Failed(Failure {
                message: format!("the module folder has no command `{}.{}`", attempt.module, attempt.command),
                code: EXIT_NOT_FOUND,
                retryable: false,
            });
        };
        let command = CommandLine {
            path: path.to_owned(),
            arguments: Vec::new(),
            folder: path.parent().map(PathBuf::from),
            is_read: true,
            unset: input::withheld(std::env::vars_os().map(|(name, _)| name), self.withheld.as_deref()),
            set: input::variables(attempt, term.map(Term::fence)),
        };
        if let Some(term) = term {
            self.spawner.set_deadline(Deadline::last_of(term));
        }
        let run = self.run_command(command, attempt, stop, log);
        let ended = tokio::select! {
            ended = run => ended,
            never = self.follow(term) => match never {},
        };
        match ended {
            Ok(ended) => verdict::judge(&ended),
            // The machine is at a limit. This is not the command's fault, and not final.
            Err(error) => {
                let message = format!("cannot start `{}.{}`: {error}", attempt.module, attempt.command);
                Outcome::RetryLater { delay: None, message: Some(message) }
            }
        }
    }

    /// Reports each renewal of a leadership to the guard.
    async fn follow(&self, term: Option<&Term>) -> Infallible {
        let Some(mut term) = term.cloned() else { return pending().await };
        while term.changed().await {
            self.spawner.set_deadline(Deadline::last_of(&term));
        }
        pending().await
    }

    async fn run_command(
        &self,
        command: CommandLine,
        attempt: &Attempt,
        stop: impl Future<Output = ()>,
        log: &mut (dyn FnMut(String) + Send),
    ) -> io::Result<process::Ended> {
        let document = input::document(attempt)?;
        let (child, group) = self.spawner.spawn(command).await?;
        process::see_through(child, group, &document, stop, log).await
    }
}

#[async_trait]
impl Handler for Runner {
    async fn run(&self, job: Job) -> Outcome {
        self.run_under(job.term(), &job.attempt, job.cancelled(), &mut |line| job.log(line)).await
    }
}
