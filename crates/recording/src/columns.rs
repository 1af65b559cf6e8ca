//! Columns of integers: groups of values in as few bits as they need.

use tidegate_packing::{Bytes, put_number, put_packed, unzigzag, zigzag};

/// Values of a group that share a smallest value and a width.
const GROUP: usize = 64;

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
        let distances = group.iter().map(|value| value.wrapping_sub(least) as u64);
        put_packed(distances, width, out);
    }
}

/// Takes a column of `count` values of [`put_column`] and puts them into `values`; `None` where the
/// bytes cannot be right.
pub(crate) fn get_column(bytes: &mut Bytes<'_>, count: usize, values: &mut Vec<i64>) -> Option<()> {
    values.clear();
    while values.len() < count {
        let width = u32::from(bytes.byte()?);
        let least = unzigzag(bytes.number()?);
        let group = (count - values.len()).min(GROUP);
        let distances = bytes.packed(group, width)?;
        values.extend(distances.map(|distance| least.wrapping_add(distance as i64)));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Encodes values and decodes them again.
    fn again(values: &[i64]) -> (usize, Vec<i64>) {
        let mut bytes = Vec::new();
        put_column(values, &mut bytes);
        let (mut left, mut read) = (Bytes::new(&bytes), Vec::new());
        get_column(&mut left, values.len(), &mut read).expect("as it was written");
        assert!(left.is_empty());
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
    fn a_width_beyond_64_bits_is_refused() {
        let mut bytes = Bytes::new(&[65, 0]);
        assert_eq!(get_column(&mut bytes, 1, &mut Vec::new()), None);
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
            get_column(&mut Bytes::new(&bytes), count, &mut values);
            prop_assert!(values.len() <= count);
        }
    }
}
