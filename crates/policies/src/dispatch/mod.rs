//! Dispatchers: algorithms that choose the admitted unit that goes to the device next.
//!
//! Shared modules: `virtual_time` keeps VMs in the order of weighted shares, `cost` gives the cost
//! of an I/O, and `by_deadline` keeps VMs in the order of deadlines. `background` wraps dispatchers
//! that do not serve background processes themselves.

pub mod background;
pub mod bd_edf;
pub mod cfq;
pub mod cost;
pub mod deadline;
pub mod deadline_order;
pub mod drr;
pub mod edf;
pub mod fifo;
mod floor;
pub mod lottery;
pub mod mclock;
pub mod sfq;
pub mod slo;
mod virtual_time;
