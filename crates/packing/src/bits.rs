//! Numbers of a fixed width in bits.

/// Appends numbers of `width` bits each, at most 64, with the lowest bits first, and pads them to
/// whole bytes.
///
/// # Panics
///
/// Debug builds panic if a number has more bits.
pub fn put_packed(values: impl Iterator<Item = u64>, width: u32, out: &mut Vec<u8>) {
    debug_assert!(width <= u64::BITS, "{width} bits");
    let (mut word, mut filled) = (0u128, 0);
    for value in values {
        debug_assert!(
            value.checked_shr(width).unwrap_or(0) == 0,
            "{value} has more than {width} bits"
        );
        word |= u128::from(value) << filled;
        filled += width;
        if filled >= u64::BITS {
            out.extend_from_slice(&(word as u64).to_le_bytes());
            word >>= u64::BITS;
            filled -= u64::BITS;
        }
    }
    let rest = (word as u64).to_le_bytes();
    out.extend_from_slice(&rest[..filled.div_ceil(u8::BITS) as usize]);
}

/// Returns the number of bytes that `count` numbers of `width` bits take.
pub fn packed_len(count: usize, width: u32) -> usize {
    (count * width as usize).div_ceil(u8::BITS as usize)
}

/// Returns the `width` bits of `packed` from bit `first` on.
pub(crate) fn unpack(packed: &[u8], first: usize, width: u32) -> u64 {
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
