//! A task of which something is to be announced comes into a store by several changes, in their order: so it is known what
//! each of them announces.

use std::sync::Arc;

use super::ArchiveError;
use crate::port::TaskChange;

/// The change that brings a task, in pieces: `unannounced` says after which of its events how many are to be announced.
/// What the task waits for comes with the last piece, and everything else with the first.
pub(super) fn in_pieces(
    mut whole: TaskChange,
    unannounced: &[(u64, u64)],
) -> Result<Vec<TaskChange>, ArchiveError> {
    let ends = ends(whole.events.len() as u64, unannounced).ok_or_else(|| {
        let task = whole.task.id;
        ArchiveError::Damaged(format!("what is to be announced of task {task} is not what happened to it"))
    })?;
    let mut events = std::mem::take(&mut whole.events).into_iter();
    // What a task waits for is published of its last state only.
    let waits = std::mem::take(&mut whole.waits);
    let (mut pieces, mut next) = (Vec::with_capacity(ends.len()), whole);
    for (end, announces) in ends {
        let rest = TaskChange { before: end, results: Vec::new(), submit_key: None, ..next.clone() };
        let count = usize::try_from(end - next.before).unwrap_or(usize::MAX);
        let mut task = (*next.task).clone();
        task.state.events = end;
        let events = events.by_ref().take(count).collect();
        pieces.push(TaskChange { task: Arc::new(task), events, announces, ..next });
        next = rest;
    }
    if let Some(last) = pieces.last_mut() {
        last.waits = waits;
    }
    Ok(pieces)
}

/// The last event of each piece, and whether it is announced; nothing where it cannot be so.
fn ends(events: u64, unannounced: &[(u64, u64)]) -> Option<Vec<(u64, bool)>> {
    let (mut ends, mut end) = (Vec::new(), 0);
    for (after, count) in unannounced {
        if *after > end {
            ends.push((*after, false));
        }
        let next = after.checked_add(*count)?;
        if *after < end || *count == 0 || next > events {
            return None;
        }
        end = next;
        ends.push((end, true));
    }
    if end < events || ends.is_empty() {
        ends.push((events, false));
    }
    Some(ends)
}

/// Whether a change is the piece after that one.
pub(super) fn is_next(change: &TaskChange, piece: Option<&TaskChange>) -> bool {
    piece.is_some_and(|piece| (piece.task.id, piece.task.state.events) == (change.task.id, change.before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_all_events_once() {
        assert_eq!(ends(5, &[]), Some(vec![(5, false)]));
        assert_eq!(ends(0, &[]), Some(vec![(0, false)]));
        assert_eq!(ends(5, &[(0, 5)]), Some(vec![(5, true)]));
        let some = Some(vec![(1, false), (3, true), (4, true), (5, false), (6, true), (9, false)]);
        assert_eq!(ends(9, &[(1, 2), (3, 1), (5, 1)]), some);
    }

    #[test]
    fn what_did_not_happen_is_refused() {
        for unannounced in [&[(0, 6)][..], &[(5, 1)], &[(0, 2), (1, 1)], &[(2, 0)], &[(u64::MAX, 2)]] {
            assert_eq!(ends(5, unannounced), None, "{unannounced:?}");
        }
    }
}
