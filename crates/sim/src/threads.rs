//! Work on several threads whose results do not depend on the number of threads.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
};

/// The stack of a thread, in bytes: as large as that of a main thread.
const STACK_BYTES: usize = 8 << 20;

/// Does `work` on each item, on this number of threads, and passes the results to `take` in the order of the items, until
/// `take` breaks. Results behind that one are dropped.
pub(crate) fn in_order<T: Send, R: Send>(
    threads: usize,
    items: impl Iterator<Item = T> + Send,
    work: impl Fn(T) -> R + Sync,
    mut take: impl FnMut(R) -> ControlFlow<()>,
) {
    let (items, work) = (Mutex::new(items.enumerate()), &work);
    let (over, (sender, receiver)) = (AtomicBool::new(false), mpsc::channel());
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let (items, over, sender) = (&items, &over, sender.clone());
            let each = move || {
                // The results of a thread that panics never come.
                let _guard = OverOnPanic(over);
                while !over.load(Relaxed) {
                    let next = items.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some((number, item)) = next else { break };
                    if sender.send((number, work(item))).is_err() {
                        break;
                    }
                }
            };
            let spawned = thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, each);
            spawned.unwrap_or_else(|error| panic!("cannot start a thread: {error}"));
        }
        drop(sender);
        let (mut early, mut next) = (BTreeMap::new(), 0);
        for (number, result) in receiver {
            early.insert(number, result);
            while let Some(result) = early.remove(&next) {
                next += 1;
                if take(result).is_break() {
                    over.store(true, Relaxed);
                    return;
                }
            }
        }
    });
}

struct OverOnPanic<'a>(&'a AtomicBool);

impl Drop for OverOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_until_one_ends_it() {
        for threads in [1, 2, 7] {
            let mut taken = Vec::new();
            let take = |(number, double): (u64, u64)| {
                taken.push(double);
                if number == 50 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            in_order(threads, 0.., |number: u64| (number, 2 * number), take);
            assert_eq!(taken, (0..=50).map(|number| 2 * number).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_panic_ends_all_threads() {
        let run = || in_order(2, 0.., |number: u64| assert_ne!(number, 5), |()| ControlFlow::Continue(()));
        assert!(std::panic::catch_unwind(run).is_err());
    }
}
