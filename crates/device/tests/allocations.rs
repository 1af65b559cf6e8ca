//! No model allocates after it was built.
//!
//! One test in its own binary: the counter must see this thread's work alone.

#[path = "suite/common/mod.rs"]
mod common;

use common::{Rng, array_of, in_order, interleaved, io};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_device::catalogue;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to `System` with its arguments unchanged, so `System`'s own guarantees
// hold; the counter is a plain thread-local that needs no allocation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|c| c.set(c.get() + 1));
        // SAFETY: the caller keeps `alloc`'s contract, which is `System`'s.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from `System.alloc` with this layout, see above.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.with(|c| c.set(c.get() + 1));
        // SAFETY: `ptr` came from `System.alloc` with this layout, see above.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn no_model_allocates_after_it_was_built() {
    // One small enough for its garbage collection to run.
    let small = |text: &str| {
        let text = text.replace("1000204886016 B", "512 MiB");
        text.replace("99.3 GB", "32 MiB")
    };
    let worn = small(include_str!("../../../devices/nvme-1tb.toml"));
    let shared = small(&interleaved("nvme-1tb"));
    let array = array_of(&shared, 3, 40);
    let parse = |text: &str| catalogue::parse(text, "test").unwrap();
    let more = [in_order(), parse(&worn), parse(&shared), array];
    for entry in catalogue::entries().chain(more) {
        let mut disk = entry.build();
        let spec = disk.spec().clone();
        let (mut rng, mut now, mut ended) = (Rng(11), Nanos::ZERO, 0);
        let before = COUNT.with(Cell::get);
        for id in 0..60_000 {
            let op = Op::ALL[[0, 0, 0, 1, 1, 1, 1, 1, 2, 3, 4][rng.below(11) as usize]];
            // A flush now and then only, or no buffer is ever full.
            let op = if op == Op::Flush && id % 16 > 0 {
                Op::Write
            } else {
                op
            };
            let len = [4_096, 4_096, 65_536, 1 << 20][rng.below(4) as usize];
            let addr = rng.below(spec.capacity / len) * len;
            now += Nanos(rng.below(2_000_000));
            while !disk.has_room() || rng.below(3) > 0 {
                let Some(at) = disk.next_completion() else {
                    break;
                };
                now = now.max(at);
                while disk.pop_completed(now).is_some() {
                    ended += 1;
                }
            }
            match op {
                Op::Flush => disk.submit(now, io(op, id, 0, 0)),
                _ => disk.submit(now, io(op, id, addr, len)),
            }
        }
        let allocated = COUNT.with(Cell::get) - before;
        assert_eq!(allocated, 0, "{}", entry.name);
        assert!(ended > 59_000 - spec.queue_depth, "{}: {ended}", entry.name);
    }
}
