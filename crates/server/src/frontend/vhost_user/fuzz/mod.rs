//! Bodies of the fuzz targets of vhost-user.
//!
//! `virtqueue` drives one queue in memory of which any byte may change at any time, beside a model;
//! `session` drives whole sessions of a loop, by messages and requests in any order.

mod guest;
mod model;
mod session;
mod virtqueue;

pub use session::vhost_session;
pub use virtqueue::virtqueue;
