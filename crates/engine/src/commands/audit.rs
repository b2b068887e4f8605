//! The audit log: who changed what.
//!
//! ```text
//! audited(operation, request) ─▶ Inbox: items with the operation ─▶ Change::Audit behind each change ─▶ one commit
//! ```
//!
//! The HTTP layer runs each request of a client in [`audited`]. What the request puts into the inbox carries the operation
//! with it, so no command needs to pass it on, and none can forget it.

use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    net::IpAddr,
    pin::pin,
    sync::Arc,
};

use windlass_core::{Actor, Name, Timestamp};
use windlass_store::{JournalKind, Page};

use crate::{Engine, EngineError, deciding::audit, queries::journal::JournalSearch};

thread_local! {
    static CURRENT: RefCell<Option<Arc<AuditedOperation>>> = const { RefCell::new(None) };
}

/// An operation whose changes are recorded in the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedOperation {
    /// Its name in the contract, such as `cancel_task`.
    pub operation: Box<str>,
    /// Who asked for it, if known.
    pub by: Option<Actor>,
    /// The address that the request came from, if it came over a network.
    pub address: Option<IpAddr>,
}

/// Runs `future`: the audit log records the changes that it asks the engine for.
pub async fn audited<F: Future>(operation: AuditedOperation, future: F) -> F::Output {
    let operation = Arc::new(operation);
    let mut future = pin!(future);
    poll_fn(|context| {
        let _entered = Entered(CURRENT.replace(Some(operation.clone())));
        future.as_mut().poll(context)
    })
    .await
}

/// The operation that is running on this thread, if it is audited.
pub(crate) fn current_operation() -> Option<Arc<AuditedOperation>> {
    CURRENT.with_borrow(Clone::clone)
}

/// Restores the operation before.
struct Entered(Option<Arc<AuditedOperation>>);

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// An entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    /// Its number: it only grows.
    pub number: u64,
    /// When the change was decided.
    pub at: Timestamp,
    /// What was asked for, by whom.
    pub operation: AuditedOperation,
    /// The kind of what was changed, such as `task` or `queue`.
    pub kind: Box<str>,
    /// Its name, or the id of a task or an alarm.
    pub name: Box<str>,
}

/// Which entries are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only those about what has this name or id.
    pub name: Option<Box<str>>,
    /// Only those of this actor.
    pub by: Option<Box<str>>,
    /// Only those of this operation.
    pub operation: Option<Box<str>>,
    /// Only those of this time or later.
    pub since: Option<Timestamp>,
}

impl AuditFilter {
    fn wants(&self, record: &AuditRecord) -> bool {
        let AuditedOperation { operation, by, .. } = &record.operation;
        self.name.as_ref().is_none_or(|name| *name == record.name)
            && self.by.as_ref().is_none_or(|name| by.as_ref().is_some_and(|by| *by.name == **name))
            && self.operation.as_ref().is_none_or(|wanted| wanted == operation)
    }

    /// The subject of the journal that has all wanted entries; `None` if they may have any.
    fn subject(&self) -> Option<Name> {
        self.name.as_ref().and_then(|name| Name::new(name).ok())
    }
}

impl Engine {
    /// Entries of the audit log, the newest first: at most `limit` with numbers below `before`. A page may have fewer, even
    /// none, while there are more: at most 10,000 entries are looked at for one page.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn audit_log(
        &self,
        filter: &AuditFilter,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Page<AuditRecord, u64>, EngineError> {
        let (kind, subject) = (JournalKind::Audit, filter.subject());
        let search = JournalSearch { kind, subject: subject.as_ref(), since: filter.since, before, limit };
        // What cannot be read was written by a newer version, or is damaged.
        let read = |number, entry| audit::record(number, &entry).filter(|record| filter.wants(record));
        self.search_journal(search, read).await
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn operation(name: &str) -> AuditedOperation {
        AuditedOperation { operation: name.into(), by: None, address: None }
    }

    fn name() -> Option<String> {
        current_operation().map(|current| current.operation.to_string())
    }

    #[test]
    fn an_operation_is_current_while_its_future_is_polled() {
        let mut is_second = false;
        let mut outer = pin!(audited(operation("outer"), async {
            let before = name();
            let within = audited(operation("inner"), async { name() }).await;
            poll_fn(
                |_| if std::mem::replace(&mut is_second, true) { Poll::Ready(()) } else { Poll::Pending },
            )
            .await;
            (before, within, name())
        }));
        let mut context = Context::from_waker(Waker::noop());
        assert!(outer.as_mut().poll(&mut context).is_pending());
        assert_eq!(name(), None, "the future waits");
        let named = |name: &str| Some(name.to_owned());
        let Poll::Ready(seen) = outer.as_mut().poll(&mut context) else { panic!("it is ready") };
        assert_eq!(seen, (named("outer"), named("inner"), named("outer")));
        assert_eq!(name(), None);
    }
}
