//! Columns of integers: variable-length numbers, and groups of values in as few bits as they need.

/// Values of a group that share a smallest value and a width.
const GROUP: usize = 64;

/// Appends a number in groups of seven bits, the lowest first (LEB128).
pub(crate) fn put_number(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Maps small numbers of either sign to small numbers.
fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

/// Inverse of [`zigzag`].
fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Appends a column: for every group its width in bits, its smallest value, and the distances of
/// its values from that.
pub(crate) fn put_column(values: &[i64], out: &mut Vec<u8>) {
    for group in values.chunks(GROUP) {
        let (mut least, mut most) = (group[0], group[0]);
        for &value in group {
            least = least.min(value);
            most = most.max(value);
        }
        // Wraps for values of more than 63 bits apart, and unpacking wraps back.
        let range = most.wrapping_sub(least) as u64;
        let width = u64::BITS - range.leading_zeros();
        out.push(width as u8);
        put_number(zigzag(least), out);
        pack(group, least, width, out);
    }
}

/// Appends the distances from `least` in `width` bits each, padded to whole bytes.
fn pack(group: &[i64], least: i64, width: u32, out: &mut Vec<u8>) {
    let (mut bits, mut filled) = (0u128, 0);
    for &value in group {
        bits |= u128::from(value.wrapping_sub(least) as u64) << filled;
        filled += width;
        if filled >= u64::BITS {
            out.extend_from_slice(&(bits as u64).to_le_bytes());
            bits >>= u64::BITS;
            filled -= u64::BITS;
        }
    }
    let rest = (bits as u64).to_le_bytes();
    out.extend_from_slice(&rest[..filled.div_ceil(8) as usize]);
}

/// Bytes of a block that are still to be decoded. Every method returns `None` where the bytes
/// cannot be right.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    /// Takes `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// Takes one byte.
    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }

    /// Takes a number of [`put_number`].
    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
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

    /// Takes a column of `count` values of [`put_column`] and puts them into `values`.
    pub(crate) fn column(&mut self, count: usize, values: &mut Vec<i64>) -> Option<()> {
        values.clear();
        while values.len() < count {
            let width = u32::from(self.byte()?);
            if width > u64::BITS {
                return None;
            }
            let least = unzigzag(self.number()?);
            let group = (count - values.len()).min(GROUP);
            let packed = self.take((group * width as usize).div_ceil(8))?;
            for at in 0..group {
                let distance = unpack(packed, at * width as usize, width);
                values.push(least.wrapping_add(distance as i64));
            }
        }
        Some(())
    }
}

/// Returns the `width` bits from bit `first` on.
fn unpack(packed: &[u8], first: usize, width: u32) -> u64 {
    if width == 0 {
        return 0;
    }
    let mut bytes = [0; 16];
    let from = &packed[first / 8..];
    // Nine bytes hold any 64 bits, wherever they begin in the first of them.
    let len = from.len().min(9);
    bytes[..len].copy_from_slice(&from[..len]);
    let bits = (u128::from_le_bytes(bytes) >> (first % 8)) as u64;
    bits & (u64::MAX >> (u64::BITS - width))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Encodes values and decodes them again.
    fn again(values: &[i64]) -> (usize, Vec<i64>) {
        let mut bytes = Vec::new();
        put_column(values, &mut bytes);
        let (mut left, mut read) = (Bytes(&bytes), Vec::new());
        left.column(values.len(), &mut read)
            .expect("as it was written");
        assert!(left.0.is_empty());
        (bytes.len(), read)
    }

    #[test]
    fn equal_values_take_no_bits() {
        assert_eq!(again(&[4096; 64]), (3, vec![4096; 64]));
        assert_eq!(again(&[0; 65]).0, 4);
        assert_eq!(again(&[]), (0, Vec::new()));
    }

    #[test]
    fn values_take_the_bits_of_their_range() {
        let values: Vec<i64> = (1000..1064).collect();
        // Six bits each, a width and a smallest value of two bytes.
        assert_eq!(again(&values), (48 + 3, values));
    }

    #[test]
    fn numbers_beyond_64_bits_are_refused() {
        let mut bytes = Vec::new();
        put_number(u64::MAX, &mut bytes);
        assert_eq!((bytes.len(), bytes[9]), (10, 1));
        assert_eq!(Bytes(&bytes).number(), Some(u64::MAX));
        bytes[9] = 2;
        assert_eq!(Bytes(&bytes).number(), None);
        assert_eq!(Bytes(&[0xFF; 11]).number(), None);
        assert_eq!(Bytes(&[0x80]).number(), None, "it ends too early");
        assert_eq!(Bytes(&[65, 0]).column(1, &mut Vec::new()), None, "65 bits");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn columns_are_read_as_they_were_written(
            values in prop::collection::vec(any::<i64>(), 0..200),
            shift in 0u32..64,
        ) {
            let values: Vec<i64> = values.iter().map(|value| value >> shift).collect();
            prop_assert_eq!(again(&values).1, values);
        }

        #[test]
        fn any_bytes_are_survived(bytes in any::<Vec<u8>>(), count in 0usize..5000) {
            let mut values = Vec::new();
            Bytes(&bytes).column(count, &mut values);
            prop_assert!(values.len() <= count);
        }
    }
}
