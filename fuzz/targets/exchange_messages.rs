//! Messages of hosts that share an array, whatever their bytes are.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_exchange::fuzz::message(data));
