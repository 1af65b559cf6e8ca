//! Configuration files, objectives and policies, whatever they say.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_server::config::fuzz(data));
