//! What an access token may do.

use std::collections::BTreeSet;

use thiserror::Error;
use windlass_core::{Actor, Millis, Name, Timestamp};

use super::secret::{AccessSecret, AccessTokenId};

/// The most names of each kind that a token may be limited to.
pub const ACCESS_SCOPE_NAMES_MAX: usize = 100;

/// The longest life of a token that expires: ten years.
pub const ACCESS_TOKEN_LIFE_MAX: Millis = Millis(3653 * 24 * 3600 * 1000);

/// What the user of a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessRole {
    /// Reads.
    Viewer,
    /// Reads, submits, and acts on what there is.
    Operator,
    /// Does everything.
    Admin,
    /// Takes attempts and reports them, and nothing else.
    Worker,
}

impl AccessRole {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Viewer, Self::Operator, Self::Admin, Self::Worker];

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
            Self::Worker => "worker",
        }
    }

    /// The role with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }
}

/// The queues and flows that a token is limited to. Without any name it is not limited. With names, of queues or of flows, it
/// may use what is named and nothing else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessScope {
    /// Queues, which are modules.
    pub queues: BTreeSet<Name>,
    /// Flows.
    pub flows: BTreeSet<Name>,
}

impl AccessScope {
    /// Whether anything is out of it.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        !self.queues.is_empty() || !self.flows.is_empty()
    }

    /// Whether this queue is in it.
    #[must_use]
    pub fn has_queue(&self, name: &str) -> bool {
        !self.is_limited() || self.queues.contains(name)
    }

    /// Whether this flow is in it.
    #[must_use]
    pub fn has_flow(&self, name: &str) -> bool {
        !self.is_limited() || self.flows.contains(name)
    }
}

/// An access token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessToken {
    /// Its name: who acts with it.
    pub name: Name,
    /// Its id, which is in its text.
    pub id: AccessTokenId,
    /// The SHA-256 of its text.
    pub hash: [u8; 32],
    /// What its user is.
    pub role: AccessRole,
    /// What it is limited to.
    pub scope: AccessScope,
    /// When it was created.
    pub created_at: Timestamp,
    /// Who created it; `None` = a server at its start.
    pub created_by: Option<Actor>,
    /// From when on it is refused; `None` = never.
    pub expires_at: Option<Timestamp>,
    /// When it was last used, as last stored; `None` = never.
    pub used_at: Option<Timestamp>,
}

/// Why an access token cannot work.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AccessTokenFault {
    /// An admin does everything.
    #[error("the role admin cannot be limited to queues or flows: leave them out, or use the role operator")]
    LimitedAdmin,
    /// Attempts of a queue are of all flows.
    #[error(
        "the role worker cannot be limited to flows, because a queue has attempts of all flows: limit it to queues"
    )]
    WorkerOfFlows,
    /// Too many names.
    #[error("the token is limited to {0} queues or flows: the limit is {ACCESS_SCOPE_NAMES_MAX} of each")]
    TooManyNames(usize),
    /// It would expire at once.
    #[error("the token would expire at once: give it a longer time")]
    ExpiresAtOnce,
    /// It would expire in a very long time.
    #[error(
        "the token would expire after more than ten years: give it a shorter time, or none if it is never to expire"
    )]
    ExpiresTooLate,
}

impl AccessToken {
    /// A token that is not limited and does not expire.
    #[must_use]
    pub fn new(name: Name, secret: &AccessSecret, role: AccessRole, now: Timestamp) -> Self {
        Self {
            name,
            id: secret.id(),
            hash: secret.hash(),
            role,
            scope: AccessScope::default(),
            created_at: now,
            created_by: None,
            expires_at: None,
            used_at: None,
        }
    }

    /// Whether it is refused at this time because of its age.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|expires_at| now >= expires_at)
    }

    /// Checks that it can work.
    ///
    /// # Errors
    /// When it cannot.
    pub fn check(&self, now: Timestamp) -> Result<(), AccessTokenFault> {
        let AccessScope { queues, flows } = &self.scope;
        match self.role {
            AccessRole::Admin if self.scope.is_limited() => return Err(AccessTokenFault::LimitedAdmin),
            AccessRole::Worker if !flows.is_empty() => return Err(AccessTokenFault::WorkerOfFlows),
            _ => {}
        }
        let most = queues.len().max(flows.len());
        if most > ACCESS_SCOPE_NAMES_MAX {
            return Err(AccessTokenFault::TooManyNames(most));
        }
        match self.expires_at {
            Some(at) if at <= now => Err(AccessTokenFault::ExpiresAtOnce),
            Some(at) if at > now + ACCESS_TOKEN_LIFE_MAX => Err(AccessTokenFault::ExpiresTooLate),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ACCESS_RANDOM_BYTES;

    const NOW: Timestamp = Timestamp(1_900_000_000_000);

    fn token(role: AccessRole, queues: &[&str], flows: &[&str]) -> AccessToken {
        let names = |names: &[&str]| names.iter().map(|name| Name::new(name).unwrap()).collect();
        let scope = AccessScope { queues: names(queues), flows: names(flows) };
        let secret = AccessSecret::new(&[7; ACCESS_RANDOM_BYTES]);
        AccessToken { scope, ..AccessToken::new(Name::new("t").unwrap(), &secret, role, NOW) }
    }

    #[test]
    fn a_scope_has_what_it_names_and_nothing_else() {
        let all = token(AccessRole::Viewer, &[], &[]).scope;
        assert!(!all.is_limited() && all.has_queue("q") && all.has_flow("f"));
        let queues = token(AccessRole::Viewer, &["q", "r"], &[]).scope;
        assert!(queues.is_limited() && queues.has_queue("q") && queues.has_queue("r"));
        assert!(!queues.has_queue("s") && !queues.has_queue("") && !queues.has_flow("q"));
        let flows = token(AccessRole::Viewer, &[], &["f"]).scope;
        assert!(flows.is_limited() && flows.has_flow("f") && !flows.has_flow("F") && !flows.has_queue("f"));
    }

    #[test]
    fn roles_that_cannot_be_limited_are_refused_with_a_scope() {
        let check = |role, queues: &[&str], flows: &[&str]| token(role, queues, flows).check(NOW);
        assert_eq!(check(AccessRole::Admin, &[], &[]), Ok(()));
        assert_eq!(check(AccessRole::Admin, &["q"], &[]), Err(AccessTokenFault::LimitedAdmin));
        assert_eq!(check(AccessRole::Admin, &[], &["f"]), Err(AccessTokenFault::LimitedAdmin));
        assert_eq!(check(AccessRole::Worker, &["q"], &[]), Ok(()));
        assert_eq!(check(AccessRole::Worker, &["q"], &["f"]), Err(AccessTokenFault::WorkerOfFlows));
        assert_eq!(check(AccessRole::Operator, &["q"], &["f"]), Ok(()));
        let many: Vec<String> = (0..=ACCESS_SCOPE_NAMES_MAX).map(|n| n.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(check(AccessRole::Viewer, &many, &[]), Err(AccessTokenFault::TooManyNames(101)));
        assert_eq!(check(AccessRole::Viewer, &[], &many[1..]), Ok(()));
    }

    #[test]
    fn a_token_expires_at_its_time() {
        let expiring = |at| AccessToken { expires_at: Some(at), ..token(AccessRole::Viewer, &[], &[]) };
        let later = NOW + Millis(1);
        assert_eq!(expiring(NOW).check(NOW), Err(AccessTokenFault::ExpiresAtOnce));
        assert_eq!(expiring(later).check(NOW), Ok(()));
        assert_eq!(expiring(NOW + ACCESS_TOKEN_LIFE_MAX).check(NOW), Ok(()));
        let late = later + ACCESS_TOKEN_LIFE_MAX;
        assert_eq!(expiring(late).check(NOW), Err(AccessTokenFault::ExpiresTooLate));
        assert!(!expiring(later).is_expired(NOW) && expiring(later).is_expired(later));
        assert!(!token(AccessRole::Viewer, &[], &[]).is_expired(late));
    }

    #[test]
    fn roles_have_names() {
        for role in AccessRole::ALL {
            assert_eq!(AccessRole::from_name(role.as_str()), Some(role));
        }
        assert_eq!(AccessRole::from_name("root"), None);
    }
}
