//! Reading many tasks, each of which may be large.

/// The maximum number of tasks in a portion. They may all be larger than those before.
const TASKS_MAX: usize = 16 * Portions::FIRST;

/// No portion follows once the parameters and results that were read have this size, in bytes.
const BYTES_MAX: usize = 8 << 20;

/// Reads tasks in portions: few large ones at once, and many small ones.
#[derive(Debug, Default)]
pub struct Portions {
    tasks: usize,
    bytes: usize,
}

impl Portions {
    /// The number of tasks in the first portion. Each task may have 1 MiB of parameters and results.
    pub const FIRST: usize = 16;

    /// The maximum number of tasks to read next; `None` if memory holds enough.
    #[must_use]
    pub fn next(&self) -> Option<usize> {
        if self.tasks == 0 {
            return Some(Self::FIRST);
        }
        let fit = BYTES_MAX.saturating_sub(self.bytes).saturating_mul(self.tasks) / self.bytes.max(1);
        Some(fit.min(4 * self.tasks).min(TASKS_MAX)).filter(|fit| *fit > 0)
    }

    /// Records a portion of this many tasks, with this many bytes of parameters and results.
    pub fn add(&mut self, tasks: usize, bytes: usize) {
        self.tasks += tasks;
        self.bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads 1,000 tasks of a size. Returns the number of reads and the number of tasks read.
    fn read(bytes: usize) -> (usize, usize) {
        let (mut portions, mut reads, mut tasks) = (Portions::default(), 0, 0);
        while tasks < 1_000
            && let Some(count) = portions.next()
        {
            let count = count.min(1_000 - tasks);
            portions.add(count, count * bytes);
            (reads, tasks) = (reads + 1, tasks + count);
        }
        (reads, tasks)
    }

    #[test]
    fn many_small_tasks_are_read_at_once_and_few_large_ones() {
        assert_eq!(read(0), (6, 1_000));
        assert_eq!(read(300), (6, 1_000));
        assert_eq!(read(100_000), (3, 83));
        assert_eq!(read(1 << 20), (1, 16), "the first ones are read anyway");
    }
}
