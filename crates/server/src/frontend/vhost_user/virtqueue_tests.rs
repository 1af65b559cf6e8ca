use super::*;
use crate::frontend::vhost_user::guest_memory::testing::table;

pub(super) const SIZE: u16 = 8;
/// Guest addresses of the parts of the queue, of an indirect table and of data.
const DESCRIPTORS: u64 = 0;
const AVAILABLE: u64 = 0x1000;
pub(super) const USED: u64 = 0x2000;
const INDIRECT_TABLE: u64 = 0x3000;
pub(super) const DATA: u64 = 0x4000;
const END: u64 = 0x8000;
/// Difference of addresses in the front-end's address space and of guest addresses.
const USER: u64 = 0x7000_0000;

/// Returns what a queue with rings in the first region of a table starts with.
pub(super) fn setup(memory: &GuestMemory, base: u16, event_index: bool) -> QueueSetup {
    let at = RingAddresses {
        descriptors: USER + DESCRIPTORS,
        available: USER + AVAILABLE,
        used: USER + USED,
    };
    QueueSetup {
        rings: Rings::locate(memory, SIZE, &at).expect("inside"),
        size: SIZE,
        base,
        event_index,
        indirect: true,
        logged_at: None,
    }
}

/// Driver's side of a queue.
pub(super) struct Driver {
    pub(super) memory: GuestMemory,
    pub(super) ring: Virtqueue,
    chain: Chain,
    available: u16,
}

impl Driver {
    pub(super) fn new(base: u16, event_index: bool) -> Driver {
        Driver::with_memory(table(&[(0, USER, END)]), base, event_index)
    }

    /// Driver with rings in the first region of a table.
    fn with_memory(memory: GuestMemory, base: u16, event_index: bool) -> Driver {
        memory
            .at_guest(USED, 4)
            .expect("used")
            .store_le16(INDEX, base);
        let ring = Virtqueue::new(&setup(&memory, base, event_index));
        Driver {
            memory,
            ring,
            chain: Chain::default(),
            available: base,
        }
    }

    pub(super) fn mem(&self, at: u64, len: usize) -> Mem {
        self.memory.at_guest(at, len).expect("inside")
    }

    fn describe_at(&self, table: u64, index: u16, (address, len): (u64, u32), flags: u16) {
        let mut bytes = [0; DESCRIPTOR];
        bytes[..8].copy_from_slice(&address.to_le_bytes());
        bytes[8..12].copy_from_slice(&len.to_le_bytes());
        bytes[12..14].copy_from_slice(&flags.to_le_bytes());
        bytes[14..].copy_from_slice(&(index + 1).to_le_bytes());
        let at = table + u64::from(index) * DESCRIPTOR as u64;
        self.mem(at, DESCRIPTOR).write(&bytes);
    }

    /// Writes a descriptor, whose successor is the next one of the table.
    pub(super) fn describe(&self, index: u16, range: (u64, u32), flags: u16) {
        self.describe_at(DESCRIPTORS, index, range, flags);
    }

    pub(super) fn offer(&mut self, head: u16) {
        let at = RING_HEAD + 2 * usize::from(self.available % SIZE);
        let ring = self.mem(AVAILABLE, 64);
        ring.store_le16(at, head);
        self.available = self.available.wrapping_add(1);
        ring.store_le16(INDEX, self.available);
    }

    pub(super) fn take(&mut self) -> Result<Option<u16>, Fault> {
        self.ring.take(&self.memory, &mut self.chain)
    }

    /// Takes and answers a request that has been described at `head`.
    fn serve(&mut self, head: u16) {
        self.offer(head);
        assert_eq!(self.take(), Ok(Some(head)));
        self.ring.begin(head, self.mem(DATA, 1));
        self.ring.end(head, 0, 1);
    }
}

fn lens(memory: &[Mem]) -> Vec<usize> {
    memory.iter().map(Mem::len).collect()
}

#[test]
fn chains_are_read_in_order_directly_and_through_a_table() {
    let mut driver = Driver::new(0, false);
    assert_eq!(driver.take(), Ok(None));
    driver.describe(2, (DATA, 16), NEXT);
    driver.describe(3, (DATA + 16, 100), NEXT);
    driver.describe(4, (DATA + 200, 50), NEXT | WRITE);
    driver.describe(5, (DATA + 300, 1), WRITE);
    driver.offer(2);
    assert_eq!(driver.take(), Ok(Some(2)));
    assert_eq!(lens(&driver.chain.readable), [16, 100]);
    assert_eq!(lens(&driver.chain.writable), [50, 1]);
    // The rest of a chain may be in a table, whose own write flag means nothing.
    driver.describe(0, (DATA, 16), NEXT);
    driver.describe(1, (INDIRECT_TABLE, 32), INDIRECT | WRITE);
    driver.describe_at(INDIRECT_TABLE, 0, (DATA + 16, 7), NEXT);
    driver.describe_at(INDIRECT_TABLE, 1, (DATA + 400, 1), WRITE);
    driver.offer(0);
    assert_eq!(driver.take(), Ok(Some(0)));
    assert_eq!(lens(&driver.chain.readable), [16, 7]);
    assert_eq!(lens(&driver.chain.writable), [1]);
    assert_eq!(driver.take(), Ok(None));
}

/// Returns the fault of a queue whose descriptors were written by `write`.
fn fault(write: impl FnOnce(&mut Driver)) -> Fault {
    let mut driver = Driver::new(0, false);
    driver.describe(0, (DATA, 16), NEXT);
    driver.describe(1, (DATA + 16, 1), WRITE);
    write(&mut driver);
    driver.offer(0);
    driver.take().expect_err("a broken rule")
}

#[test]
fn each_broken_rule_is_a_fault() {
    let cases = [
        // A loop of two.
        (
            fault(|driver| {
                driver.describe(1, (DATA, 1), NEXT);
                // The successor of 1 is 0.
                driver.mem(DESCRIPTOR as u64 + 14, 2).write(&[0, 0]);
            }),
            "a chain of descriptors without an end",
        ),
        (
            fault(|driver| {
                driver.mem(14, 2).write(&SIZE.to_le_bytes());
            }),
            "a descriptor is outside of its table",
        ),
        (
            fault(|driver| driver.describe(1, (DATA, 0), WRITE)),
            "a descriptor without bytes",
        ),
        (
            fault(|driver| driver.describe(1, (END - 1, 2), WRITE)),
            "a descriptor's memory is not the guest's",
        ),
        (
            fault(|driver| driver.describe(1, (u64::MAX, 16), WRITE)),
            "a descriptor's memory is not the guest's",
        ),
        (
            fault(|driver| driver.describe(1, (DATA, u32::MAX), WRITE)),
            "a descriptor's memory is not the guest's",
        ),
        (
            fault(|driver| driver.offer(SIZE)),
            "an available entry is not a descriptor",
        ),
        (
            fault(|driver| {
                driver.available = SIZE;
            }),
            "more entries are available than the queue has",
        ),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
}

#[test]
fn each_broken_rule_of_tables_is_a_fault() {
    let table_of = |len: u32, flags: u16| {
        fault(|driver| driver.describe(0, (INDIRECT_TABLE, len), INDIRECT | flags))
    };
    let wrong_table = "an indirect table of a wrong length";
    let cases = [
        (table_of(0, 0), wrong_table),
        (table_of(17, 0), wrong_table),
        (table_of(16 * 1025, 0), wrong_table),
        (
            table_of(16, NEXT),
            "an indirect descriptor where none may be",
        ),
        (
            fault(|driver| driver.describe(0, (END, 16), INDIRECT)),
            "an indirect table is not in the guest's memory",
        ),
        (
            fault(|driver| {
                driver.describe(0, (INDIRECT_TABLE, 16), INDIRECT);
                driver.describe_at(INDIRECT_TABLE, 0, (INDIRECT_TABLE, 16), INDIRECT);
            }),
            "an indirect descriptor where none may be",
        ),
        (
            fault(|driver| {
                driver.describe(0, (INDIRECT_TABLE, 16), INDIRECT);
                driver.describe_at(INDIRECT_TABLE, 0, (DATA, 16), NEXT);
            }),
            "a descriptor is outside of its table",
        ),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
}

#[test]
fn memory_to_read_must_come_first() {
    let found = fault(|driver| {
        driver.describe(0, (DATA, 16), NEXT | WRITE);
        driver.describe(1, (DATA + 16, 1), 0);
    });
    assert_eq!(found, "memory to read behind memory to write");
}

#[test]
fn a_head_is_taken_once_until_it_is_answered() {
    let mut driver = Driver::new(0, false);
    driver.describe(3, (DATA, 16), 0);
    driver.serve(3);
    driver.offer(3);
    assert_eq!(driver.take(), Ok(Some(3)));
    driver.ring.begin(3, driver.mem(DATA, 1));
    driver.offer(3);
    assert_eq!(driver.take(), Err("a descriptor is available twice"));
}

#[test]
fn answers_are_seen_when_they_are_published() {
    // The indices wrap around on the way.
    let base = u16::MAX - 1;
    let mut driver = Driver::new(base, false);
    for head in 0..3 {
        driver.describe(head, (DATA, 16), 0);
        driver.offer(head);
        assert_eq!(driver.take(), Ok(Some(head)));
        driver
            .ring
            .begin(head, driver.mem(DATA + 100 + u64::from(head), 1));
    }
    assert!(!driver.ring.is_drained());
    for (head, status, written) in [(2, 1, 1), (0, 0, 513), (1, 2, 1)] {
        driver.ring.end(head, status, written);
    }
    let used = driver.mem(USED, 128);
    assert_eq!(used.load_le16(INDEX), base, "not yet");
    assert!(driver.ring.publish(None), "the driver wants a notification");
    assert!(!driver.ring.publish(None), "there is nothing more");
    assert_eq!(used.load_le16(INDEX), base.wrapping_add(3));
    assert!(driver.ring.is_drained());
    assert_eq!(driver.ring.next_available(), base.wrapping_add(3));
    for (n, (head, written)) in [(2u32, 1u32), (0, 513), (1, 1)].into_iter().enumerate() {
        let entry = usize::from(base.wrapping_add(n as u16) % SIZE);
        let bytes: [u8; 8] = used.read_once(RING_HEAD + USED_ENTRY * entry);
        assert_eq!(bytes[..4], head.to_le_bytes());
        assert_eq!(bytes[4..], written.to_le_bytes());
    }
    assert_eq!(driver.mem(DATA + 100, 3).read_once::<3>(0), [0, 2, 1]);
}

#[test]
fn without_event_indices_flags_suppress_kicks_and_notifications() {
    let mut driver = Driver::new(0, false);
    driver.describe(0, (DATA, 16), 0);
    let flags = |driver: &Driver| driver.mem(USED, 4).load_le16(0);
    driver.ring.suppress_kicks(None);
    assert_eq!(flags(&driver), NO_NOTIFY);
    assert_eq!(driver.ring.want_kicks(None), Ok(false));
    assert_eq!(flags(&driver), 0);
    driver.offer(0);
    assert_eq!(driver.ring.want_kicks(None), Ok(true), "one came meanwhile");
    assert_eq!(driver.take(), Ok(Some(0)));
    driver.ring.begin(0, driver.mem(DATA, 1));
    driver.mem(AVAILABLE, 4).store_le16(0, NO_INTERRUPT);
    driver.ring.end(0, 0, 1);
    assert!(!driver.ring.publish(None));
}

#[test]
fn with_event_indices_a_notification_comes_when_the_index_passes_the_wish() {
    let mut driver = Driver::new(0, true);
    driver.describe(0, (DATA, 16), 0);
    let wish_at = RING_HEAD + 2 * usize::from(SIZE);
    // Counts every index that a batch passes, one by one.
    let passes =
        |before: u16, answers: u16, wish: u16| (0..answers).any(|n| before.wrapping_add(n) == wish);
    let mut before = 0u16;
    for n in 0..70_000u32 {
        let answers = n % 3 + 1;
        let wish = before.wrapping_add((n % 7) as u16).wrapping_sub(2);
        driver.mem(AVAILABLE, 64).store_le16(wish_at, wish);
        (0..answers).for_each(|_| driver.serve(0));
        let expected = passes(before, answers as u16, wish);
        assert_eq!(
            driver.ring.publish(None),
            expected,
            "{before} {answers} {wish}"
        );
        before = before.wrapping_add(answers as u16);
    }
    let kick_at = RING_HEAD + USED_ENTRY * usize::from(SIZE);
    assert_eq!(driver.ring.want_kicks(None), Ok(false));
    assert_eq!(driver.mem(USED, 128).load_le16(kick_at), before);
}

#[test]
fn what_is_written_to_the_used_ring_is_marked_where_it_is_logged() {
    use super::super::guest_memory::testing::memfd;
    const PAGE: u64 = 4096;
    let (file, base) = (memfd(PAGE), SIZE - 1);
    let log = DirtyLog::map(&file, 0, PAGE, &std::sync::Arc::default()).expect("a log");
    let marked = || -> Vec<u64> {
        use std::os::unix::fs::FileExt;
        let mut bits = [0; 8];
        file.read_exact_at(&mut bits, 0).expect("inside");
        file.write_all_at(&[0; 8], 0).expect("inside");
        let bits = u64::from_le_bytes(bits);
        (0..64).filter(|page| bits >> page & 1 != 0).collect()
    };
    let mut driver = Driver::new(base, true);
    for (head, last) in [(0, false), (1, true)] {
        driver.describe(head, (DATA, 16), 0);
        driver.offer(head);
        assert_eq!(driver.take(), Ok(Some(head)));
        driver.ring.begin(head, driver.mem(DATA + 100, 1));
        driver.ring.end(head, 0, 1);
        assert_eq!(marked(), [0; 0], "before it is shown");
        if last {
            continue;
        }
        driver.ring.publish(Some(&log));
        assert_eq!(marked(), [0; 0], "this ring is not logged");
        // The last entry ends where the third page does, and the event index follows.
        let entries = RING_HEAD + USED_ENTRY * usize::from(SIZE);
        driver.ring.log_at(Some(3 * PAGE - entries as u64));
    }
    // The second answer has the first entry again.
    driver.ring.publish(Some(&log));
    assert_eq!(marked(), [2]);
    driver.ring.want_kicks(Some(&log)).expect("no fault");
    assert_eq!(marked(), [3], "the event index");
    // An entry at each end of the ring, of which the last is on the page of its own.
    let mut driver = Driver::new(base, false);
    driver.ring.log_at(Some(
        PAGE - (RING_HEAD + USED_ENTRY * usize::from(base)) as u64,
    ));
    for head in 0..2 {
        driver.describe(head, (DATA, 16), 0);
        driver.serve(head);
    }
    driver.ring.publish(Some(&log));
    assert_eq!(marked(), [0, 1]);
    driver.ring.want_kicks(Some(&log)).expect("no fault");
    driver.ring.suppress_kicks(Some(&log));
    assert_eq!(marked(), [0], "the flags");
}

#[test]
fn rings_outside_of_guest_memory_are_refused() {
    let memory = table(&[(0, USER, END)]);
    let sound = RingAddresses {
        descriptors: USER,
        available: USER + AVAILABLE,
        used: USER + USED,
    };
    assert!(Rings::locate(&memory, SIZE, &sound).is_ok());
    let wrong = [
        RingAddresses {
            descriptors: USER + END - 64,
            ..sound
        },
        RingAddresses {
            available: USER - 2,
            ..sound
        },
        RingAddresses {
            used: USER + END - 8,
            ..sound
        },
        RingAddresses {
            used: USER + USED + 2,
            ..sound
        },
        RingAddresses {
            descriptors: u64::MAX - 15,
            ..sound
        },
    ];
    for at in wrong {
        assert!(Rings::locate(&memory, SIZE, &at).is_err(), "{at:x?}");
    }
}

#[test]
fn a_driver_has_no_more_requests_than_entries_before_it_sees_answers() {
    let mut driver = Driver::new(0, false);
    for head in 0..SIZE {
        driver.describe(head, (DATA, 16), 0);
        driver.serve(head);
    }
    driver.offer(0);
    let refused = Err("more requests at a time than the queue has entries");
    assert_eq!(driver.take(), refused);
    driver.ring.publish(None);
    assert_eq!(driver.take(), Ok(Some(0)));
}

#[test]
fn a_chain_across_very_many_regions_is_refused() {
    const PAGES: u64 = 400;
    let pages = (0..PAGES).map(|n| (END + n * 4096, USER + END + n * 4096, 4096));
    let regions: Vec<_> = std::iter::once((0, USER, END)).chain(pages).collect();
    let mut driver = Driver::with_memory(table(&regions), 0, false);
    for (head, count) in [(0, 2), (4, 3)] {
        for n in 0..count {
            let flags = if n + 1 < count { NEXT } else { 0 };
            driver.describe(head + n, (END, PAGES as u32 * 4096), flags);
        }
        driver.offer(head);
    }
    assert_eq!(driver.take(), Ok(Some(0)), "800 pieces");
    assert_eq!(driver.take(), Err("a chain of too many pieces of memory"));
}
