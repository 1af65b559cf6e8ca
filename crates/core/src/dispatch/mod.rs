//! Dispatchers: which of the admitted units goes to the device next.

pub mod fifo;
pub mod mclock;
