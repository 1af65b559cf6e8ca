//! Reader of packed numbers.

use crate::bits::{packed_len, unpack};

/// Bytes that are still to be read. A method that returns `None` may have taken some of them.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a> {
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    /// Creates a reader.
    pub fn new(bytes: &'a [u8]) -> Bytes<'a> {
        Bytes { rest: bytes }
    }

    /// Returns true if all bytes have been read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the number of bytes that are still to be read.
    pub fn len(&self) -> usize {
        self.rest.len()
    }

    /// Takes `len` bytes; `None` if there are fewer.
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    /// Takes one byte; `None` if there is none.
    pub fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    /// Takes a number that [`put_number`](crate::put_number) wrote; `None` if it does not end or
    /// has more than 64 bits.
    pub fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// Takes `count` numbers of `width` bits that [`put_packed`](crate::put_packed) wrote; `None`
    /// if there are fewer bytes, or for a width above 64.
    pub fn packed(
        &mut self,
        count: usize,
        width: u32,
    ) -> Option<impl ExactSizeIterator<Item = u64> + use<'a>> {
        if width > u64::BITS {
            return None;
        }
        let packed = self.take(packed_len(count, width))?;
        Some((0..count).map(move |at| unpack(packed, at * width as usize, width)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{put_number, put_packed, unzigzag, zigzag};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn numbers_are_read_as_they_were_written(value in any::<u64>(), shift in 0u32..64) {
            let value = value >> shift;
            let mut out = Vec::new();
            put_number(value, &mut out);
            let mut bytes = Bytes::new(&out);
            prop_assert_eq!(bytes.number(), Some(value));
            prop_assert!(bytes.is_empty());
            prop_assert_eq!(unzigzag(zigzag(value as i64)), value as i64);
        }

        #[test]
        fn packed_numbers_are_read_as_they_were_written(
            values in prop::collection::vec(any::<u64>(), 0..70),
            width in 0u32..=64,
        ) {
            let cut = |value: &u64| value & u64::MAX.checked_shr(64 - width).unwrap_or(0);
            let values: Vec<u64> = values.iter().map(cut).collect();
            let mut out = Vec::new();
            put_packed(values.iter().copied(), width, &mut out);
            prop_assert_eq!(out.len(), packed_len(values.len(), width));
            let mut bytes = Bytes::new(&out);
            let read: Vec<u64> = bytes.packed(values.len(), width).expect("whole").collect();
            prop_assert_eq!(read, values);
            prop_assert!(bytes.is_empty());
        }
    }

    #[test]
    fn numbers_that_no_writer_writes_are_refused() {
        assert_eq!(Bytes::new(&[0x80; 11]).number(), None, "no end");
        assert_eq!(Bytes::new(&[0x80]).number(), None, "it ends too early");
        let mut large = [0xff; 10];
        large[9] = 2;
        assert_eq!(Bytes::new(&large).number(), None, "65 bits");
        large[9] = 1;
        assert_eq!(Bytes::new(&large).number(), Some(u64::MAX));
        assert!(Bytes::new(&[0; 100]).packed(1, 65).is_none(), "65 bits");
        assert!(Bytes::new(&[0; 100]).packed(101, 8).is_none(), "too few");
    }
}
