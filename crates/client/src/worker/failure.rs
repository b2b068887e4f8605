//! Why an attempt failed.

/// Why an attempt failed. Every error turns into one with `?`: code 1, worth a retry, its whole chain as message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// A line for people; cut at 4 KiB.
    pub message: String,
    /// A number for programs, like the exit code of a command.
    pub code: i32,
    /// Whether another attempt can help. If not, none is made, whatever the step's retries say.
    pub retryable: bool,
}

impl Failure {
    /// `EX_TEMPFAIL` of sysexits.h: a typed command that fails with it is tried again later without spending a
    /// retry.
    pub const RETRY_LATER: i32 = 75;

    /// `EX_DATAERR` of sysexits.h: the parameters are at fault.
    pub const BAD_DATA: i32 = 65;

    /// The code of `timeout(1)`.
    pub(super) const TIMED_OUT: i32 = 124;

    /// A failure that another attempt may not meet.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 1, retryable: true }
    }

    /// A failure that every attempt would meet.
    #[must_use]
    pub fn permanent(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 1, retryable: false }
    }

    /// Not a failure yet: what is needed is not there now.
    #[must_use]
    pub fn retry_later(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: Self::RETRY_LATER, retryable: true }
    }

    /// The same with that code.
    #[must_use]
    pub fn with_code(mut self, code: i32) -> Self {
        self.code = code;
        self
    }

    /// What a panic said.
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
