//! CRC32C (Castagnoli, RFC 3720 appendix B.4), eight bytes at a time.

const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Remainders of each byte, followed by 0 to 7 bytes of zeroes.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 {
                crc >> 1 ^ POLYNOMIAL
            } else {
                crc >> 1
            };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut after = 1;
    while after < 8 {
        let mut byte = 0;
        while byte < 256 {
            let crc = tables[after - 1][byte];
            tables[after][byte] = crc >> 8 ^ tables[0][(crc & 0xff) as usize];
            byte += 1;
        }
        after += 1;
    }
    tables
}

/// Returns the checksum of the parts, one after the other.
pub(crate) fn crc32c(parts: [&[u8]; 2]) -> u32 {
    let mut crc = u32::MAX;
    for part in parts {
        let (eights, rest) = part.as_chunks::<8>();
        for eight in eights {
            let word = u64::from_le_bytes(*eight) ^ u64::from(crc);
            let bytes = word.to_le_bytes();
            crc = (bytes.iter().enumerate()).fold(0, |sum, (at, &byte)| {
                sum ^ TABLES[7 - at][usize::from(byte)]
            });
        }
        for &byte in rest {
            crc = crc >> 8 ^ TABLES[0][usize::from(crc as u8 ^ byte)];
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_rfc_3720() {
        assert_eq!(crc32c([b"123456789", b""]), 0xe306_9283);
        assert_eq!(crc32c([&[0; 32], b""]), 0x8a91_36aa);
        assert_eq!(crc32c([&[0xff; 32], b""]), 0x62a8_ab43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c([&ascending, b""]), 0x46dd_794e);
        assert_eq!(crc32c([&ascending[..11], &ascending[11..]]), 0x46dd_794e);
    }
}
