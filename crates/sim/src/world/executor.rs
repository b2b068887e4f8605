//! Runs the futures of all machines of a world on one thread, in a random order.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Wake, Waker},
};

use super::Host;

/// Identifies a running future.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobId(u64);

/// The running futures, each on a host.
#[derive(Default)]
pub(super) struct Executor {
    jobs: RefCell<BTreeMap<JobId, Job>>,
    ready: Arc<Mutex<BTreeSet<JobId>>>,
    /// Paused hosts.
    paused: RefCell<BTreeSet<Host>>,
    next: Cell<u64>,
}

struct Job {
    host: Host,
    /// None while it is polled.
    future: Option<Pin<Box<dyn Future<Output = ()>>>>,
    waker: Waker,
}

struct WakeJob {
    id: JobId,
    ready: Arc<Mutex<BTreeSet<JobId>>>,
}

impl Wake for WakeJob {
    fn wake(self: Arc<Self>) {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).insert(self.id);
    }
}

impl Executor {
    pub(super) fn spawn(&self, host: Host, future: impl Future<Output = ()> + 'static) -> JobId {
        let id = JobId(self.next.get());
        self.next.set(id.0 + 1);
        let waker = Waker::from(Arc::new(WakeJob { id, ready: self.ready.clone() }));
        waker.wake_by_ref();
        self.jobs.borrow_mut().insert(id, Job { host, future: Some(Box::pin(future)), waker });
        id
    }

    /// Drops a future in its current state.
    pub(super) fn cancel(&self, id: JobId) {
        // Dropped after the borrow has ended: its destructor may call this executor.
        let job = self.jobs.borrow_mut().remove(&id);
        drop(job);
    }

    /// Whether anything runs on a host.
    pub(super) fn is_up(&self, host: Host) -> bool {
        self.jobs.borrow().values().any(|job| job.host == host)
    }

    /// Drops all futures of a host.
    pub(super) fn kill(&self, host: Host) {
        let ids: Vec<JobId> =
            self.jobs.borrow().iter().filter(|(_, job)| job.host == host).map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.cancel(id));
        self.paused.borrow_mut().remove(&host);
    }

    /// Drops all futures.
    pub(super) fn clear(&self) {
        let jobs = std::mem::take(&mut *self.jobs.borrow_mut());
        drop(jobs);
    }

    pub(super) fn pause(&self, host: Host) {
        self.paused.borrow_mut().insert(host);
    }

    pub(super) fn resume(&self, host: Host) {
        self.paused.borrow_mut().remove(&host);
    }

    pub(super) fn is_paused(&self, host: Host) -> bool {
        self.paused.borrow().contains(&host)
    }

    /// Polls one ready future, chosen by `choose` from the given number. Returns whether there was one.
    pub(super) fn run_one(&self, choose: impl FnOnce(usize) -> usize) -> bool {
        let Some(id) = self.take_ready(choose) else { return false };
        let taken = {
            let mut jobs = self.jobs.borrow_mut();
            jobs.get_mut(&id).and_then(|job| Some((job.future.take()?, job.waker.clone())))
        };
        let Some((mut future, waker)) = taken else { return true };
        if future.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Pending {
            if let Some(job) = self.jobs.borrow_mut().get_mut(&id) {
                job.future = Some(future);
            }
        } else {
            drop(future);
            self.cancel(id);
        }
        true
    }

    fn take_ready(&self, choose: impl FnOnce(usize) -> usize) -> Option<JobId> {
        let (jobs, paused) = (self.jobs.borrow(), self.paused.borrow());
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        ready.retain(|id| jobs.contains_key(id));
        let may_run = |id: &&JobId| jobs.get(id).is_some_and(|job| !paused.contains(&job.host));
        let count = ready.iter().filter(may_run).count();
        if count == 0 {
            return None;
        }
        let id = *ready.iter().filter(may_run).nth(choose(count))?;
        ready.remove(&id);
        Some(id)
    }
}
