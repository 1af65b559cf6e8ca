//! Rows of a store, whatever they say, restored into loops that run.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_server::fuzz::store_records(data));
