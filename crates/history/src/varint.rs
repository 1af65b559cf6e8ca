//! Variable-length integers (LEB128), and a reader of bytes that may be anything.

/// Damage of encoded history: the bytes are not what the encoder writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("damaged history: {0}")]
pub struct Damage(pub &'static str);

/// Appends a number, seven bits a byte, the lowest first.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Maps small numbers of both signs to small numbers: 0, -1, 1, -2 to 0, 1, 2, 3.
pub(crate) fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

/// Inverse of [`zigzag`].
pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Reader of encoded bytes.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Damage> {
        let (&first, rest) = self.rest.split_first().ok_or(Damage("it ends early"))?;
        self.rest = rest;
        Ok(first)
    }

    pub(crate) fn varint(&mut self) -> Result<u64, Damage> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if shift == 63 && bits > 1 {
                return Err(Damage("a number is too large"));
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Damage("a number does not end"))
    }

    /// Reads a number that is to be at most `max`.
    pub(crate) fn at_most(&mut self, max: usize, what: &'static str) -> Result<usize, Damage> {
        let value = self.varint()?;
        let value = usize::try_from(value).map_err(|_| Damage(what))?;
        if value > max {
            return Err(Damage(what));
        }
        Ok(value)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Damage> {
        let (bytes, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(Damage("it ends early"))?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Reads bytes that are preceded by their number.
    pub(crate) fn counted_bytes(&mut self) -> Result<&'a [u8], Damage> {
        let len = self.at_most(self.rest.len(), "it ends early")?;
        self.bytes(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_round_trip(value in any::<u64>(), shift in 0u32..64) {
            let value = value >> shift;
            let mut out = Vec::new();
            put(&mut out, value);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.varint(), Ok(value));
            prop_assert!(reader.is_empty());
            prop_assert_eq!(unzigzag(zigzag(value as i64)), value as i64);
        }
    }

    #[test]
    fn numbers_that_no_encoder_writes_are_refused() {
        assert!(Reader::new(&[0x80; 11]).varint().is_err());
        let mut large = [0xff; 10];
        large[9] = 2;
        assert!(Reader::new(&large).varint().is_err());
        large[9] = 1;
        assert_eq!(Reader::new(&large).varint(), Ok(u64::MAX));
        assert!(Reader::new(&[]).varint().is_err());
    }
}
