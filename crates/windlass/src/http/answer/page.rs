//! Pages of lists, limited in items and in bytes of parameters and results.

use windlass_api as api;

/// The most bytes of parameters and results in a page. The item that exceeds them is the last of its page, so that each page
/// has at least one.
pub(in crate::http) const PAGE_BYTES_MAX: usize = 8 << 20;

/// A page in the making.
pub(in crate::http) struct Page<T> {
    items: Vec<T>,
    wanted: usize,
    bytes: usize,
}

impl<T> Page<T> {
    /// An empty page for at most `wanted` items.
    pub(in crate::http) fn new(wanted: usize) -> Self {
        Self { items: Vec::new(), wanted, bytes: 0 }
    }

    /// How many more items it takes.
    pub(in crate::http) fn room(&self) -> usize {
        if self.bytes > PAGE_BYTES_MAX { 0 } else { self.wanted - self.items.len() }
    }

    /// Adds an item with `bytes` bytes of parameters and results. The caller has checked [`Page::room`].
    pub(in crate::http) fn push(&mut self, item: T, bytes: usize) {
        self.items.push(item);
        self.bytes += bytes;
    }

    /// The page as it is sent.
    pub(in crate::http) fn into_list(self, next: Option<String>) -> api::List<T> {
        api::List { items: self.items, next }
    }
}
