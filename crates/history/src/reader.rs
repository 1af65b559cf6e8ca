//! Reader of encoded history.

use tidegate_packing::Bytes;

/// Damage of encoded history: the bytes are not what the encoder writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("damaged history: {0}")]
pub struct Damage(pub &'static str);

const ENDS_EARLY: Damage = Damage("it ends early");

/// Widest packed number in bits. Wider values are cut off to the largest that fits, so that a chunk
/// has a largest size; no counter of a VM gets there in a second.
pub(crate) const WIDTH_MAX: u32 = 56;

/// Reader of encoded bytes.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    bytes: Bytes<'a>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader {
            bytes: Bytes::new(bytes),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Damage> {
        self.bytes.byte().ok_or(ENDS_EARLY)
    }

    pub(crate) fn number(&mut self) -> Result<u64, Damage> {
        let number = self.bytes.number();
        number.ok_or(Damage("a number does not end, or is too large"))
    }

    /// Reads a number that is to be at most `max`.
    pub(crate) fn at_most(&mut self, max: usize, what: &'static str) -> Result<usize, Damage> {
        let value = usize::try_from(self.number()?).map_err(|_| Damage(what))?;
        if value > max {
            return Err(Damage(what));
        }
        Ok(value)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Damage> {
        self.bytes.take(len).ok_or(ENDS_EARLY)
    }

    /// Reads bytes that are preceded by their number.
    pub(crate) fn counted_bytes(&mut self) -> Result<&'a [u8], Damage> {
        let len = self.at_most(self.bytes.len(), "it ends early")?;
        self.bytes(len)
    }

    /// Reads numbers of `width` bits each.
    pub(crate) fn packed(
        &mut self,
        count: usize,
        width: u32,
    ) -> Result<impl ExactSizeIterator<Item = u64> + use<'a>, Damage> {
        if width > WIDTH_MAX {
            return Err(Damage("a number is too wide"));
        }
        self.bytes.packed(count, width).ok_or(ENDS_EARLY)
    }
}
