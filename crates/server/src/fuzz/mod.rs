//! Bodies of the fuzz targets, so that each file under `fuzz/` needs only one line. Tests run the
//! seeds of each target.

mod store_records;

pub use crate::control::fuzz::control_requests;
pub use crate::frontend::vhost_user::fuzz::{vhost_session, virtqueue};
pub use store_records::store_records;

/// Input of a fuzz target, read as a sequence of choices. Every input is one: numbers past its end
/// are 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    /// Reads choices from the front of `data`.
    pub(crate) fn new(data: &'a [u8]) -> Choices<'a> {
        Choices(data)
    }

    /// Returns true once every byte was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes up to `len` bytes, fewer at the end.
    pub(crate) fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (now, later) = self.0.split_at(len.min(self.0.len()));
        self.0 = later;
        now
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let bytes = self.bytes(N);
        array[..bytes.len()].copy_from_slice(bytes);
        array
    }

    /// Takes one byte.
    pub(crate) fn byte(&mut self) -> u8 {
        let [byte] = self.array();
        byte
    }

    /// Takes a number of 16 bits.
    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// Takes a number of 32 bits.
    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// Takes a number of 64 bits.
    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Takes a number below `end`, which must not be 0.
    pub(crate) fn below(&mut self, end: u16) -> u16 {
        if end > 256 {
            self.u16() % end
        } else {
            u16::from(self.byte()) % end
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Runs a target on its seeds.
    fn seeds(target: &str, run: fn(&[u8])) {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
        let entries = std::fs::read_dir(dir.join(target)).expect("a directory of seeds");
        let mut inputs = 0;
        for entry in entries {
            let path = entry.expect("a file").path();
            run(&std::fs::read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}")));
            inputs += 1;
        }
        assert!(inputs > 0, "no seed of {target}");
    }

    #[test]
    fn seeds_of_virtqueues_are_survived() {
        seeds("virtqueue", virtqueue);
    }

    #[test]
    fn seeds_of_vhost_sessions_are_survived() {
        seeds("vhost_session", vhost_session);
    }

    #[test]
    fn seeds_of_store_records_are_survived() {
        seeds("store_records", store_records);
    }

    #[test]
    fn seeds_of_control_requests_are_survived() {
        seeds("control_requests", control_requests);
    }

    #[test]
    fn choices_past_the_end_are_zeroes() {
        let mut choices = Choices::new(&[1, 2, 3]);
        assert_eq!(choices.u16(), 0x0201);
        assert_eq!(choices.below(2), 1);
        assert!(choices.is_empty());
        assert_eq!(
            (choices.byte(), choices.u64(), choices.below(300)),
            (0, 0, 0)
        );
        assert_eq!(Choices::new(&[7]).u32(), 7);
    }
}
