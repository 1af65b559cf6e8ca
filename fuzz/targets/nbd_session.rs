//! A client's bytes, however hostile, against the server's session.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_nbd::fuzz::fuzz_session(data));
