//! A recording of requests, whatever is in it, and what it yields once more.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_recording::fuzz::recording(data));
