//! Numbers of a fixed width in bits, packed with the lowest bits first.

use crate::varint::{Damage, Reader};

/// Widest number in bits. Wider values are cut off to the largest that fits, so that a chunk has a
/// largest size; no counter of a VM gets there in a second.
pub(crate) const WIDTH_MAX: u32 = 56;

/// Appends numbers of `width` bits each.
pub(crate) fn put(out: &mut Vec<u8>, values: impl Iterator<Item = u64>, width: u32) {
    debug_assert!(width <= WIDTH_MAX, "{width} bits");
    let (mut word, mut filled) = (0u128, 0);
    for value in values {
        debug_assert!(value >> width == 0, "{value} has more than {width} bits");
        word |= u128::from(value) << filled;
        filled += width;
        while filled >= 8 {
            out.push(word as u8);
            word >>= 8;
            filled -= 8;
        }
    }
    if filled > 0 {
        out.push(word as u8);
    }
}

/// Number of bytes that `count` numbers of `width` bits take.
pub(crate) fn bytes(count: usize, width: u32) -> usize {
    (count * width as usize).div_ceil(8)
}

/// Reads numbers of `width` bits each.
pub(crate) fn get(
    reader: &mut Reader<'_>,
    count: usize,
    width: u32,
) -> Result<impl Iterator<Item = u64>, Damage> {
    if width > WIDTH_MAX {
        return Err(Damage("a number is too wide"));
    }
    let mut bytes = reader.bytes(bytes(count, width))?.iter();
    let (mut word, mut filled) = (0u128, 0);
    Ok((0..count).map(move |_| {
        while filled < width {
            word |= u128::from(*bytes.next().expect("counted above")) << filled;
            filled += 8;
        }
        let value = word as u64 & ((1 << width) - 1);
        word >>= width;
        filled -= width;
        value
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packed_numbers_round_trip(
            values in prop::collection::vec(any::<u64>(), 0..40),
            width in 0..=WIDTH_MAX,
        ) {
            let values: Vec<u64> = values.iter().map(|v| v & ((1 << width) - 1)).collect();
            let mut out = Vec::new();
            put(&mut out, values.iter().copied(), width);
            prop_assert_eq!(out.len(), bytes(values.len(), width));
            let mut reader = Reader::new(&out);
            let got: Vec<u64> = get(&mut reader, values.len(), width).expect("whole").collect();
            prop_assert_eq!(got, values);
            prop_assert!(reader.is_empty());
        }
    }
}
