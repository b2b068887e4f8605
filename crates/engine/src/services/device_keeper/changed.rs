//! Which devices were declared or removed over this server since the device keeper read them.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use windlass_core::Name;

/// With more changed devices than this, all devices are read.
const CHANGED_MAX: usize = 10_000;

/// The devices that changed.
#[derive(Default)]
pub(crate) struct DevicesChanged(Mutex<State>);

#[derive(Default)]
struct State {
    names: BTreeSet<Name>,
    is_too_many: bool,
}

/// Which devices must be read.
pub(super) enum Changed {
    /// These.
    Some(Vec<Name>),
    /// Too many to name them.
    Many,
}

impl DevicesChanged {
    /// These devices were declared or removed.
    pub(crate) fn note<'n>(&self, names: impl IntoIterator<Item = &'n Name>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for name in names {
            if state.is_too_many || state.names.len() == CHANGED_MAX {
                *state = State { names: BTreeSet::new(), is_too_many: true };
                return;
            }
            if !state.names.contains(name) {
                state.names.insert(name.clone());
            }
        }
    }

    pub(super) fn take(&self) -> Changed {
        let State { names, is_too_many } =
            std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if is_too_many { Changed::Many } else { Changed::Some(names.into_iter().collect()) }
    }
}
