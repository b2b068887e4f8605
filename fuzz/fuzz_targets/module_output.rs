#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| windlass::malformed::module_output(bytes));
