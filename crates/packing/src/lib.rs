//! Integers packed into bytes: numbers of variable length (LEB128), and numbers of a fixed width in
//! bits, with the lowest bits first. Recordings and histories consist of both.
//!
//! Writers append to a vector. A [`Bytes`] reads; every method of it returns `None` where no writer
//! can have written the bytes, so they may come from anywhere.
//!
//! ```
//! use tidegate_packing::{Bytes, put_number, put_packed};
//!
//! let mut out = Vec::new();
//! put_number(300, &mut out);
//! put_packed([5, 0, 7].into_iter(), 3, &mut out);
//! assert_eq!(out, [0xac, 2, 0b1100_0101, 1]);
//!
//! let mut bytes = Bytes::new(&out);
//! assert_eq!(bytes.number(), Some(300));
//! assert!(bytes.packed(3, 3).is_some_and(|values| values.eq([5, 0, 7])));
//! assert!(bytes.is_empty());
//! ```

mod bits;
mod bytes;
mod number;

pub use bits::{packed_len, put_packed};
pub use bytes::Bytes;
pub use number::{put_number, unzigzag, zigzag};
