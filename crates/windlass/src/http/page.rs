//! Pages of lists: so many items, and so many bytes of what users sent or returned.

use windlass_api as api;

/// How many bytes of parameters and results a page may have. The item that goes beyond them is its last, so that there
/// is one in each page however large it is.
pub(super) const PAGE_BYTES_MAX: usize = 8 << 20;

/// A page in the making.
pub(super) struct Page<T> {
    items: Vec<T>,
    wanted: usize,
    bytes: usize,
}

impl<T> Page<T> {
    /// An empty page for at most so many items.
    pub(super) fn new(wanted: usize) -> Self {
        Self { items: Vec::new(), wanted, bytes: 0 }
    }

    /// How many more items it takes.
    pub(super) fn room(&self) -> usize {
        if self.bytes > PAGE_BYTES_MAX { 0 } else { self.wanted - self.items.len() }
    }

    /// Adds an item in which so many bytes came from users. The caller has looked for room.
    pub(super) fn push(&mut self, item: T, bytes: usize) {
        self.items.push(item);
        self.bytes += bytes;
    }

    /// The page as it is sent.
    pub(super) fn into_list(self, next: Option<String>) -> api::List<T> {
        api::List { items: self.items, next }
    }
}
