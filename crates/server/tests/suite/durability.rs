//! Data that is not durable is never reported to be.

use crate::common::disk;
use tidegate_core::request::{DeviceIo, DiskId, IoError, IoId, Op, VmId};
use tidegate_core::time::Nanos;
use tidegate_server::backing::OpenFile;
use tidegate_server::backing::file_io::{FileIo, ZEROES};
use tidegate_server::buffer::Region;
use tidegate_server::ring::Step;

fn io(op: Op, len: u32, fua: bool) -> DeviceIo {
    DeviceIo {
        id: IoId::from_bits(0),
        vm: VmId::from_bits(0),
        disk: DiskId::from_bits(0),
        op,
        addr: 0,
        offset: 0,
        len,
        fua,
        keep_allocated: false,
        first_ops: 1,
        first_bytes: u64::from(len),
        whole_len: len,
        arrived: Nanos::ZERO,
    }
}

/// The kernel reports a failed writeback once per open file description, so a flush that succeeds
/// while another one of the same file fails proves nothing.
#[test]
fn of_syncs_at_the_same_time_none_succeeds_after_one_has_failed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.raw");
    let mut open = OpenFile::open(&path, &disk("disk", None, 1 << 20)).unwrap();
    let region = Region::new(ZEROES + 4096).unwrap();
    let mut out = Vec::new();
    for (op, len) in [(Op::Flush, 0), (Op::Discard, 4096), (Op::Write, 4096)] {
        open.facts.errors.failed = None;
        let mut begin = |op, len, fua| {
            let mut file_io = FileIo::new();
            let ranges = (len > 0).then(|| region.mem(ZEROES, len as usize));
            file_io.begin(
                &open.facts,
                &io(op, len, fua),
                ranges.into_iter(),
                region.mem(0, ZEROES),
            );
            let step = file_io.step(&open.facts, &mut out);
            assert!(!matches!(step, Step::Done(_)), "{step:?}");
            file_io
        };
        let mut first = begin(Op::Flush, 0, false);
        let mut second = begin(op, len, op != Op::Flush);
        first.advance(&mut open.facts, Err(libc::EIO));
        let failed = Step::Done(Err(IoError::Io));
        assert_eq!(first.step(&open.facts, &mut out), failed);
        let mut step = Step::Sync;
        for result in [len, 0] {
            if !matches!(step, Step::Done(_)) {
                second.advance(&mut open.facts, Ok(result));
                step = second.step(&open.facts, &mut out);
            }
        }
        assert_eq!(step, failed, "{op:?}");
    }
}
