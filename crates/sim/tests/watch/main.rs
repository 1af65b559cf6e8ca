//! A device is held against its profile, and a cap below it is learnt and kept.

mod cap;
mod drift;
mod lab;
