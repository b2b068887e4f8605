//! Before the store works: the lock file, the settings of connections, the size of the log, and the room on the disk.

pub(super) mod connect;
pub(super) mod inode_lock;
pub(super) mod lock;
pub(super) mod meta;
pub(super) mod prefill;
pub(super) mod reserved;
pub(super) mod room;
pub(super) mod schema;
