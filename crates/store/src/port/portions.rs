//! Reading many tasks, each of which may be large.

/// The number of tasks in a first portion: their sizes are not known.
const FIRST: usize = 16;

/// The maximum size of what is read, in bytes of parameters and results. The first portion may be larger.
const BYTES_MAX: usize = 8 << 20;

/// Reads tasks in portions, so that few large ones are in memory, and many small ones cost few reads.
#[derive(Debug, Default)]
pub struct Portions {
    tasks: usize,
    bytes: usize,
}

impl Portions {
    /// The maximum number of tasks to read next, if they are as large as those before; `None` once memory holds enough.
    #[must_use]
    pub fn next(&self) -> Option<usize> {
        if self.tasks == 0 {
            return Some(FIRST);
        }
        let fit = BYTES_MAX.saturating_sub(self.bytes).saturating_mul(self.tasks) / self.bytes.max(1);
        // At most four times as many as before: the first ones may be small by chance.
        Some(fit.min(4 * self.tasks)).filter(|fit| *fit > 0)
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
    fn many_small_tasks_are_read_in_few_portions_and_few_large_ones_at_all() {
        assert_eq!(read(0), (4, 1_000));
        assert_eq!(read(300), (4, 1_000));
        assert_eq!(read(100_000), (3, 83));
        assert_eq!(read(1 << 20), (1, 16), "the first ones are read anyway");
    }
}
