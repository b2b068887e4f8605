//! The same random operations on two stores give the same answers.
//!
//! A walk makes up what servers and workers would do: tasks are taken in, handed out, reported on, lost,
//! paused, cancelled; changes come late, keys come twice, sessions fall silent. Both stores get the same calls
//! and after each must answer the same, but for the numbers of claims, which are a store's own. A seed gives
//! the same walk again; it stands in the message of every difference.

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

/// Walks `operations` random operations from `seed` over two empty stores.
///
/// # Panics
/// When the stores differ, or when a kind of operation never succeeded: then the walk showed nothing about it.
pub fn differ(seed: u64, operations: usize, one: Arc<dyn Store>, other: Arc<dyn Store>) -> Counts {
    let counts = block_on(async {
        let mut walk = Walk::begin(seed, one, other).await;
        for number in 0..operations {
            walk.step(number).await;
        }
        walk.finish().await
    });
    let missing: Vec<_> = KINDS.iter().filter(|kind| !counts.contains_key(**kind)).collect();
    assert!(missing.is_empty(), "seed {seed}: these never succeeded: {missing:?}");
    counts
}
