//! The same random operations on two stores give the same answers.
//!
//! A walk generates operations of servers and workers: tasks are accepted, claimed, reported, lost, paused and
//! cancelled; changes are late, idempotency keys are repeated, sessions fall silent. Both stores get the same calls and
//! must give the same answers after each, except for claim numbers, which each store assigns itself. A seed reproduces
//! its walk, and every message about a difference contains the seed.

mod others;
mod pair;
mod random;
mod tasks;
mod walk;
mod workers;

use std::{collections::BTreeMap, sync::Arc};

use windlass_store::Store;

use crate::block_on;
use walk::{KINDS, Walk};

/// How often each kind of operation succeeded.
pub type Counts = BTreeMap<&'static str, usize>;

/// A walk in which a rare kind of operation has not succeeded goes on, up to this many times its length.
const LONGER_MAX: usize = 4;

/// Walks `operations` random operations from `seed` over two empty stores, or more until each kind has succeeded.
///
/// # Panics
/// When the stores differ, or when a kind of operation never succeeded: then the walk tested nothing of it.
pub fn differ(seed: u64, operations: usize, one: Arc<dyn Store>, other: Arc<dyn Store>) -> Counts {
    let counts = block_on(async {
        let mut walk = Walk::begin(seed, one, other).await;
        for number in 0..operations * LONGER_MAX {
            if number >= operations && walk.has_all_kinds() {
                break;
            }
            walk.step(number).await;
        }
        walk.finish().await
    });
    let missing: Vec<_> = KINDS.iter().filter(|kind| !counts.contains_key(**kind)).collect();
    assert!(missing.is_empty(), "seed {seed}: these never succeeded: {missing:?}");
    counts
}
