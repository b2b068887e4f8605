//! The contract of every store, as cases that each store's tests run: one suite, so that stores do not diverge.
//!
//! A store's tests create a [`Bench`] and pass it to [`run`]. A case gets a fresh bench, opens it and uses the port
//! alone. Tasks change by the real rules, so every change is one that the engine could commit. The files are named by
//! topic.
//!
//! [`run_staging`] is for the sinks of resident stores: writes in progress, and writes that fail. [`differ`] is the
//! other half: the same random operations on two stores must give the same answers.
//!
//! Everything here fails by panicking, as tests do.

mod bench;
mod block_on;
mod claiming;
mod differential;
mod faults;
mod gate;
mod history;
mod storing;
mod world;

pub use bench::Bench;
pub use block_on::block_on;
pub use differential::{Counts, differ};
pub use faults::run_staging;
pub use gate::Gate;
use world::World;

use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::future::LocalBoxFuture;

/// One requirement for every store.
pub struct Case {
    /// Its name, as `topic::requirement`.
    pub name: String,
    run: fn(World) -> LocalBoxFuture<'static, ()>,
}

impl Case {
    /// Runs the case on a fresh bench.
    ///
    /// # Panics
    /// When the store fails it.
    pub fn run(&self, bench: Box<dyn Bench>) {
        block_on(async {
            let world = World::open(bench).await;
            (self.run)(world).await;
        });
    }
}

/// The cases of a topic, named after their functions.
macro_rules! topic {
    ($($case:ident),+ $(,)?) => {
        pub(crate) fn cases() -> Vec<crate::Case> {
            let topic = module_path!().rsplit("::").next().unwrap_or_default();
            vec![$(crate::Case {
                name: format!("{topic}::{}", stringify!($case)),
                run: |world| Box::pin($case(world)),
            }),+]
        }
    };
}
pub(crate) use topic;

/// Every case.
#[must_use]
pub fn cases() -> Vec<Case> {
    [storing::cases(), claiming::cases(), faults::cases()].into_iter().flatten().collect()
}

/// Runs every case, each on a new bench.
///
/// # Panics
/// With the names of the cases that failed, after all have run.
pub fn run(mut make: impl FnMut() -> Box<dyn Bench>) {
    let mut failed = Vec::new();
    for case in cases() {
        let bench = make();
        if catch_unwind(AssertUnwindSafe(|| case.run(bench))).is_err() {
            failed.push(case.name);
        }
    }
    assert!(failed.is_empty(), "the store does not pass {}", failed.join(", "));
}
