//! Slot numbers of the slabs in which requests, VMs and I/Os live.

/// Slot number that stands for "no slot": the end of a list threaded through a slab.
pub const NIL: u32 = u32::MAX;
