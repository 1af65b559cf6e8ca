//! Tests of requests that continue each other, merged and cut only when they go to the device: the
//! length of I/Os, the requests in them, and the owner of every byte and every error.

use crate::common::{Driver, Guest, config};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tidegate_core::engine::{DeviceSpec, EngineConfig};
use tidegate_core::objective::Objective;
use tidegate_core::request::{DeviceIo, IoError, Op, Outcome, Request, Segment, VmId};
use tidegate_core::roles::Roles;
use tidegate_core::roles::{Controller, Event, Interests, Knob, Knobs};
use tidegate_core::time::Nanos;
use tidegate_core::view::View;
use tidegate_policies::policy::PolicySpec;

const KIB: u32 = 1 << 10;
const SECTOR: u64 = 512;
const PAGE_BYTES: u32 = 4096;
/// Sectors of the disk.
const SECTORS: usize = 6000;
const MAX_IO: u32 = 256 * KIB;
const SECTORS_A_PAGE: usize = 8;
/// First page that tests use, behind the page that keeps the device busy.
const FIRST_PAGE: usize = 16;

const fn sector_of(page: usize) -> usize {
    (FIRST_PAGE + page) * SECTORS_A_PAGE
}

/// Returns begin and length of an I/O of `count` pages.
fn pages(page: usize, count: u32) -> (u64, u32) {
    (sector_of(page) as u64 * SECTOR, count * PAGE_BYTES)
}

/// Controller in front of a policy's own that sets a merge limit when an objective is set.
struct Turner {
    inner: Option<Box<dyn Controller>>,
    plan: Arc<Mutex<Vec<(VmId, u32)>>>,
}

impl Controller for Turner {
    fn interests(&self) -> Interests {
        let inner = self.inner.as_ref().map(|inner| inner.interests());
        inner.unwrap_or(Interests::NONE).union(Interests::VMS)
    }

    fn on_event(&mut self, view: &View, event: &Event, out: &mut Knobs) {
        if let Event::VmChanged(_) = event {
            let planned = std::mem::take(&mut *self.plan.lock().expect("no panic before"));
            for (vm, bytes) in planned {
                out.set(vm, Knob::MergeLimit(bytes));
            }
        }
        if let Some(inner) = &mut self.inner
            && inner.interests().has(event.interest())
        {
            inner.on_event(view, event, out);
        }
    }

    fn next_timer(&self) -> Nanos {
        let inner = self.inner.as_ref();
        inner.map_or(Nanos::MAX, |inner| inner.next_timer())
    }

    fn on_timer(&mut self, view: &View, out: &mut Knobs) {
        if let Some(inner) = &mut self.inner {
            inner.on_timer(view, out);
        }
    }

    fn allocates(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.allocates())
    }
}

/// Request that was issued: its place, and the data that a read is to return or has returned.
struct Asked {
    op: Op,
    from: usize,
    count: usize,
    bytes: Vec<u64>,
}

/// Test bed of one VM whose disk keeps a stamp a sector; some sectors fail.
struct Rig {
    driver: Driver,
    guest: Guest,
    plan: Arc<Mutex<Vec<(VmId, u32)>>>,
    disk: Vec<u64>,
    shadow: Vec<u64>,
    bad: fn(usize) -> bool,
    asked: BTreeMap<u64, Asked>,
    tag: u64,
    limit: u32,
    merge_limit: u32,
    went: Vec<(u64, u32)>,
}

impl Rig {
    fn new(policy: &PolicySpec, depth: u32, merge_limit: u32) -> Rig {
        let config = config(depth, merge_limit);
        let config = EngineConfig {
            device: DeviceSpec {
                max_io: MAX_IO,
                ..config.device
            },
            max_requests: 128,
            max_pending_per_vm: 128,
            max_vms: 2,
            ..config
        };
        let mut driver = Driver::new(config, policy);
        let plan = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&plan);
        driver.engine.wrap_roles(Nanos::ZERO, move |roles| {
            let turner = Turner {
                inner: roles.controller,
                plan: Arc::clone(&shared),
            };
            Roles {
                controller: Some(Box::new(turner)),
                ..roles
            }
        });
        let vm = driver.vm(&Objective::default());
        let guest = driver.guest_at(vm, 1 << 30, SECTORS as u64 * SECTOR);
        Rig {
            driver,
            guest,
            plan,
            disk: vec![0; SECTORS],
            shadow: vec![0; SECTORS],
            bad: |_| false,
            asked: BTreeMap::new(),
            tag: 0,
            limit: u32::MAX,
            merge_limit,
            went: Vec::new(),
        }
    }

    fn limit(&mut self, bytes: u32) {
        let mut plan = self.plan.lock().expect("no panic before");
        plan.push((self.guest.vm, bytes));
        drop(plan);
        let vm = self.guest.vm;
        let objective = *self.driver.engine.vms().objective(vm);
        self.driver.set_objective(vm, &objective);
        self.limit = bytes;
    }

    /// Issues a request for `count` sectors, unless it overlaps with an open one. Returns `true` if
    /// issued.
    fn ask(&mut self, op: Op, from: usize, count: usize) -> bool {
        let overlaps = |a: &Asked| a.from < from + count && from < a.from + a.count;
        let client = self.guest.client;
        if self
            .driver
            .engine
            .admission_mut()
            .available_slots(Nanos::ZERO, client)
            == 0
            || self.asked.values().any(overlaps)
        {
            return false;
        }
        self.tag += 1;
        let (offset, len) = (from as u64 * SECTOR, (count as u64 * SECTOR) as u32);
        let request = match op {
            Op::Read => Request::read(offset, len, self.tag),
            _ => Request::write(offset, len, self.tag),
        };
        let taken = self.driver.request(client, request);
        taken.expect("there is room");
        let bytes = match op {
            Op::Read => vec![u64::MAX; count],
            _ => (0..count as u64).map(|n| self.tag << 16 | n).collect(),
        };
        let asked = Asked {
            op,
            from,
            count,
            bytes,
        };
        self.asked.insert(self.tag, asked);
        true
    }

    /// Issues a request for `count` pages from test page `page` on.
    fn ask_pages(&mut self, op: Op, page: usize, count: usize) {
        assert!(self.ask(op, sector_of(page), count * SECTORS_A_PAGE));
    }

    fn dispatch(&mut self) -> Option<DeviceIo> {
        let io = self.driver.start()?;
        let segments = self.driver.engine.io_segments(io.id).count();
        // A page is the least that there is of a limit, and a block.
        assert!(io.len <= self.limit.min(MAX_IO), "{io:?}");
        assert!(segments == 1 || io.len <= self.merge_limit, "{io:?}");
        self.went.push((io.offset, io.len));
        Some(io)
    }

    /// Moves the bytes of the `n`th I/O in flight, up to a bad sector, and ends it.
    fn end(&mut self, n: usize) -> Outcome {
        let io = self.driver.in_flight[n];
        let segments: Vec<Segment> = self.driver.engine.io_segments(io.id).collect();
        let mut at = (io.offset / SECTOR) as usize;
        let mut outcome = Ok(());
        'io: for segment in segments {
            let asked = self.asked.get_mut(&segment.tag).expect("it is open");
            let from = (u64::from(segment.offset) / SECTOR) as usize;
            let count = (u64::from(segment.len) / SECTOR) as usize;
            assert_eq!((asked.op, asked.from + from), (io.op, at), "{segment:?}");
            for sector in from..from + count {
                if (self.bad)(at) {
                    outcome = Err(IoError::Io);
                    break 'io;
                }
                match io.op {
                    Op::Read => asked.bytes[sector] = self.disk[at],
                    _ => self.disk[at] = asked.bytes[sector],
                }
                at += 1;
            }
        }
        self.driver.end_nth(n, outcome);
        self.take();
        outcome
    }

    /// Takes the answers. Asserts that each is due and that reads return what was written.
    fn take(&mut self) {
        for done in self.driver.answers() {
            let asked = self.asked.remove(&done.tag).expect("answered once");
            let sectors = asked.from..asked.from + asked.count;
            let fails = sectors.clone().any(self.bad);
            let due = if fails { Err(IoError::Io) } else { Ok(()) };
            assert_eq!(done.outcome, due, "request {} at {sectors:?}", done.tag);
            match (asked.op, fails) {
                (Op::Read, false) => assert_eq!(asked.bytes, self.shadow[sectors]),
                (Op::Read, true) => {}
                (_, false) => self.shadow[sectors].copy_from_slice(&asked.bytes),
                // A failed write may be on the disk or not.
                (_, true) => self.shadow[sectors.clone()].copy_from_slice(&self.disk[sectors]),
            }
        }
    }

    /// Serves everything, one I/O at a time, and asserts that the disk equals its shadow.
    fn drain(&mut self) {
        self.went.clear();
        loop {
            while self.dispatch().is_some() {}
            if !self.driver.in_flight.is_empty() {
                _ = self.end(0);
            } else if self.asked.is_empty() {
                break;
            } else {
                assert!(self.driver.wake(), "what waits has a timer");
            }
        }
        self.driver.assert_drained();
        assert_eq!(self.disk, self.shadow);
    }
}

/// Returns a policy, or the regulator of merge limits over a dispatcher, which fills I/Os up to
/// `fill` per cent.
fn policy(name: &str, fill: u64) -> PolicySpec {
    let spec = match name.split_once('+') {
        Some((regulator, dispatcher)) => PolicySpec::composed(None, regulator, dispatcher),
        None => PolicySpec::named(name),
    };
    let mut spec = spec.expect("its parts are registered");
    // Refused where it has no such parameter.
    let _ = spec.set("fill", fill);
    spec
}

/// Creates a test bed whose first request keeps a device of depth 1 busy until all others are
/// there.
fn behind_a_busy_device(name: &str, merge_limit: u32) -> Rig {
    behind_one_that_fills(name, 100, merge_limit)
}

fn behind_one_that_fills(name: &str, fill: u64, merge_limit: u32) -> Rig {
    let mut rig = Rig::new(&policy(name, fill), 1, merge_limit);
    assert!(rig.ask(Op::Read, 0, SECTORS_A_PAGE));
    rig.dispatch().expect("it goes at once");
    rig
}

#[test]
fn ios_are_as_long_as_the_limit_wherever_requests_begin() {
    for policy in [
        "merge-limit+fifo",
        "merge-limit+sfq",
        "merge-limit+deadline",
        "vcup",
        "vcup-mclock",
    ] {
        let mut rig = behind_a_busy_device(policy, 128 * KIB);
        rig.limit(11 * PAGE_BYTES);
        for n in 0..4 {
            rig.ask_pages(Op::Read, n * 32, 32);
        }
        rig.drain();
        let mut due: Vec<_> = (0..11).map(|n| pages(11 * n, 11)).collect();
        due.push(pages(121, 7));
        assert_eq!(rig.went, due, "{policy}");
        let stats = rig.driver.engine.vms().vm_stats(rig.guest.vm);
        // Twelve I/Os of four requests; three of these began in another one's.
        assert_eq!((stats.merged, stats.split), (3, 11), "{policy}");
    }
}

#[test]
fn an_io_that_is_near_its_limit_leaves_the_next_request_whole() {
    let ios = |fill, limit: u32| {
        let mut rig = behind_one_that_fills("vcup-mclock", fill, 128 * KIB);
        rig.limit(limit * PAGE_BYTES);
        for n in 0..3 {
            rig.ask_pages(Op::Read, n * 32, 32);
        }
        rig.drain();
        rig.went
            .iter()
            .map(|&(_, len)| len / PAGE_BYTES)
            .collect::<Vec<_>>()
    };
    // The last ten pages of a request are more than three quarters of eleven, its last eight not of
    // twelve.
    assert_eq!(ios(75, 11), [11, 11, 10, 11, 11, 10, 11, 11, 10]);
    assert_eq!(ios(75, 12), [12; 8]);
    assert_eq!(ios(0, 12), [12, 12, 8, 12, 12, 8, 12, 12, 8]);
    assert_eq!(ios(100, 11), [11, 11, 11, 11, 11, 11, 11, 11, 8]);
}

#[test]
fn a_limit_that_rises_joins_what_waits_and_one_that_falls_cuts_it() {
    let mut rig = behind_a_busy_device("merge-limit+mclock", 128 * KIB);
    rig.limit(PAGE_BYTES);
    for n in 0..6 {
        rig.ask_pages(Op::Write, n * 2, 2);
    }
    rig.limit(5 * PAGE_BYTES);
    rig.end(0).expect("a good sector");
    let io = rig.dispatch().expect("one waits");
    assert_eq!((io.offset, io.len), pages(0, 5));
    assert_eq!(io.first_ops, 3);
    rig.limit(3 * PAGE_BYTES);
    rig.end(0).expect("a good sector");
    rig.drain();
    assert_eq!(rig.went, [pages(5, 3), pages(8, 3), pages(11, 1)]);
}

#[test]
fn without_a_limit_of_its_own_a_request_that_fits_is_not_cut() {
    let mut rig = behind_a_busy_device("fifo", 64 * KIB);
    // Cut by the device's largest I/O; its last part is 8 pages long.
    rig.ask_pages(Op::Read, 0, 72);
    rig.ask_pages(Op::Read, 72, 6);
    rig.ask_pages(Op::Read, 78, 11);
    rig.end(0).expect("a good sector");
    rig.drain();
    assert_eq!(rig.went, [pages(0, 64), pages(64, 14), pages(78, 11)]);
}

#[test]
fn what_fails_merged_goes_again_alone_and_from_its_beginning() {
    let mut rig = behind_a_busy_device("merge-limit+mclock", 128 * KIB);
    rig.bad = |sector| sector == sector_of(12);
    rig.limit(4 * PAGE_BYTES);
    // Pages 0 to 5, 6 to 11, 12 to 17: of the third the first page fails.
    for n in 0..3 {
        rig.ask_pages(Op::Write, n * 6, 6);
    }
    rig.end(0).expect("a good sector");
    rig.drain();
    let due = [
        // The first one's end with the second one's beginning, then the rest of that.
        pages(0, 4),
        pages(4, 4),
        pages(8, 4),
        // The third fails by itself, and no more of it goes.
        pages(12, 4),
    ];
    assert_eq!(rig.went, due);
    // Now the error is in the middle of an I/O that two have a part of.
    let mut rig = behind_a_busy_device("merge-limit+mclock", 128 * KIB);
    rig.bad = |sector| sector == sector_of(7);
    rig.limit(4 * PAGE_BYTES);
    for n in 0..3 {
        rig.ask_pages(Op::Write, n * 6, 6);
    }
    rig.end(0).expect("a good sector");
    rig.drain();
    let due = [
        pages(0, 4),
        pages(4, 4),
        // Both that were in it go again, whole, and neither with the third.
        pages(0, 4),
        pages(4, 2),
        pages(6, 4),
        pages(12, 4),
        pages(16, 2),
    ];
    assert_eq!(rig.went, due);
}

#[test]
fn what_is_to_go_again_waits_for_its_other_parts() {
    let mut rig = Rig::new(&policy("merge-limit+fifo", 100), 3, 128 * KIB);
    rig.bad = |sector| sector == sector_of(6);
    rig.limit(4 * PAGE_BYTES);
    rig.ask_pages(Op::Write, 0, 6);
    rig.ask_pages(Op::Write, 6, 6);
    while rig.dispatch().is_some() {}
    assert_eq!(rig.went, [pages(0, 4), pages(4, 4), pages(8, 4)]);
    assert_eq!(rig.end(1), Err(IoError::Io));
    // The first one's other part and the second one's are with the device.
    assert!(rig.dispatch().is_none());
    rig.end(0).expect("a good sector");
    let again = rig.dispatch().expect("nothing of the first is in flight");
    assert_eq!((again.offset, again.len), pages(0, 4));
    assert_eq!(again.first_ops, 0, "it is charged once");
    rig.drain();
    assert_eq!(rig.went, [pages(4, 2), pages(6, 4), pages(10, 2)]);
}

#[test]
fn where_rates_are_allocated_parts_are_not_merged() {
    let mut rig = behind_a_busy_device("vfair", 128 * KIB);
    rig.limit(11 * PAGE_BYTES);
    for n in 0..2 {
        rig.ask_pages(Op::Read, n * 16, 16);
    }
    rig.drain();
    assert_eq!(
        rig.went,
        [pages(0, 11), pages(11, 5), pages(16, 11), pages(27, 5)]
    );
}

#[test]
fn a_dispatcher_that_reckons_with_a_units_length_is_given_no_more() {
    let mut rig = behind_a_busy_device("flubber", 128 * KIB);
    rig.limit(PAGE_BYTES);
    for n in 0..3 {
        rig.ask_pages(Op::Read, n * 2, 2);
    }
    rig.limit(128 * KIB);
    rig.drain();
    assert_eq!(rig.went, [pages(0, 2), pages(2, 2), pages(4, 2)]);
}

#[test]
fn in_turns_what_the_deficit_covers_goes_along() {
    // The quantum comes to 25 pages: each time two of ten, not three.
    let mut rig = behind_a_busy_device("drr", 128 * KIB);
    rig.limit(PAGE_BYTES);
    for n in 0..4 {
        rig.ask_pages(Op::Read, n * 10, 10);
    }
    rig.limit(MAX_IO);
    rig.drain();
    assert_eq!(rig.went, [pages(0, 20), pages(20, 20)]);
    let mut rig = behind_a_busy_device("merge-limit+mclock", 128 * KIB);
    rig.limit(PAGE_BYTES);
    for n in 0..4 {
        rig.ask_pages(Op::Read, n * 10, 10);
    }
    rig.limit(MAX_IO);
    rig.drain();
    assert_eq!(rig.went, [pages(0, 30), pages(30, 10)]);
}

/// Step of a random run.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Continues a stream by `sectors` sectors.
    Ask {
        stream: usize,
        write: bool,
        sectors: usize,
    },
    Limit {
        pages: u32,
    },
    Dispatch,
    End {
        io: usize,
    },
    Later {
        micros: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0usize..3, any::<bool>(), 1usize..100).prop_map(|(stream, write, sectors)| Step::Ask {
            stream,
            write: write && stream > 0,
            sectors,
        }),
        1 => prop_oneof![1u32..24, Just(u32::MAX / PAGE_BYTES)]
            .prop_map(|pages| Step::Limit { pages }),
        4 => Just(Step::Dispatch),
        3 => (0usize..8).prop_map(|io| Step::End { io }),
        1 => (1u64..50_000).prop_map(|micros| Step::Later { micros }),
    ]
}

const POLICIES: [&str; 12] = [
    "fifo",
    "sfq",
    "drr",
    "mclock",
    "vfair",
    "flubber",
    "vcup",
    "vcup-mclock",
    "vcup-drr",
    "cfq",
    "deadline",
    "edf-credit",
];

proptest! {
    #[test]
    fn bytes_and_errors_are_those_of_whose_they_are(
        of in 0..POLICIES.len(),
        fill in prop_oneof![Just(0), Just(75), Just(100)],
        depth in 1u32..6,
        merge_limit in prop_oneof![Just(0), Just(24 * KIB), Just(128 * KIB)],
        bad in any::<bool>(),
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut rig = Rig::new(&policy(POLICIES[of], fill), depth, merge_limit);
        if bad {
            rig.bad = |sector| sector % 101 == 17;
        }
        let mut next = [0, 2000, 4000];
        for step in steps {
            match step {
                Step::Ask { stream, write, sectors } => {
                    let op = if write { Op::Write } else { Op::Read };
                    let from = next[stream];
                    let end = 2000 * (stream + 1);
                    if rig.ask(op, from, sectors.min(end - from)) {
                        let to = from + sectors.min(end - from);
                        next[stream] = if to == end { 2000 * stream } else { to };
                    }
                }
                Step::Limit { pages } => rig.limit(pages.saturating_mul(PAGE_BYTES)),
                Step::Dispatch => _ = rig.dispatch(),
                Step::End { io } if io < rig.driver.in_flight.len() => _ = rig.end(io),
                Step::End { .. } => {}
                Step::Later { micros } => {
                    rig.driver.pass(Nanos::from_micros(micros));
                }
            }
        }
        rig.drain();
    }
}
