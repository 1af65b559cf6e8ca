//! Costs of I/Os, written out by hand, for dispatchers that count by `cost`.

use std::collections::VecDeque;
use tidegate_core::profile::{Access, Curve, Direction, Profile};
use tidegate_core::request::Op;

const COST_SIZE: u128 = 16 << 10;
const KIB: u64 = 1 << 10;

/// Picoseconds of a kind of request: whole ones for a byte more, and for blocks of 4 KiB multiples
/// of 2^13, so that weights that are powers of two divide them.
fn time(direction: Direction, sequential: bool, bytes: u64) -> u64 {
    let bytes = bytes.max(4 * KIB);
    match (direction, sequential) {
        (Direction::Read, true) => (1 << 20) + 2 * bytes,
        (Direction::Read, false) => {
            (1 << 23) + 4 * bytes.min(64 * KIB) + 8 * bytes.saturating_sub(64 * KIB)
        }
        (Direction::Write, true) => (1 << 21) + 6 * bytes,
        (Direction::Write, false) => (1 << 24) + 4 * bytes.saturating_sub(16 * KIB),
    }
}

/// The profile of [`time`]. Random writes of 16 KiB were measured as quicker than smaller ones,
/// which is not to make them cheaper.
pub fn profile() -> Profile {
    let curve = |direction, access: Access| {
        let points = [4, 16, 64, 1024].map(|kib| {
            let time = time(direction, access == Access::Sequential, kib * KIB);
            let falls = direction == Direction::Write && access == Access::Random && kib == 16;
            let time = if falls { time - (1 << 20) } else { time };
            ((kib * KIB) as u32, 1e12 / time as f64)
        });
        Curve::new(&points).expect("a curve")
    };
    let of =
        |direction| [Access::Sequential, Access::Random].map(|access| curve(direction, access));
    Profile::new(
        of(Direction::Read),
        Some(of(Direction::Write)),
        Vec::new(),
        Vec::new(),
    )
}

/// The costs by one of the words, in points, with where the last I/Os of some VMs ended, and
/// whether the last read and the last write that began a request were sequential. The device does
/// not seek, and has the profile of [`profile`] from the start.
#[derive(Clone)]
pub struct Costs {
    by: &'static str,
    ends: Vec<VecDeque<u64>>,
    begun: Vec<[bool; 2]>,
}

impl Costs {
    pub fn new(by: usize, vms: usize) -> Costs {
        use tidegate_policies::dispatch::cost::CostBy;
        Costs {
            by: CostBy::WORDS[by],
            ends: vec![VecDeque::new(); vms],
            begun: vec![[false; 2]; vms],
        }
    }

    /// Forgets where a VM's I/Os ended, for a new VM in its slot.
    pub fn forget(&mut self, vm: usize) {
        self.ends[vm].clear();
        self.begun[vm] = [false; 2];
    }

    /// Returns the cost in points of an I/O that goes to the device now. `ops`: requests that it is
    /// the first part of.
    pub fn of(&self, vm: usize, op: Op, addr: u64, len: u32, ops: u32) -> u128 {
        self.of_head(vm, op, addr, len, (ops, ops > 0))
    }

    /// Returns the cost in points as [`Costs::of`] does, of the next I/O of a unit of `ops`
    /// requests. `is_first`: no part of it has gone.
    pub fn of_head(
        &self,
        vm: usize,
        op: Op,
        addr: u64,
        len: u32,
        (ops, is_first): (u32, bool),
    ) -> u128 {
        let bytes = match op {
            Op::Read | Op::Write => u128::from(len),
            _ => 0,
        };
        match self.by {
            "bytes" => bytes.max(COST_SIZE) << 8,
            "requests" => u128::from(ops) << 20,
            "size-classes" => bytes.div_ceil(COST_SIZE).max(1) << 20,
            "device-time" if bytes == 0 => time(Direction::Write, false, 0).into(),
            "device-time" => {
                let sequential = self.is_sequential(vm, op, addr, is_first);
                time(Direction::for_op(op), sequential, len.into()).into()
            }
            other => panic!("{other} is no word"),
        }
    }

    /// Returns whether an I/O counts as sequential. Later parts count as the first did.
    fn is_sequential(&self, vm: usize, op: Op, addr: u64, is_first: bool) -> bool {
        if is_first {
            self.ends[vm].contains(&addr)
        } else {
            self.begun[vm][Direction::for_op(op) as usize]
        }
    }

    /// Records where an I/O ended, and what it was if it began a request.
    pub fn went(&mut self, vm: usize, op: Op, addr: u64, len: u32, ops: u32) {
        if matches!(op, Op::Read | Op::Write) {
            self.begun[vm][Direction::for_op(op) as usize] =
                self.is_sequential(vm, op, addr, ops > 0);
            self.ends[vm].push_back(addr + u64::from(len));
            if self.ends[vm].len() > 32 {
                self.ends[vm].pop_front();
            }
        }
    }

    /// Returns the points of a quantum of `bytes` bytes.
    pub fn quantum(&self, bytes: u64) -> u64 {
        match self.by {
            "bytes" => bytes << 8,
            "device-time" => time(Direction::Read, false, bytes),
            _ => bytes.div_ceil(COST_SIZE as u64) << 20,
        }
    }

    /// Returns the highest cost of an I/O of at most `bytes` bytes.
    pub fn largest(&self, bytes: u64) -> u128 {
        let direction = [Direction::Read, Direction::Write];
        match self.by {
            "bytes" => u128::from(bytes).max(COST_SIZE) << 8,
            "device-time" => {
                let all = direction.map(|d| time(d, false, bytes).max(time(d, true, bytes)));
                u128::from(all[0].max(all[1]))
            }
            "requests" => u128::from(bytes / 512) << 20,
            _ => u128::from(bytes).div_ceil(COST_SIZE) << 20,
        }
    }
}
