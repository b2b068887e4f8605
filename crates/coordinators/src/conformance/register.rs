//! What leaders change: it knows fences, and nothing of leaders.

use std::sync::{Mutex, PoisonError};

/// A register that refuses fences below the highest one seen, as the owner of every effect must.
#[derive(Debug, Default)]
pub struct Register {
    written: Mutex<Vec<u64>>,
}

impl Register {
    /// Writes with a fence. False when it is refused.
    pub fn write(&self, fence: u64) -> bool {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let is_current = written.last().is_none_or(|last| fence >= *last);
        if is_current {
            written.push(fence);
        }
        is_current
    }

    /// The fences of all writes, in their order.
    pub fn written(&self) -> Vec<u64> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_fences_are_refused() {
        let register = Register::default();
        assert!(register.write(5) && register.write(5) && register.write(7));
        assert!(!register.write(6));
        assert_eq!(register.written(), [5, 5, 7]);
    }
}
