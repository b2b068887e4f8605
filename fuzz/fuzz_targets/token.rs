#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| windlass_engine::malformed::token(
    &windlass_engine::Tokens::new(&[7; 32]),
    bytes
));
