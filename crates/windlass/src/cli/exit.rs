//! Exit codes: the only place that maps errors to numbers.

use std::{io, process::ExitCode};

use windlass_api::{Task, TaskStatus};
use windlass_client::{Error as ClientError, coordinators::CoordinatorError};

/// How a command ended. Scripts rely on these numbers: do not change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Done = 0,
    /// Failed, for a reason without its own code.
    Failed = 1,
    /// The command line, or a file named on it, is invalid.
    Usage = 2,
    /// The task, flow, step, queue or alarm does not exist.
    NotFound = 3,
    /// Conflicts with the current state, or with the earlier use of an idempotency key.
    Conflict = 4,
    /// No server or coordinator answered.
    Unreachable = 5,
    /// The awaited task was rolled back, failed or was cancelled.
    NotSucceeded = 10,
    /// The awaited task is stuck: an operator must decide.
    Held = 11,
    /// Leadership was lost, and the command of `windlass lead` ended because of that.
    LeadershipLost = 12,
}

impl Exit {
    /// The exit code of an error.
    #[must_use]
    pub(crate) fn of_error(error: &anyhow::Error) -> Self {
        if error.is::<UsageError>() {
            return Self::Usage;
        }
        if is_broken_pipe(error) {
            return Self::Done;
        }
        match error.downcast_ref::<CoordinatorError>() {
            Some(CoordinatorError::Unavailable(_)) => return Self::Unreachable,
            Some(CoordinatorError::Invalid(_)) => return Self::Usage,
            Some(_) => return Self::Failed,
            None => {}
        }
        match error.downcast_ref::<ClientError>() {
            Some(ClientError::Unreachable { .. }) => Self::Unreachable,
            Some(ClientError::Refused(problem)) => match problem.status {
                404 => Self::NotFound,
                409 => Self::Conflict,
                // Other problems with this status are about the request, not about the state.
                422 if problem.name() == "idempotency-key-reused" => Self::Conflict,
                _ => Self::Failed,
            },
            Some(ClientError::Invalid(_)) => Self::Usage,
            Some(_) | None => Self::Failed,
        }
    }

    /// The exit code after waiting for a task.
    #[must_use]
    pub(crate) fn of_task(task: &Task) -> Self {
        match task.status {
            TaskStatus::RolledBack | TaskStatus::Failed | TaskStatus::Cancelled => Self::NotSucceeded,
            TaskStatus::Stuck => Self::Held,
            _ => Self::Done,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Invalid input that the parser of the command line does not see.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub String);

/// Whether the reader of our output has closed it, as `head` does. This is not an error.
#[must_use]
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use windlass_api::Problem;

    use super::*;
    use crate::cli::task::fixture;

    #[test]
    fn refusals_become_exit_codes() {
        for (status, exit) in [
            (400, Exit::Failed),
            (401, Exit::Failed),
            (404, Exit::NotFound),
            (409, Exit::Conflict),
            (422, Exit::Failed),
            (429, Exit::Failed),
            (500, Exit::Failed),
        ] {
            let refused = ClientError::Refused(Box::new(Problem::new(status, "name", "title", "detail")));
            // Context added on the way up must not hide the cause.
            let error = anyhow::Error::from(refused).context("while something was done");
            assert_eq!(Exit::of_error(&error), exit, "{status}");
        }
    }

    #[test]
    fn of_what_cannot_be_processed_only_a_key_used_again_is_a_conflict() {
        for (name, exit) in [
            ("idempotency-key-reused", Exit::Conflict),
            ("no-unique-key", Exit::Failed),
            ("unusable-limit", Exit::Failed),
        ] {
            let refused = ClientError::Refused(Box::new(Problem::new(422, name, "title", "detail")));
            assert_eq!(Exit::of_error(&refused.into()), exit, "{name}");
        }
    }

    #[test]
    fn errors_of_our_own_become_exit_codes() {
        assert_eq!(Exit::of_error(&UsageError("no".to_owned()).into()), Exit::Usage);
        assert_eq!(Exit::of_error(&ClientError::Invalid("no".to_owned()).into()), Exit::Usage);
        let unreachable =
            ClientError::Unreachable { server: "http://x".to_owned(), source: "refused".into() };
        assert_eq!(Exit::of_error(&unreachable.into()), Exit::Unreachable);
        for (error, exit) in [
            (CoordinatorError::Unavailable("no".to_owned()), Exit::Unreachable),
            (CoordinatorError::Invalid("no".to_owned()), Exit::Usage),
            (CoordinatorError::Refused("no".to_owned()), Exit::Failed),
        ] {
            assert_eq!(Exit::of_error(&error.into()), exit);
        }
        assert_eq!(Exit::of_error(&anyhow::anyhow!("anything else")), Exit::Failed);
        assert_eq!(Exit::of_error(&io::Error::from(io::ErrorKind::BrokenPipe).into()), Exit::Done);
        assert_eq!(Exit::of_error(&io::Error::from(io::ErrorKind::NotFound).into()), Exit::Failed);
    }

    #[test]
    fn the_end_of_a_task_becomes_an_exit_code() {
        for (status, exit) in [
            (TaskStatus::Succeeded, Exit::Done),
            (TaskStatus::RolledBack, Exit::NotSucceeded),
            (TaskStatus::Failed, Exit::NotSucceeded),
            (TaskStatus::Cancelled, Exit::NotSucceeded),
            (TaskStatus::Stuck, Exit::Held),
        ] {
            assert_eq!(Exit::of_task(&Task { status, ..fixture::running() }), exit, "{status:?}");
        }
    }

    #[test]
    fn the_numbers_are_a_contract() {
        let all = [Exit::Done, Exit::Failed, Exit::Usage, Exit::NotFound, Exit::Conflict, Exit::Unreachable];
        assert_eq!(all.map(|exit| exit as u8), [0, 1, 2, 3, 4, 5]);
        assert_eq!(
            [Exit::NotSucceeded, Exit::Held, Exit::LeadershipLost].map(|exit| exit as u8),
            [10, 11, 12]
        );
    }
}
