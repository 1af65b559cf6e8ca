//! A driver's virtqueue and memory, whatever it does to them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_server::fuzz::virtqueue(data));
