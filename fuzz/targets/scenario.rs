//! Scenarios, whatever they say, and the worlds that come of them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_sim::fuzz::scenario(data));
