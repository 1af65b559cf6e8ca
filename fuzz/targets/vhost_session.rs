//! A hypervisor's messages and its guest's requests, however hostile, against a running loop.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_server::fuzz::vhost_session(data));
