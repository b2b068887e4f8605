//! Keeps servers away from the path of a store that is being made.

use std::path::Path;

use crate::sqlite::{
    lock::LockFile,
    open::{OpenError, take_lock},
};

/// No server opens a store at this path, or makes one there, as long as this lives.
#[derive(Debug)]
pub struct Reserved(Option<LockFile>);

impl Reserved {
    /// Reserves `path`; servers that want it log `hint`.
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
