//! The requirements on every coordinator, as cases that each product's tests run: one common suite keeps the
//! products equal.
//!
//! A product's tests make a [`Subject`] and pass it to [`run`]; every case uses only the port, with its own
//! name. [`run_disturbed`] is for servers that may be killed and disconnected, and have no other users. Leaders
//! that are killed or paused are processes of their own: see [`Rival`].
//!
//! All failures are panics, as in tests. Times are printed, and only their order is asserted.

mod disturbed;
mod electing;
mod fencing;
mod register;
mod rival;
mod stage;
mod watching;

pub use register::Register;
pub use rival::{Rival, run_rival};
pub use stage::{elect, renew, resign, until_answered};

use std::{
    future::Future,
    io::Write as _,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use stage::Stage;

/// The most cases that run concurrently: most of them wait for something.
const AT_ONCE: usize = 4;

type Running<'b> = Pin<Box<dyn Future<Output = ()> + 'b>>;

/// The servers of a product.
pub trait Subject: Send + Sync {
    /// Where they are.
    fn url(&self) -> String;

    /// A short lease that they support.
    fn lease(&self) -> Duration;

    /// Deletes the keys of all candidates of a name with the product's own tools.
    fn delete(&self, name: &str);
}

/// A [`Subject`] without other users, which may fail. It has a second URL, of a network that may fail too.
pub trait Disturbances: Subject {
    /// Where the servers are by way of that network.
    fn proxied_url(&self) -> String;

    /// Closes all connections of that network, and each new one at once.
    fn cut(&self);

    /// Delays everything in that network by this time in each direction.
    fn delay(&self, delay: Duration);

    /// Permits connections again, without delays.
    fn heal(&self);

    /// Kills the server at the first address of the URLs, and no other one. False where there is only one.
    fn kill_first(&self) -> bool;

    /// Kills servers until the rest has no quorum.
    fn kill_most(&self);

    /// Kills all servers.
    fn kill_all(&self);

    /// Starts the killed servers again with their data, and waits until all are usable.
    fn restart(&self);
}

/// One requirement.
struct Case<S: ?Sized> {
    /// Its name, as `topic::what_it_does`.
    name: String,
    run: for<'b> fn(&'b Stage<'b>, &'b S) -> Running<'b>,
}

impl<S: ?Sized> Case<S> {
    /// Runs the case with its own name. All cases leave the servers running.
    fn run(&self, url: String, lease: Duration, subject: &S) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().expect("the machine has resources for a runtime");
        runtime.block_on(async { (self.run)(&Stage::new(&url, lease, &self.name), subject).await });
    }
}

/// The cases of a topic, named like their functions.
macro_rules! topic {
    ($subject:ty: $($case:ident),+ $(,)?) => {
        pub(super) fn cases() -> Vec<super::Case<$subject>> {
            let topic = module_path!().rsplit("::").next().unwrap_or_default();
            vec![$(super::Case {
                name: format!("{topic}::{}", stringify!($case)),
                run: |stage, subject| Box::pin($case(stage, subject)),
            }),+]
        }
    };
}
use topic;

/// Runs all cases without disturbances, several at once.
///
/// # Panics
/// With the names of the failed cases, after all have run.
pub fn run(subject: &(dyn Subject + 'static)) {
    let cases = [electing::cases(), fencing::cases(), watching::cases()].into_iter().flatten();
    let waiting = Mutex::new(cases);
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
                while let Some(case) = next() {
                    let run = || case.run(subject.url(), subject.lease(), subject);
                    failed.lock().unwrap_or_else(PoisonError::into_inner).extend(report(
                        &subject.url(),
                        &case.name,
                        run,
                    ));
                }
            });
        }
    });
    none_failed(failed.into_inner().unwrap_or_else(PoisonError::into_inner));
}

/// Runs all cases with disturbances, one after another.
///
/// # Panics
/// With the names of the failed cases, after all have run.
pub fn run_disturbed(subject: &(dyn Disturbances + 'static)) {
    let run = |case: &Case<dyn Disturbances>| {
        // After a case that failed.
        subject.heal();
        subject.restart();
        case.run(subject.proxied_url(), subject.lease(), subject);
    };
    none_failed(
        disturbed::cases()
            .iter()
            .filter_map(|case| report(&subject.url(), &case.name, || run(case)))
            .collect(),
    );
}

fn none_failed(failed: Vec<String>) {
    assert!(failed.is_empty(), "{} cases failed: {}", failed.len(), failed.join(", "));
}

/// Runs a case and prints its time. Returns its name if it failed.
fn report(url: &str, name: &str, case: impl FnOnce()) -> Option<String> {
    let begun = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(case));
    let word = if result.is_ok() { "ok" } else { "FAILED" };
    say(url, &format!("{name}: {word} after {:.1} s", begun.elapsed().as_secs_f64()));
    result.is_err().then(|| name.to_owned())
}

/// Prints a line, with the product before it. Not by `eprintln`: its output belongs to the thread of the test.
fn say(url: &str, line: &str) {
    let product = url.split("://").next().unwrap_or_default();
    let _ = std::io::stderr().write_all(format!("    {product}: {line}\n").as_bytes());
}
