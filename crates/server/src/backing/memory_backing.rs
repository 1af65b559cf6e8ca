//! Backing in memory: each I/O is copied at once, or its bytes are sent from where they are.

use std::io;

use tidegate_core::request::{DeviceIo, Op, Outcome};

use super::interface::{Backing, Operation, Port, ResizeWork};
use super::memory::Memory;
use crate::buffer::{Mem, copy_ranges};
use crate::ring::Completion;

/// Ranges of an I/O's memory while its bytes are copied.
pub(crate) type Scratch = Vec<Mem>;

impl Backing for Memory {
    type Shared = Scratch;

    fn submit(
        &mut self,
        scratch: &mut Scratch,
        _: &mut Port<'_>,
        io: &DeviceIo,
        ranges: impl Iterator<Item = Mem>,
    ) -> Option<Outcome> {
        scratch.clear();
        scratch.extend(ranges);
        let (offset, len) = (io.offset as usize, io.len as usize);
        match io.op {
            Op::Read => copy_ranges(scratch, &[self.mem(offset, len)]),
            Op::Write => copy_ranges(&[self.mem(offset, len)], scratch),
            // Memory has no allocation that `keep_allocated` could keep, and writing gigabytes of
            // zeroes page by page would stop the loop for seconds.
            Op::Discard | Op::WriteZeroes => self.discard(offset, len),
            Op::Flush => {}
        }
        Some(Ok(()))
    }

    fn handle(&mut self, _: &mut Scratch, _: &mut Port<'_>, _: Operation, _: Completion) {
        unreachable!("memory has no operations");
    }

    fn resident(&self, offset: u64, len: usize) -> Option<Mem> {
        Some(self.mem(offset as usize, len))
    }

    fn moves_at(&self, size: u64) -> bool {
        size as usize > self.room()
    }

    fn zeroes_fast(&self, _: bool) -> bool {
        true
    }

    fn resize_work(&self, size: u64) -> Result<ResizeWork, String> {
        let tail = self.tail(size as usize);
        Ok(ResizeWork { file: None, tail })
    }

    fn resize(&mut self, size: u64) -> io::Result<()> {
        self.set_len(size as usize)
    }
}
