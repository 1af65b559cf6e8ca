//! Disk models: the time that a device takes for each I/O, as a function of its inputs alone.
//!
//! The daemon's emulated backing and the simulator share these models, so that measurements of one
//! can be compared with the other. A model reads no clock, has no thread and opens no file: time is
//! an argument, an I/O goes in, and a completion with its time comes out. Equal inputs give equal
//! outputs on every machine.
//!
//! When an I/O is submitted, a model settles as much as it can and nothing that a later I/O could
//! still change. A hard disk that reorders its queue decides one operation at a time; a flash disk
//! books its dies, channels and interface ahead; an array looks ahead up to the end of its own next
//! I/O. So a model knows when its next I/O ends. The exceptions are a flash disk whose commands
//! share the interface, because later commands delay earlier ends there, and a caching controller:
//! the time that they name is the next time to poll, and it may be that no I/O has ended by then.
//! The times at which a driver polls never change the results.
//!
//! - [`Model`] is the interface of a device to its driver.
//! - [`catalogue`] has device descriptions with their figures and builds models from them.
//! - [`hdd`] is a hard disk, [`ssd`] a flash disk, [`raid0`] an array of either; [`controller`] is
//!   a caching array controller in front of any of them, and [`cap`] a token bucket in front of
//!   that.

#![forbid(unsafe_code)]

pub mod cap;
pub mod catalogue;
pub mod controller;
mod figures;
pub mod hdd;
mod model;
pub mod raid0;
mod reciprocal;
pub mod ssd;

pub use figures::FigureError;
pub use model::{Completion, Model, ModelIo, Spec};
