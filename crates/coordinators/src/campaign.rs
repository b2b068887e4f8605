//! What a candidate campaigns for, and who leads.

use std::time::Duration;

use crate::CoordinatorError;

/// The longest name, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// The longest id, in bytes.
const ID_BYTES_MAX: usize = 128;

/// The longest value, in bytes.
const VALUE_BYTES_MAX: usize = 4096;

/// The range of leases. Shorter ones end by chance on a busy machine.
const LEASE_RANGE: std::ops::RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_secs(3600);

/// Renewals in one lease: several may fail before leadership ends.
const RENEWALS_PER_LEASE: u32 = 6;

/// What a candidate campaigns for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Campaign {
    /// One leader at a time is elected for this name. It may have slashes, like a path.
    pub name: String,
    /// The id of the candidate, for other candidates and for the tools of the coordinator.
    pub id: String,
    /// Anything else that others should know of the leader, for example its address. May be empty.
    pub value: String,
    /// A leader that is killed is replaced after at most this time and 1 s. A leader acts for a shorter time
    /// without a renewal.
    pub lease: Duration,
}

/// The leader of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// Its id.
    pub id: String,
    /// The value of its campaign.
    pub value: String,
    /// Its fence.
    pub fence: u64,
}

impl Campaign {
    /// A campaign without a value.
    pub fn new(name: impl Into<String>, id: impl Into<String>, lease: Duration) -> Self {
        Self { name: name.into(), id: id.into(), value: String::new(), lease }
    }

    /// How often the leader renews.
    #[must_use]
    pub fn renew_every(&self) -> Duration {
        self.lease / RENEWALS_PER_LEASE
    }

    /// Checks a name, which may be one of any product.
    ///
    /// # Errors
    /// [`CoordinatorError::Invalid`] with what a name may have.
    pub fn check_name(name: &str) -> Result<(), CoordinatorError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
        let is_part = |part: &str| !["", ".", ".."].contains(&part);
        if name.len() > NAME_BYTES_MAX || !name.chars().all(allowed) || !name.split('/').all(is_part) {
            return Err(invalid(format!(
                "invalid name {name:?}: use 1 to {NAME_BYTES_MAX} of A-Z a-z 0-9 _ . - and single slashes between parts"
            )));
        }
        Ok(())
    }

    /// Checks what is common to all products.
    ///
    /// # Errors
    /// [`CoordinatorError::Invalid`] with the field that is wrong.
    pub fn check(&self) -> Result<(), CoordinatorError> {
        Self::check_name(&self.name)?;
        if self.id.is_empty() || self.id.len() > ID_BYTES_MAX || self.id.chars().any(char::is_control) {
            return Err(invalid(format!(
                "invalid id {:?} of a candidate: use 1 to {ID_BYTES_MAX} bytes without control characters",
                self.id
            )));
        }
        if self.value.len() > VALUE_BYTES_MAX {
            return Err(invalid(format!(
                "the value of a candidate has {} bytes: the limit is {VALUE_BYTES_MAX}",
                self.value.len()
            )));
        }
        if !LEASE_RANGE.contains(&self.lease) {
            return Err(invalid(format!(
                "invalid lease of {:?}: use {} to {} s",
                self.lease,
                LEASE_RANGE.start().as_secs(),
                LEASE_RANGE.end().as_secs()
            )));
        }
        Ok(())
    }
}

fn invalid(why: String) -> CoordinatorError {
    CoordinatorError::Invalid(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    #[test]
    fn names_are_paths_of_plain_parts() {
        for good in ["consumerLeader", "fleet/eu-1/a.b_c", &"x".repeat(256)] {
            assert_eq!(Campaign::new(good, "a", LEASE).check(), Ok(()), "{good}");
        }
        for wrong in ["", "/a", "a/", "a//b", "a/../b", ".", "a b", "ü", "a?b", &"x".repeat(257)] {
            let error = Campaign::new(wrong, "a", LEASE).check().unwrap_err().to_string();
            assert!(error.contains("invalid name"), "{error}");
        }
    }

    #[test]
    fn ids_values_and_leases_have_limits() {
        for (id, lease, words) in [
            ("", LEASE, "invalid id"),
            ("a\nb", LEASE, "invalid id"),
            ("a", Duration::from_millis(1999), "invalid lease"),
            ("a", Duration::from_secs(3601), "invalid lease"),
        ] {
            let error = Campaign::new("n", id, lease).check().unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let mut campaign = Campaign::new("n", "a", LEASE);
        campaign.value = "x".repeat(4097);
        assert!(campaign.check().is_err());
    }
}
