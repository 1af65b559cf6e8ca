//! A server's bytes, however hostile, against the client's decoder.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_nbd::fuzz::fuzz_replies(data));
