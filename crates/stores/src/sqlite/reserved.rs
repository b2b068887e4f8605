//! Keeping servers away from where a store is about to be.

use std::path::Path;

use super::{
    lock::LockFile,
    open::{OpenError, take_lock},
};

/// No server opens a store at this path, or makes one there, as long as this lives.
#[derive(Debug)]
pub struct Reserved(Option<LockFile>);

impl Reserved {
    /// Reserves `path`; `hint` is told to servers that want it.
    ///
    /// # Errors
    /// When a server has it, or the lock file cannot be made.
    pub fn new(path: &Path, hint: &str) -> Result<Self, OpenError> {
        Ok(Self(Some(take_lock(path, hint)?)))
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(LockFile::give_up);
    }
}
