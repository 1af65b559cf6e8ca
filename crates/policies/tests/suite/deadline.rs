//! Deadline against its rules in linear scans, its bound on starvation, and its behaviours.

use crate::common::lab::{self, GUESTS, Lab, LabConfig, Model, Step};
use crate::common::oracle_test;
use crate::common::*;
use proptest::prelude::*;
use tidegate_core::objective::{Objective, Rate};
use tidegate_core::request::{DeviceIo, Lane, Op, ReqId, Request};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

#[derive(Clone, Copy, Debug)]
struct Params {
    expire: [Nanos; 2],
    batch: u32,
    starved: u32,
}

impl Params {
    fn spec(&self, name: &str) -> PolicySpec {
        let mut spec = policy(name);
        for (name, value) in [
            ("read_expire", self.expire[0].0),
            ("write_expire", self.expire[1].0),
            ("fifo_batch", self.batch as u64),
            ("writes_starved", self.starved as u64),
        ] {
            spec.set(name, value).expect("in range");
        }
        spec
    }
}

/// Unit as the model last saw it.
#[derive(Clone, Copy)]
struct Seen {
    id: ReqId,
    guest: usize,
    lane: Lane,
    /// Sequence number of the unit's removal from the order while its gate was shut; `None`: it is
    /// in it.
    aside: Option<u64>,
}

/// Model that scans all waiting units for each pick.
struct Scan {
    params: Params,
    seen: Vec<Seen>,
    opened: [[Nanos; 2]; GUESTS],
    was_open: [[bool; 2]; GUESTS],
    asides: u64,
    direction: Lane,
    batch: u32,
    starved: u32,
    position: [u64; 2],
    /// Direction of the batch that the next pick begins, and the value of `starved` then.
    begins: Option<(Lane, u32)>,
    /// Units of shut lanes that the next pick's searches meet, in order. They step aside once the
    /// dispatcher was asked: the engine may keep the device free without asking it.
    met: Vec<ReqId>,
    /// Unit that the next pick starts.
    picked: Option<ReqId>,
}

impl Scan {
    fn new(params: Params) -> Scan {
        Scan {
            params,
            seen: Vec::new(),
            opened: [[Nanos::ZERO; 2]; GUESTS],
            was_open: [[true; 2]; GUESTS],
            asides: 0,
            direction: Lane::Write,
            batch: 0,
            starved: 0,
            position: [0; 2],
            begins: None,
            met: Vec::new(),
            picked: None,
        }
    }

    fn aside(&mut self) -> Option<u64> {
        self.asides += 1;
        Some(self.asides)
    }

    fn learn(&mut self, lab: &Lab, shut_go_aside: bool) {
        for &(id, guest) in &lab.waiting {
            if self.seen.iter().all(|s| s.id != id) {
                let lane = lab.unit(id).op.lane();
                let shut = shut_go_aside && !lab.open(guest, lane);
                let aside = if shut { self.aside() } else { None };
                self.seen.push(Seen {
                    id,
                    guest,
                    lane,
                    aside,
                });
            }
        }
    }

    /// Removes units that went.
    fn forget(&mut self, lab: &Lab) {
        let gone = |s: &Seen| lab.waiting.iter().all(|w| w.0 != s.id);
        while let Some(place) = self.seen.iter().position(gone) {
            self.remove(place);
        }
    }

    /// Removes the units that an I/O took, in the engine's order: those that went along with the
    /// picked one, each by itself, and the picked one last.
    fn forget_taken(&mut self, lab: &Lab, io: &DeviceIo) {
        let segments = lab.driver.engine.io_segments(io.id);
        let picked = self.picked.take();
        let along = segments.map(|s| s.req).filter(|&id| Some(id) != picked);
        for id in along.chain(picked) {
            let waits = lab.waiting.iter().any(|w| w.0 == id);
            let place = self.seen.iter().position(|s| s.id == id);
            if let Some(place) = place.filter(|_| !waits) {
                self.remove(place);
            }
        }
    }

    /// Removes a unit. It makes room for two that stood aside, the last ones to do so.
    fn remove(&mut self, place: usize) {
        let went = self.seen.remove(place);
        for _ in 0..2 {
            let of_lane = self
                .seen
                .iter_mut()
                .filter(|s| (s.guest, s.lane) == (went.guest, went.lane) && s.aside.is_some());
            if let Some(last) = of_lane.max_by_key(|s| s.aside)
                && self.was_open[went.guest][went.lane.index()]
            {
                last.aside = None;
            }
        }
    }

    /// Returns the next unit in the order of addresses. Notes the units of shut lanes on the way.
    fn next_by_address(&mut self, lab: &Lab, lane: Lane) -> Option<ReqId> {
        let from = self.position[lane.index()];
        loop {
            let sorted = self
                .seen
                .iter()
                .filter(|s| s.lane == lane && s.aside.is_none() && !self.met.contains(&s.id));
            let behind = sorted.filter(|s| lab.unit(s.id).addr >= from);
            let next = behind.min_by_key(|s| (lab.unit(s.id).addr, s.id.index()))?;
            if lab.open(next.guest, lane) {
                return Some(next.id);
            }
            self.met.push(next.id);
        }
    }

    /// Sets the units aside that the last pick's searches met.
    fn set_met_aside(&mut self) {
        for id in std::mem::take(&mut self.met) {
            let aside = self.aside();
            let met = self.seen.iter_mut().find(|s| s.id == id);
            met.expect("a pick removes no unit").aside = aside;
        }
    }

    fn any_open(&self, lab: &Lab, lane: Lane) -> bool {
        self.seen
            .iter()
            .any(|s| s.lane == lane && lab.open(s.guest, lane))
    }

    /// Returns the oldest unit of a direction, with the time from which its age counts.
    fn oldest(&self, lab: &Lab, lane: Lane) -> Option<(Nanos, u64, ReqId)> {
        let open = (0..GUESTS).filter(|&g| lab.open(g, lane));
        let heads = open.filter_map(|guest| {
            let head = lab
                .driver
                .engine
                .view()
                .lane_head(lab.guests[guest].vm, lane)?;
            let since = lab.unit(head).arrived.max(self.opened[guest][lane.index()]);
            Some((since, lab.unit(head).seq, head))
        });
        heads.min()
    }

    /// Returns the unit that is started next.
    fn pick(&mut self, lab: &Lab) -> Option<ReqId> {
        self.begins = None;
        self.met.clear();
        if self.batch < self.params.batch
            && let Some(next) = self.next_by_address(lab, self.direction)
        {
            return Some(next);
        }
        let (lane, starved) = match Lane::ALL.map(|lane| self.any_open(lab, lane)) {
            [false, false] => return None,
            [false, true] => (Lane::Write, 0),
            [true, false] => (Lane::Read, self.starved),
            _ if self.starved < self.params.starved => (Lane::Read, self.starved + 1),
            _ => (Lane::Write, 0),
        };
        self.begins = Some((lane, starved));
        let (since, _, oldest) = self.oldest(lab, lane).expect("something waits");
        if since + self.params.expire[lane.index()] <= lab.driver.now {
            return Some(oldest);
        }
        self.next_by_address(lab, lane).or(Some(oldest))
    }
}

impl Model for Scan {
    fn reset(&mut self, lab: &Lab) {
        *self = Scan::new(self.params);
        (0..GUESTS).for_each(|guest| self.added(lab, guest));
        self.learn(lab, false);
    }

    fn added(&mut self, lab: &Lab, guest: usize) {
        self.opened[guest] = [Nanos::ZERO; 2];
        self.was_open[guest] = Lane::ALL.map(|lane| lab.open(guest, lane));
    }

    fn weight_changed(&mut self, _lab: &Lab, _guest: usize) {}

    fn refresh(&mut self, lab: &Lab) {
        self.forget(lab);
        for guest in 0..GUESTS {
            for lane in Lane::ALL {
                let open = lab.open(guest, lane);
                if open && !self.was_open[guest][lane.index()] {
                    self.opened[guest][lane.index()] = lab.driver.now;
                    let head = lab
                        .driver
                        .engine
                        .view()
                        .lane_head(lab.guests[guest].vm, lane);
                    let head = self.seen.iter_mut().find(|s| Some(s.id) == head);
                    head.into_iter().for_each(|head| head.aside = None);
                }
                self.was_open[guest][lane.index()] = open;
            }
        }
        self.learn(lab, true);
    }

    fn next(&mut self, lab: &Lab) -> Option<ReqId> {
        self.picked = self.pick(lab);
        self.picked
    }

    fn idle(&mut self, _lab: &Lab) {
        self.set_met_aside();
    }

    fn started(&mut self, lab: &Lab, _guest: usize, io: &DeviceIo) {
        self.set_met_aside();
        self.forget_taken(lab, io);
        if let Some((lane, starved)) = self.begins.take() {
            (self.direction, self.starved, self.batch) = (lane, starved, 0);
        }
        self.batch += 1;
        self.position[io.op.lane().index()] = io.addr;
    }
}

fn params() -> impl Strategy<Value = Params> {
    let ms = |ms| Nanos::from_millis(ms);
    (0u64..100, 0u64..300, 1u32..=6, 1u32..=3).prop_map(move |(read, write, batch, starved)| {
        Params {
            expire: [ms(read), ms(write)],
            batch,
            starved,
        }
    })
}

oracle_test! {
    fn picks_are_those_of_the_rules(params in params())
    policies: ["deadline", "token-bucket+deadline"],
    spec: |name| params.spec(name),
    weights: Just(100),
    steps: 600,
    cases: (ProptestConfig::default().cases / 2).max(64),
    config: |config| config,
    model: |_: &LabConfig| Scan::new(params),
}

fn request(guest: usize, op: Op, first_block: u64, blocks: u32) -> Step {
    Step::Request {
        guest,
        op,
        first_block,
        blocks,
    }
}

/// Compares deadline with its model on a history.
fn run(depth: u32, merge: bool, params: Params, steps: Vec<Step>) {
    let policies = ["deadline", "token-bucket+deadline"].map(|name| params.spec(name));
    let mut model = Scan::new(params);
    lab::run(depth, merge, &[100; GUESTS], policies, &mut model, steps);
}

/// History in which the engine keeps a place for an expected request, and so does not ask the
/// dispatcher, while a unit of a shut lane is the next by address: it stays in the order.
#[test]
fn a_kept_place_sets_no_unit_aside() {
    let read = |guest| request(guest, Op::Read, 0, 1);
    let write = |guest, first_block, blocks| request(guest, Op::Write, first_block, blocks);
    let complete = |io| Step::Complete { io, fails: false };
    let micros = |micros| Step::Wait { micros };
    let (guest, weight) = (1, 100);
    let steps = vec![
        read(2),
        read(0),
        read(4),
        read(3),
        Step::Dispatch,
        complete(2),
        micros(1),
        write(2, 0, 1),
        Step::Dispatch,
        Step::Replace { guest, weight },
        read(4),
        write(3, 0, 1),
        write(1, 127, 17),
        write(3, 1, 1),
        Step::SetPolicy { gated: true },
        complete(0),
        Step::Dispatch,
        complete(3),
        complete(0),
        complete(0),
        complete(0),
        micros(3334),
        write(5, 0, 1),
        write(1, 128, 1),
        Step::Disconnect { guest: 3 },
    ];
    let params = Params {
        expire: [11, 133].map(Nanos::from_millis),
        batch: 2,
        starved: 1,
    };
    run(4, false, params, steps);
}

/// History in which the last part of a large read takes along the read behind it, which stands
/// aside: that one leaves first, so that its leaving makes room for two others.
#[test]
fn a_unit_that_goes_along_leaves_first() {
    let places = [(5, 0), (2, 0), (5, 44), (5, 77), (2, 0), (3, 0), (5, 2)];
    let rest = [(2, 0), (1, 0), (5, 0), (5, 0), (5, 0)];
    let read = |(guest, first_block)| {
        let blocks = if first_block == 44 { 33 } else { 1 };
        request(guest, Op::Read, first_block, blocks)
    };
    let params = Params {
        expire: [64, 80].map(Nanos::from_millis),
        batch: 1,
        starved: 2,
    };
    let steps = places.into_iter().chain(rest).map(read);
    run(3, true, params, steps.collect());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: (ProptestConfig::default().cases / 2).max(64),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// The module's bound on starvation, for every unit of a random crowd.
    #[test]
    fn an_expired_unit_starts_within_its_batches(
        params in params(),
        crowd in prop::collection::vec((0u64..400, 0u64..4000, any::<bool>()), 1..200),
    ) {
        let mut driver = Driver::new(config(1, 0), &params.spec("deadline"));
        let client = driver.guest(&Objective::default()).client;
        // Arrivals by time; the device takes 2 ms an I/O.
        let mut arrivals: Vec<(Nanos, Op, u64)> = crowd
            .iter()
            .map(|&(ms, place, write)| {
                (Nanos::from_millis(ms), if write { Op::Write } else { Op::Read }, place << 12)
            })
            .collect();
        arrivals.sort_by_key(|a| a.0);
        let mut started: Vec<Option<usize>> = vec![None; arrivals.len()];
        // How many I/Os had started by the time each expired, and what was before it then.
        let mut at_expiry: Vec<Option<(usize, u32)>> = vec![None; arrivals.len()];
        let (mut next, mut ios) = (0, 0);
        while started.iter().any(Option::is_none) {
            let now = driver.now;
            while next < arrivals.len() && arrivals[next].0 <= now {
                arrivals[next].0 = now;
                let (_, op, offset) = arrivals[next];
                let request = Request { op, ..Request::read(offset, 4096, next as u64) };
                driver.request(client, request).expect("room");
                next += 1;
            }
            for n in 0..next {
                let (arrived, op, _) = arrivals[n];
                let lane = op.lane();
                let expired = arrived + params.expire[lane.index()] <= now;
                if started[n].is_none() && expired && at_expiry[n].is_none() {
                    let waits = |o: usize| arrivals[o].1.lane() == lane && started[o].is_none();
                    let older = (0..=n).filter(|&o| waits(o));
                    at_expiry[n] = Some((ios, older.count() as u32));
                }
            }
            let io = driver.start();
            driver.now += Nanos::from_millis(2);
            if let Some(io) = io {
                let tag = driver.engine.io_segments(io.id).next().expect("data").tag as usize;
                started[tag] = Some(ios);
                ios += 1;
                if let Some((then, n)) = at_expiry[tag] {
                    let batches = match io.op.lane() {
                        Lane::Read => n + n.div_ceil(params.starved),
                        Lane::Write => n * (1 + params.starved),
                    };
                    let most = (params.batch * batches) as usize;
                    prop_assert!(ios - then <= most, "{} I/Os of {most}", ios - then);
                }
                driver.end(&io, Ok(()));
            }
        }
    }
}

/// Engine of depth 1 whose I/Os end at once, for tests of the order alone.
struct Disk {
    driver: Driver,
    guest: Guest,
}

impl Disk {
    fn new(merge_limit: u32) -> Disk {
        Disk::of(merge_limit, &policy("deadline"))
    }

    /// Creates the disk with the given parameters.
    fn with(params: &[(&str, u64)]) -> Disk {
        let mut spec = policy("deadline");
        for (name, value) in params {
            spec.set(name, *value).expect("in range");
        }
        Disk::of(0, &spec)
    }

    fn of(merge_limit: u32, spec: &PolicySpec) -> Disk {
        let mut driver = Driver::new(config(1, merge_limit), spec).with_clock_at(Nanos::SECOND);
        let guest = driver.guest(&Objective::default());
        Disk { driver, guest }
    }

    fn ask(&mut self, op: Op, block: u64, blocks: u32) {
        let client = self.guest.client;
        let taken = self.driver.ask(client, op, block * 4096, blocks * 4096);
        taken.expect("room");
    }

    /// Returns the blocks at which the next I/Os begin.
    fn serve(&mut self, ios: usize) -> Vec<u64> {
        let mut blocks = Vec::new();
        for _ in 0..ios {
            let Some(io) = self.driver.start() else {
                break;
            };
            blocks.push(io.addr / 4096);
            self.driver.end(&io, Ok(()));
        }
        blocks
    }
}

#[test]
fn a_batch_goes_up_from_where_the_last_one_ended() {
    let mut disk = Disk::new(0);
    for block in [500, 20, 310, 100, 430, 10] {
        disk.ask(Op::Read, block, 1);
    }
    assert_eq!(disk.serve(3), [10, 20, 100]);
    // A request behind the head waits for the next sweep.
    disk.ask(Op::Read, 50, 1);
    disk.ask(Op::Read, 320, 1);
    assert_eq!(disk.serve(9), [310, 320, 430, 500, 50]);
}

#[test]
fn a_sweep_that_is_over_begins_again_with_the_oldest() {
    let mut disk = Disk::new(0);
    disk.ask(Op::Read, 900, 1);
    assert_eq!(disk.serve(1), [900]);
    for block in [300, 200, 400] {
        disk.ask(Op::Read, block, 1);
    }
    // The sweep does not begin at the lowest address: Linux begins with the earliest expiry.
    assert_eq!(disk.serve(9), [300, 400, 200]);
}

#[test]
fn reads_go_first_and_writes_are_passed_over_twice() {
    let mut disk = Disk::new(0);
    for n in 0..64 {
        disk.ask(Op::Read, n, 1);
    }
    for n in 0..64 {
        disk.ask(Op::Write, 1000 + n, 1);
    }
    let order = disk.serve(128);
    // Writes were served last before anything came, so their batch would go on: it does, once.
    let batches: Vec<bool> = order
        .chunks(16)
        .map(|b| b.iter().all(|&n| n >= 1000))
        .collect();
    let pure = order
        .chunks(16)
        .all(|b| b.iter().all(|n| *n >= 1000) || b.iter().all(|n| *n < 1000));
    assert!(pure, "{order:?}");
    assert_eq!(
        batches,
        [true, false, false, true, false, false, true, true]
    );
}

#[test]
fn an_expired_read_is_where_the_next_batch_begins() {
    let mut disk = Disk::new(0);
    disk.ask(Op::Read, 5000, 1);
    assert_eq!(disk.serve(1), [5000]);
    disk.ask(Op::Read, 10, 1);
    for n in 0..40 {
        disk.ask(Op::Read, 6000 + n, 1);
    }
    // The batch has 15 to go.
    disk.driver.now += Nanos::from_millis(499);
    assert_eq!(disk.serve(15), (6000..6015).collect::<Vec<u64>>());
    assert_eq!(disk.serve(1), [6015], "not expired: on with the sweep");
    disk.driver.now += Nanos::from_millis(1);
    assert_eq!(
        disk.serve(15),
        (6016..6031).collect::<Vec<u64>>(),
        "expiry waits for the batch"
    );
    assert_eq!(disk.serve(2), [10, 6031]);
}

#[test]
fn a_write_expires_after_five_seconds() {
    let mut disk = Disk::new(0);
    disk.ask(Op::Write, 5000, 1);
    assert_eq!(disk.serve(1), [5000]);
    disk.ask(Op::Write, 10, 1);
    for n in 0..100 {
        disk.ask(Op::Write, 6000 + n, 1);
    }
    disk.driver.now += Nanos::from_millis(4_999);
    assert!(!disk.serve(40).contains(&10));
    disk.driver.now += Nanos::from_millis(1);
    assert!(disk.serve(16).contains(&10));
}

#[test]
fn discards_and_zeroing_go_with_the_writes() {
    let mut disk = Disk::new(0);
    disk.ask(Op::Discard, 30, 1);
    disk.ask(Op::Read, 5, 1);
    disk.ask(Op::WriteZeroes, 10, 1);
    disk.ask(Op::Write, 20, 1);
    assert_eq!(disk.serve(9), [10, 20, 30, 5]);
}

#[test]
fn a_unit_that_grows_at_its_front_moves_in_the_order() {
    let mut disk = Disk::new(128 << 10);
    disk.ask(Op::Read, 90, 1);
    disk.ask(Op::Read, 100, 4);
    disk.ask(Op::Read, 80, 20);
    assert_eq!(disk.serve(9), [80, 90]);
}

#[test]
fn what_is_left_of_a_large_request_stands_where_it_begins() {
    let mut disk = Disk::new(0);
    disk.ask(Op::Read, 0, 1024);
    disk.ask(Op::Read, 300, 1);
    // Parts of 1 MiB, 256 blocks; what lies between them comes between them.
    assert_eq!(disk.serve(9), [0, 256, 300, 512, 768]);
}

#[test]
fn thousands_of_units_behind_a_shut_gate_do_not_stand_in_the_way() {
    let mut world = World::with_config(config(1, 0), "token-bucket+deadline", MS);
    let slow = limited(Rate::iops(1));
    let held: Vec<Guest> = (0..4).map(|_| world.guest(&slow)).collect();
    let free = world.guest(&Objective::default());
    for &guest in &held {
        world.load(guest, Op::Read, 4096, 900);
    }
    world.load(free, Op::Read, 4096, 4);
    world.run(10 * SECOND);
    // The other's sweep goes up and up, far above: each unit that a limit lets in waits until
    // it expires after 500 ms. The limit makes good for that: 100 ms have room for no second one.
    for &guest in &held {
        let got = total(&world.ops(guest));
        assert!((9..=10).contains(&got), "{got} in 10 s at one a second");
    }
    assert!(total(&world.ops(free)) >= 9_960);
    // Limits are lifted: everyone's units are in the order again.
    for &guest in &held {
        world.set(guest, &Objective::default());
    }
    world.driver.log.clear();
    world.run(10 * SECOND);
    for &guest in &held {
        assert!(
            total(&world.ops(guest)) >= 900,
            "{}",
            total(&world.ops(guest))
        );
    }
}

#[test]
fn time_behind_a_limit_does_not_make_a_unit_expire() {
    let mut world = World::with_config(config(1, 0), "token-bucket+deadline", MS);
    let held = world.guest(&limited(Rate::iops(5)));
    let free = world.guest(&Objective::default());
    world.load(held, Op::Read, 4096, 100);
    world.load(free, Op::Read, 4096, 100);
    world.run(10 * SECOND);
    // Its hundred units are all older than 500 ms soon, but each waits for its 500 ms from when
    // the limit lets it in, 100 ms after the one before: it makes good for another 100. Were its
    // arrival to count, each would break into the next batch, 50 times in 10 s.
    let got = total(&world.ops(held));
    assert!((16..=17).contains(&got), "{got} in 10 s at one in 0.6 s");
}

/// deadline-iosched: `writes_starved`, how many batches of reads go before one of writes.
#[test]
fn so_many_batches_of_reads_starve_the_writes() {
    for starved in [1, 2, 5] {
        let mut disk = Disk::with(&[("writes_starved", starved), ("fifo_batch", 4)]);
        // A batch of writes is over, and reads begin.
        disk.ask(Op::Write, 5000, 1);
        assert_eq!(disk.serve(1), [5000]);
        for n in 0..80 {
            disk.ask(Op::Read, n, 1);
        }
        for n in 0..80 {
            disk.ask(Op::Write, 1000 + n, 1);
        }
        let order = disk.serve(4 * (2 * (starved as usize + 1)));
        let batches = order.chunks(4).map(|batch| batch[0] >= 1000);
        let expected = (0..2).flat_map(|_| (0..=starved).map(|n| n == starved));
        assert!(batches.eq(expected), "{starved}: {order:?}");
    }
}

/// Checks that `fifo_batch` 1 is close to the order of arrival, once requests have expired.
#[test]
fn batches_of_one_serve_what_has_expired_in_the_order_of_arrival() {
    let mut disk = Disk::with(&[("fifo_batch", 1)]);
    let blocks = [700, 30, 900, 2, 450, 449];
    for block in blocks {
        disk.ask(Op::Read, block, 1);
    }
    disk.driver.now += Nanos::from_millis(500);
    assert_eq!(disk.serve(9), blocks);
    // None has: in the order of addresses from where the last one began.
    for block in [451, 900, 30, 449] {
        disk.ask(Op::Read, block, 1);
    }
    assert_eq!(disk.serve(9), [449, 451, 900, 30]);
}

/// A direction goes on behind its own last I/O, whatever the other one did in between.
#[test]
fn each_direction_goes_on_from_where_it_was() {
    let mut disk = Disk::with(&[("fifo_batch", 2), ("writes_starved", 1)]);
    disk.ask(Op::Write, 9000, 1);
    assert_eq!(disk.serve(1), [9000]);
    for block in [500, 600, 700, 100] {
        disk.ask(Op::Read, block, 1);
    }
    for block in [9100, 9200, 9300, 50] {
        disk.ask(Op::Write, block, 1);
    }
    // The writes' batch has one I/O left. Writes were passed over once by then: reads, writes.
    let order = disk.serve(9);
    assert_eq!(order, [9100, 100, 500, 9200, 9300, 600, 700, 50]);
}
