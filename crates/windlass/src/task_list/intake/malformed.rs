//! Properties of every entry of a task list, for fuzzing: see [`crate::malformed`].

use windlass_core::TaskId;

use super::entry::{self, Outcome, Read, Settlement};
use crate::{malformed::check_message, task_list::settings::WhenEnded};

/// Treats the bytes as the value of an entry: one that is taken is marked, and one that is settled is nothing to us.
pub fn task_list_entry(bytes: &[u8]) {
    let waiting = match entry::read(bytes) {
        Read::Waiting(waiting) => waiting,
        Read::Broken(why) => return check_message(&why),
        Read::Marked(..) | Read::Theirs => return,
    };
    let mark = waiting.next_mark("store", TaskId(7));
    let taken = waiting.taken(&mark).expect("fields can be written");
    let Read::Marked(entry, read) = entry::read(taken.as_bytes()) else { panic!("not marked: {taken}") };
    assert_eq!(read, mark);
    let outcome = Outcome { status: "failed".to_owned(), succeeded: false, message: Some("why".to_owned()) };
    let settled = entry.settled(read, &outcome, WhenEnded::WriteBack).expect("fields can be written");
    let Settlement::Keep(kept) = settled else { panic!("not written back: {taken}") };
    assert!(matches!(entry::read(kept.as_bytes()), Read::Theirs), "not settled: {kept}");
}
