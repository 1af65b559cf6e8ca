//! Dispatchers: which of the admitted units goes to the device next.

pub mod background;
pub mod bd_edf;
pub mod by_deadline;
pub mod cfq;
pub mod cost;
pub mod deadline;
pub mod drr;
pub mod edf;
pub mod fifo;
pub mod lottery;
pub mod mclock;
pub mod sfq;
mod virtual_time;
