//! Anything a driver may do to the engine, in any order, against what was promised.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_testkit::operations::from_bytes(data));
