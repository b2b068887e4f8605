//! Rows in one SQLite file, written by one server.
//!
//! Active tasks live in the server's memory (`windlass_store::resident`); this is where they are written down,
//! and where what has ended is kept. The writer thread is the limit of the whole system, so everything here is
//! arranged for it: it only inserts at the ends of tables and updates few small rows.
//!
//! ```text
//!            write(batch)                  ended, events, logs, …
//!                 │                                │
//!            ┌────▼────┐  commit   ┌─────┐    ┌────▼────┐
//!            │ writer  ├──────────▶│ log ├───▶│ readers │
//!            └────┬────┘           └──┬──┘    └────▲────┘
//!            gate ┆              ┌────▼───────┐    │
//!                 └┄┄┄┄┄┄┄┄┄┄┄┄┄┄┤ checkpoint ├─▶ file
//!                                └────────────┘
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `open.rs`, `migrate.rs`, `opening` | opening: checks, the lock file, the format, the log's size |
//! | `sink.rs` | the port over the threads |
//! | `writer.rs`, `rows.rs`, `tables` | the writer thread, what a transaction writes, where rows are |
//! | `gate.rs`, `checkpoint.rs` | copying the log into the file without the writer waiting |
//! | `checksum.rs` | a checksum in every row |
//! | `recover.rs`, `read.rs` | reading what is active, at a start and after a failed write |
//! | `resting.rs` | reading tasks at rest |
//! | `readers.rs`, `query.rs`, `list.rs` | queries for what has ended |
//! | `snapshot.rs` | what an export reads |
//! | `sweep.rs`, `doctor.rs` | deleting what is old; looking for what is wrong |
//!
//! # The tables
//!
//! A task has a number (`task.n`) beside its UUID, in the order of arrival. Tables that are keyed by a growing
//! number are appended to, which touches a page or two per commit however many tasks are in it, and integers
//! compare faster than 16 bytes. From id to number leads the directory (`tables/directory.rs`) for what is active, and the
//! keys of `resting` and `final` for the others, so there is no index on ids to keep.
//!
//! - `task`: what was submitted. Written once.
//! - `active`: the state of what has not ended. Written once per commit that changes it, deleted at the end. It
//!   is all that a start reads, with the `task` rows that belong to it.
//! - `resting`: the same of tasks that nothing will wake soon, which are not in memory: with a key to find them by,
//!   and in the order of their times. A start does not read it.
//! - `member`: the members of fanned-out steps, apart from the state of their task, so that a commit writes those that
//!   it changes however many there are. They stay until the task is deleted.
//! - `history`: events, and the results that came with them. Written once; each row leads to the one before it
//!   of the same task, so a task's history is found from its newest row without an index, and rows of one
//!   commit lie side by side. Reading a history from its beginning walks all of it.
//! - `final`: the state of what has ended, with the key (status, id): it finds a task by id with one look per
//!   status, and lists each status newest first. A separate index on the status would be one more row to write.
//!
//! # When something fails
//!
//! | what | then |
//! |---|---|
//! | the process dies | what was reported as written is in the log; SQLite drops a transaction that is not whole |
//! | a write or a sync fails | see `writer.rs`: everything fails until the state is read again |
//! | the disk is full | the log takes what it has room for, but for a last piece (`gate.rs`); then writes are refused. The state is read without writing, and a start needs no more than that piece |
//! | a row is not as it was written | its checksum shows it (`checksum.rs`): it is an error that names task and table |
//! | a row cannot be read | recovery skips it and names its task, or what it was; [`doctor()`] lists all such rows |
//! | a second server | is refused by the lock file, with the number of the process that has it |

mod checkpoint;
mod checksum;
mod doctor;
mod encoding;
mod error;
mod gate;
mod limits;
mod list;
mod migrate;
mod open;
mod opening;
#[cfg(test)]
mod plans;
mod query;
mod read;
mod readers;
mod recover;
mod resting;
mod rows;
mod sink;
mod snapshot;
mod sweep;
mod tables;
mod writer;

use self::{
    opening::{connect, inode_lock, lock, meta, prefill, reserved, room, schema},
    tables::{
        claim_rows, directory, history_rows, lock_rows, member_rows, outbox, record_rows, task_rows, touched,
        unique_rows,
    },
};
pub use doctor::{Report, doctor};
pub use open::{OpenError, SqliteOptions, check_path};
pub use reserved::Reserved;
pub use schema::schema;
pub use sink::SqliteSink;
pub use snapshot::SqliteSnapshot;
