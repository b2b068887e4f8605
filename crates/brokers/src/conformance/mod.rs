//! The requirements on every broker, as cases that each product's tests run: one common suite keeps the
//! products equal.
//!
//! A product's tests make a [`Subject`] and pass it to [`run`]; every case uses only the port, on its own
//! queue. [`run_disturbed`] is for a server that may be killed and disconnected, and has no other users.
//! Differences that products may have are fields of [`Promises`]. Topics have their own suite, for an
//! [`Audience`]: [`run_announcing`] and [`run_announcing_disturbed`].
//!
//! All failures are panics, as in tests.

mod announcing;
mod audience;
mod bench;
mod consuming;
mod disturbed;
mod giving_back;
mod looking;
mod publishing;
mod stage;
mod subject;

pub use announcing::{run_announcing, run_announcing_disturbed};
pub use audience::{Audience, Listener};
pub use subject::{Disturbances, Promises, Subject};

use std::{
    future::Future,
    io::Write as _,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Mutex,
    thread,
    time::Instant,
};

use bench::Bench;

/// The most cases that run concurrently: most of them wait for something.
const AT_ONCE: usize = 4;

type Running<'b> = Pin<Box<dyn Future<Output = ()> + 'b>>;

/// One requirement of all brokers.
pub struct Case {
    /// Its name, as `topic::what_it_does`.
    pub name: String,
    run: for<'b> fn(&'b Bench<'b>) -> Running<'b>,
}

impl Case {
    /// Runs the case on its own queue.
    ///
    /// # Panics
    /// When the broker violates it.
    pub fn run(&self, subject: &dyn Subject) {
        block_on(async { (self.run)(&Bench::new(subject, &self.name)).await });
    }
}

/// One requirement of all brokers when the server or the network fails.
pub struct DisturbedCase {
    /// Its name, as `topic::what_it_does`.
    pub name: String,
    run: for<'b> fn(&'b Bench<'b>, &'b dyn Disturbances) -> Running<'b>,
}

impl DisturbedCase {
    /// Runs the case. Afterwards the server runs and is reachable.
    ///
    /// # Panics
    /// When the broker violates it.
    pub fn run(&self, subject: &dyn Disturbances) {
        block_on(async { (self.run)(&Bench::new(subject, &self.name), subject).await });
    }
}

/// The cases of a topic, named like their functions.
macro_rules! topic {
    ($($case:ident),+ $(,)?) => {
        pub(super) fn cases() -> Vec<super::Case> {
            let topic = module_path!().rsplit("::").next().unwrap_or_default();
            vec![$(super::Case {
                name: format!("{topic}::{}", stringify!($case)),
                run: |bench| Box::pin($case(bench)),
            }),+]
        }
    };
}
use topic;

/// All cases without disturbances.
#[must_use]
pub fn cases() -> Vec<Case> {
    [consuming::cases(), giving_back::cases(), looking::cases(), publishing::cases()]
        .into_iter()
        .flatten()
        .collect()
}

/// Runs all cases without disturbances, several at once.
///
/// # Panics
/// With the names of the failed cases, after all have run.
pub fn run(subject: &dyn Subject) {
    let waiting = Mutex::new(cases().into_iter());
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = next(&waiting) {
                    if let Some(name) = tell(&case.name, || case.run(subject)) {
                        failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    assert!(failed.is_empty(), "{} cases failed: {}", failed.len(), failed.join(", "));
}

fn next(waiting: &Mutex<impl Iterator<Item = Case>>) -> Option<Case> {
    waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next()
}

/// Runs all cases with disturbances, one after another.
///
/// # Panics
/// With the names of the failed cases, after all have run.
pub fn run_disturbed(subject: &dyn Disturbances) {
    let failed: Vec<String> =
        disturbed::cases().iter().filter_map(|case| tell(&case.name, || case.run(subject))).collect();
    assert!(failed.is_empty(), "{} cases failed: {}", failed.len(), failed.join(", "));
}

/// Runs a case and prints its time. Returns its name if it failed.
fn tell(name: &str, case: impl FnOnce()) -> Option<String> {
    let begun = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(case));
    let word = if result.is_ok() { "ok" } else { "FAILED" };
    // Not `eprintln`: its output belongs to the thread of the test.
    let line = format!("    {name}: {word} after {:.1} s\n", begun.elapsed().as_secs_f64());
    let _ = std::io::stderr().write_all(line.as_bytes());
    result.is_err().then(|| name.to_owned())
}

fn block_on(case: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().expect("the machine has resources for a runtime");
    runtime.block_on(case);
}
