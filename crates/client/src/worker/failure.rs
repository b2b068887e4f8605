//! Failures of attempts.

/// The failure of an attempt. Every error converts to one with `?`: code 1, retryable, its whole chain of
/// causes as the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// A message for operators; cut at 4 KiB.
    pub message: String,
    /// A code for programs, like the exit code of a command.
    pub code: i32,
    /// Whether another attempt may succeed. If not, the step is not retried, whatever its `retry`.
    pub retryable: bool,
}

impl Failure {
    /// `EX_TEMPFAIL` of sysexits.h: a typed command that fails with it is retried later, which does not count
    /// as a retry.
    pub const RETRY_LATER: i32 = 75;

    /// `EX_DATAERR` of sysexits.h: the parameters are invalid.
    pub const BAD_DATA: i32 = 65;

    /// The code of `timeout(1)`.
    pub(super) const TIMED_OUT: i32 = 124;

    /// A failure that a retry may avoid.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 1, retryable: true }
    }

    /// A failure that every attempt would have.
    #[must_use]
    pub fn permanent(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 1, retryable: false }
    }

    /// Not a failure: a resource is missing for now.
    #[must_use]
    pub fn retry_later(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: Self::RETRY_LATER, retryable: true }
    }

    /// The same failure with this code.
    #[must_use]
    pub fn with_code(mut self, code: i32) -> Self {
        self.code = code;
        self
    }

    /// The message of a panic.
    pub(super) fn of_panic(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        Self::new(format!("the handler panicked: {text}"))
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(inner) = source {
            message = format!("{message}: {inner}");
            source = inner.source();
        }
        Self::new(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_reasons() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot read the disk")]
        struct Outer(#[source] std::io::Error);

        let failure = Failure::from(Outer(std::io::Error::other("it is gone")));
        assert_eq!(failure, Failure::new("cannot read the disk: it is gone"));
    }

    #[test]
    fn a_panic_keeps_its_text() {
        assert!(Failure::of_panic(&"static").message.ends_with("static"));
        assert!(Failure::of_panic(&"owned".to_owned()).message.ends_with("owned"));
        assert!(Failure::of_panic(&5).message.ends_with("no message"));
    }
}
