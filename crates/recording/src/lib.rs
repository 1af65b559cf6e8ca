//! Recordings: every request of a device with its four times, in files of some ten bytes a request.
//!
//! ```text
//!   magic, version
//!   header       device, policy, VMs with their disks and objectives, wall clock   (JSON)
//!   block        up to 4096 requests in the order in which they ended              (columns)
//!   change       VM or disk added or removed, objective or policy changed          (JSON)
//!   block
//!   ...
//!   end          a recording without it was cut off
//! ```
//!
//! Everything behind the version is a *chunk* with a marker, a length and two checksums
//! (CRC-32C). A chunk can be read without those before it, so damage costs what it hits and no
//! more: the reader goes on at the next chunk and reports a [`Gap`] with the number of requests
//! that are missing, which it knows because every block has the number of its first request.
//!
//! A block stores the fields of its requests by column, in groups of 64 values: the smallest value
//! of a group, and the differences to it in as few bits as the largest needs. Times are durations
//! of stages, addresses are distances from the end of the request before on the same disk. So a
//! random address costs the bits that it has, and a column of equal values nothing.
//!
//! The crate does no I/O: an [`Encoder`] appends to a buffer, a [`Reader`] takes any
//! [`Read`](std::io::Read).
//!
//! ```
//! use tidegate_base::request::Op;
//! use tidegate_base::time::Nanos;
//! use tidegate_recording::{DiskFacts, Encoder, Header, Item, Reader, Request, VmFacts};
//!
//! let disk = DiskFacts { number: 0, name: "oltp".into(), size_bytes: 1 << 30, at: 0 };
//! let vm = VmFacts { number: 0, name: "oltp".into(), disks: vec![disk], ..VmFacts::default() };
//! let header = Header { vms: vec![vm], ..Header::default() };
//!
//! let mut file = Vec::new();
//! let mut encoder = Encoder::new(&header, &mut file);
//! let request = Request {
//!     disk: 0,
//!     op: Op::Read,
//!     fua: false,
//!     keep_allocated: false,
//!     outcome: Ok(()),
//!     offset: 8192,
//!     len: 4096,
//!     arrived: Nanos(1_000),
//!     admitted: Nanos(1_000),
//!     sent: Nanos(3_000),
//!     done: Nanos(90_000),
//! };
//! encoder.push(&request, &mut file);
//! encoder.end(Nanos(100_000), &mut file);
//!
//! let mut reader = Reader::new(file.as_slice())?;
//! assert_eq!(reader.next_item()?, Some(Item::Request(request)));
//! assert_eq!(reader.vm_of_disk(0).map(|vm| vm.name.as_str()), Some("oltp"));
//! assert_eq!(reader.next_item()?, None);
//! assert!(reader.summary().is_complete);
//! # Ok::<(), tidegate_recording::ReadError>(())
//! ```

mod block;
mod chunk;
mod columns;
mod encoder;
mod facts;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod inventory;
mod reader;
mod request;
#[cfg(test)]
mod tests;
mod whole;

pub use block::BLOCK_REQUESTS;
pub use chunk::{MAGIC, VERSION};
pub use encoder::{DISKS_MAX, Encoder};
pub use facts::{Change, DeviceFacts, DiskFacts, Header, VmFacts};
pub use inventory::Inventory;
pub use reader::{Gap, GapCause, Item, ReadError, Reader, Summary};
pub use request::Request;
pub use whole::{Recording, TooLarge};
