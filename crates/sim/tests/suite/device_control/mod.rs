//! A device is held against its profile, a cap below it is learnt and kept, its queue is kept as
//! deep as it needs to be, and VMs share it I/O by I/O.

mod cap;
mod costs;
mod depth;
mod drift;
pub(crate) mod lab;
mod splitting;
