//! fio's job files, whatever they say, and the requests that come of them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_workload::fuzz::traces(data));
