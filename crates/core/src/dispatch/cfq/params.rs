//! CFQ's parameters, and the lengths of slices that follow from them.

use crate::objective::Priority;
use crate::time::Nanos;

/// What class a background tenant has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackgroundClass {
    /// The idle class.
    Idle,
    /// The middle of best effort, as a process under Linux has.
    BestEffort,
    /// Its objective's.
    AsNamed,
}

impl BackgroundClass {
    /// The configuration's words, in the order of the variants.
    pub const WORDS: &[&str] = &["idle", "best-effort", "as-named"];

    /// By its place among the words.
    pub(crate) fn from_word(place: u64) -> BackgroundClass {
        use BackgroundClass::*;
        [Idle, BestEffort, AsNamed][place as usize]
    }
}

/// CFQ's parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CfqParams {
    /// Time slice of a synchronous queue of level 4.
    pub slice_sync: Nanos,
    /// The same of an asynchronous one.
    pub slice_async: Nanos,
    /// How long an active queue is waited for.
    pub slice_idle: Nanos,
    /// I/Os of the active queue in flight at most, while others wait.
    pub quantum: u32,
    /// After how long synchronous and asynchronous requests expire.
    pub fifo_expire: [Nanos; 2],
    /// How far back the elevator goes, in bytes.
    pub back_seek_max: u64,
    /// How many bytes ahead count as much as one back.
    pub back_seek_penalty: u64,
    /// VMs have classes; else all are in the middle of best effort.
    pub priorities: bool,
    /// Writes go in queues of their own, behind.
    pub async_writes: bool,
    /// Of background tenants.
    pub background_class: BackgroundClass,
    /// For so long nobody else has asked when the idle class goes.
    pub idle_grace: Nanos,
    /// An idle VM that waited so long has an I/O; zero: it has none.
    pub idle_overdue: Nanos,
}

impl CfqParams {
    /// A queue's time slice: a fifth of the base more for each level above 4, a fifth less for
    /// each below.
    pub(super) fn slice(&self, sync: bool, class: Priority) -> Nanos {
        let level = match class {
            Priority::BestEffort(level) => level,
            Priority::RealTime | Priority::Idle => MIDDLE,
        };
        let base = if sync {
            self.slice_sync
        } else {
            self.slice_async
        };
        Nanos(base.0 / 5 * (5 + MIDDLE as u64 - level as u64))
    }

    /// The longest slice of a synchronous queue: who has less is due later.
    pub(super) fn longest_slice(&self) -> Nanos {
        self.slice(true, Priority::BestEffort(0))
    }
}

/// The level whose slice is the base.
const MIDDLE: u8 = 4;
