//! Dispatchers: which of the admitted units goes to the device next.
//!
//! Shared pieces: `virtual_time` for dispatchers that give shares by weight, `cost` for the cost of
//! an I/O in them, `by_deadline` for those that order VMs by deadline. `background` wraps
//! dispatchers that do not serve background processes themselves.

pub mod background;
pub mod bd_edf;
pub mod by_deadline;
pub mod cfq;
pub mod cost;
pub mod deadline;
pub mod drr;
pub mod edf;
pub mod fifo;
mod floor;
pub mod lottery;
pub mod mclock;
pub mod sfq;
pub mod slo;
mod virtual_time;
