//! Malformed stored values: 10,000 cases, most of them valid ones in which some bytes were changed.

use proptest::{collection::vec, prelude::*, sample::select};
use windlass_store::malformed;

const VALUES: [&[u8]; 6] = [
    include_bytes!("fixtures/1/state.bin"),
    include_bytes!("fixtures/1/flow.bin"),
    include_bytes!("fixtures/1/events.bin"),
    include_bytes!("fixtures/1/message.bin"),
    include_bytes!("fixtures/1/alarm.bin"),
    include_bytes!("fixtures/1/input.bin"),
];

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

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn stored_values(value in select(&VALUES[..]), edits in edits(), noise in vec(any::<u8>(), 0..80)) {
        malformed::stored_value(&edited(value.to_vec(), &edits));
        malformed::stored_value(&[&[1], noise.as_slice()].concat());
    }
}
