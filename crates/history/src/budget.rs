//! Bounds of the history's memory.
//!
//! A VM takes at most [`BYTES_PER_VM`], whatever it does:
//!
//! | part | bytes at most |
//! |---|---|
//! | fine chunks, [`FINE_WINDOWS`] of [`FINE_CHUNK_MAX`], with names and index | 50 KiB |
//! | samples of the open window | 11 KiB |
//! | previous counters, which the driver keeps | 4 KiB |
//!
//! A VM that is idle takes nothing. What does not fit a chunk is made coarser, in the order of
//! `fit`: first the histogram, then the points, of which two become one of 2 s.

/// Memory of the history of one VM, in bytes.
pub const BYTES_PER_VM: usize = 64 << 10;
/// Length of a window in milliseconds.
pub const WINDOW_MS: u64 = 10_000;
/// Windows of fine points that are kept: 15 minutes.
pub const FINE_WINDOWS: usize = 90;
/// Windows in a coarse block: 5 minutes.
pub const COARSE_WINDOWS: usize = 30;
/// Largest encoded fine chunk in bytes: one VM in one window.
pub const FINE_CHUNK_MAX: usize = 480;
/// Most cells of the histogram of one sample.
pub const SAMPLE_CELLS_MAX: usize = 96;
/// Most samples of a VM in one window; later ones are added to the last.
pub const WINDOW_SAMPLES_MAX: usize = 12;
/// Most VMs that a sample names as those it waited behind.
pub const BEHIND_MAX: usize = 4;
/// Longest name of a VM or device in bytes; the rest of a longer one is cut off.
pub const NAME_MAX: usize = 255;
/// Memory of all VMs together, in bytes: with more VMs than fit, what is kept gets shorter.
pub const BYTES_MAX: usize = 256 << 20;
