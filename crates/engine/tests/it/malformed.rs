//! Malformed tokens: 10,000 cases, most of them valid ones in which some bytes were changed.

use proptest::{collection::vec, prelude::*, sample::select};
use windlass_core::{ActKey, TaskId};
use windlass_engine::{Tokens, malformed};
use windlass_store::AttemptId;

/// Changes of bytes: where, by how many others one is replaced, and by what.
fn edits() -> impl Strategy<Value = Vec<(prop::sample::Index, usize, Vec<u8>)>> {
    // Long runs of high bits are lengths without end.
    let bytes = prop_oneof![
        3 => vec(any::<u8>(), 0..3),
        1 => (1_usize..12).prop_map(|count| vec![0xff; count]),
        1 => vec(select(b"A-_=+/ \n\0".to_vec()), 1..3),
    ];
    vec((any::<prop::sample::Index>(), 0_usize..3, bytes), 0..4)
}

fn edited(mut bytes: Vec<u8>, edits: &[(prop::sample::Index, usize, Vec<u8>)]) -> Vec<u8> {
    for (at, length, piece) in edits {
        let at = at.index(bytes.len() + 1);
        bytes.splice(at..(at + length).min(bytes.len()), piece.iter().copied());
    }
    bytes
}

fn attempt() -> impl Strategy<Value = AttemptId> {
    let key = (0_usize..256, any::<u32>(), any::<bool>()).prop_map(|(step, member, undo)| ActKey {
        member,
        ..if undo { ActKey::rollback(step) } else { ActKey::forward(step) }
    });
    (any::<u128>(), key, any::<u32>(), any::<u64>()).prop_map(|(task, key, attempt, claim)| AttemptId {
        task: TaskId(task),
        key,
        attempt,
        claim,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tokens(id in attempt(), edits in edits(), noise in vec(any::<u8>(), 0..80)) {
        let tokens = Tokens::new(&[7; 32]);
        let token = tokens.seal(&id);
        prop_assert_eq!(tokens.read(&token), Some(id));
        malformed::token(&tokens, &edited(token.into_bytes(), &edits));
        malformed::token(&tokens, &noise);
    }
}
