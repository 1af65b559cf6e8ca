//! Blocks of the history, whatever their bodies say, restored and queried.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_history::fuzz::blocks(data));
