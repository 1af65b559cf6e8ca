//! Numbers of variable length, and numbers of either sign.

/// Appends a number, seven bits a byte with the lowest first (LEB128): 1 byte up to 127, at most
/// 10 bytes.
pub fn put_number(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Maps small numbers of either sign to small numbers: 0, -1, 1, -2 to 0, 1, 2, 3.
pub fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

/// Inverse of [`zigzag`].
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}
