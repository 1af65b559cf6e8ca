//! Requests of the control API, whatever they say, to a daemon without a socket.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_server::fuzz::control_requests(data));
