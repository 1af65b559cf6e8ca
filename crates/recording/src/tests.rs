//! Recordings that are written and read again: whole, cut off, damaged, with dropped requests.

use proptest::prelude::*;
use tidegate_base::request::Op;
use tidegate_base::time::Nanos;

use crate::chunk::{self, Kind, MAGIC, VERSION};
use crate::{
    BLOCK_REQUESTS, Change, DiskFacts, Encoder, Gap, GapCause, Header, Item, ReadError, Reader,
    Recording, Request, TooLarge, VmFacts,
};

/// Read of 4 KiB that ended at `done`, and took no time.
pub(crate) fn request(done: u64) -> Request {
    Request {
        disk: 0,
        op: Op::Read,
        fua: false,
        keep_allocated: false,
        outcome: Ok(()),
        offset: 0,
        len: 4096,
        arrived: Nanos(done),
        admitted: Nanos(done),
        sent: Nanos(done),
        done: Nanos(done),
    }
}

fn header() -> Header {
    let vm = |number: u32, name: &str| VmFacts {
        number,
        name: name.to_owned(),
        disks: vec![DiskFacts {
            number,
            name: name.to_owned(),
            size_bytes: 1 << 40,
            at: 0,
        }],
        ..VmFacts::default()
    };
    Header {
        started_unix_ns: 1_700_000_000_000_000_000,
        vms: vec![vm(0, "oltp"), vm(1, "backup")],
        ..Header::default()
    }
}

/// Numbers of a linear congruential generator (Knuth's MMIX), of which the upper bits are used.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        (self.0, _) = self.0.overflowing_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 32) * bound) >> 32
    }
}

/// Requests of 4 KiB at random addresses of 1 TiB, reads and writes of two VMs.
fn random_load(requests: u64, mut times: impl FnMut(&mut Numbers) -> [u64; 4]) -> Vec<Request> {
    let mut numbers = Numbers(1);
    let mut done = 1_000_000_000;
    let load = (0..requests).map(|_| {
        let [since, device, queued, held] = times(&mut numbers);
        done += since;
        let sent = done - device;
        Request {
            disk: numbers.below(2) as u32,
            op: [Op::Read, Op::Write][numbers.below(2) as usize],
            offset: numbers.below(1 << 28) * 4096,
            arrived: Nanos(sent - queued - held),
            admitted: Nanos(sent - queued),
            sent: Nanos(sent),
            ..request(done)
        }
    });
    load.collect()
}

/// Flash disk at 100 000 IOPS: some 10 us between ends, 60 to 120 us with the device.
fn flash_load(requests: u64) -> Vec<Request> {
    random_load(requests, |numbers| {
        let held = [0, numbers.below(20_000)][numbers.below(2) as usize];
        [
            numbers.below(20_000),
            60_000 + numbers.below(60_000),
            numbers.below(100_000),
            held,
        ]
    })
}

fn written(header: &Header, requests: &[Request]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(header, &mut bytes);
    for request in requests {
        encoder.push(request, &mut bytes);
    }
    let end = requests.last().map_or(Nanos::ZERO, |last| last.done);
    encoder.end(end, &mut bytes);
    bytes
}

/// Reads a recording to its end.
fn read(bytes: &[u8]) -> (Vec<Request>, Vec<Gap>, crate::Summary) {
    let mut reader = Reader::new(bytes).expect("it has a header");
    let (mut requests, mut gaps) = (Vec::new(), Vec::new());
    while let Some(item) = reader.next_item().expect("memory can be read") {
        match item {
            Item::Request(request) => requests.push(request),
            Item::Gap(gap) => gaps.push(gap),
            Item::Change(..) => {}
        }
    }
    (requests, gaps, reader.summary())
}

/// Returns the places of all chunks behind the header.
fn chunks(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut at = MAGIC.len() + 4;
    let mut places = Vec::new();
    while at < bytes.len() {
        let len = u32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[at + 8 + byte])) as usize;
        places.push(at..at + 20 + len);
        at += 20 + len;
    }
    places.remove(0);
    places
}

#[test]
fn a_random_load_takes_at_most_16_bytes_a_request() {
    let per_request = |load: &[Request]| {
        let bytes = written(&header(), load);
        assert_eq!(read(&bytes).0, load);
        bytes.len() as f64 / load.len() as f64
    };
    // Seen: 12.1 bytes on flash, 14.1 on the spindle.
    let flash = per_request(&flash_load(100_000));
    assert!(flash <= 16.0, "{flash} bytes a request");
    // A spindle with a deep queue: 5 to 15 ms a request, up to half a second of queueing.
    let spindle = random_load(20_000, |numbers| {
        [
            numbers.below(20_000_000),
            5_000_000 + numbers.below(10_000_000),
            numbers.below(500_000_000),
            0,
        ]
    });
    let spindle = per_request(&spindle);
    assert!(spindle <= 16.0, "{spindle} bytes a request");
}

#[test]
fn a_sequential_load_takes_a_few_bytes_a_request() {
    let load: Vec<Request> = (0..100_000)
        .map(|n| Request {
            offset: n * 65_536,
            len: 65_536,
            ..request(1_000_000 + n * 50_000)
        })
        .collect();
    let bytes = written(&header(), &load);
    assert!(bytes.len() < 100_000, "{} bytes", bytes.len());
    assert_eq!(read(&bytes).0, load);
}

#[test]
fn flushes_and_odd_addresses_are_read_as_they_were_written() {
    let mut load = flash_load(10_000);
    for (at, one) in load.iter_mut().enumerate() {
        match at % 7 {
            0 => (one.op, one.offset, one.len) = (Op::Flush, 0, 0),
            1 => one.offset += 513,
            2 => (one.op, one.len) = (Op::Discard, u32::MAX),
            3 => (one.op, one.offset) = (Op::WriteZeroes, u64::MAX - 5000),
            _ => {}
        }
    }
    assert_eq!(read(&written(&header(), &load)).0, load);
    let flushes: Vec<Request> = (load.iter().step_by(7).copied()).collect();
    assert_eq!(read(&written(&header(), &flushes)).0, flushes);
}

#[test]
fn a_recording_that_is_cut_off_loses_at_most_the_last_block() {
    let load = flash_load(3 * BLOCK_REQUESTS as u64 + 5);
    let bytes = written(&header(), &load);
    let places = chunks(&bytes);
    for (cut, blocks) in [
        (places[3].start, 3),
        (places[2].end - 1, 2),
        (places[2].start + 1, 2),
        (places[0].start + 19, 0),
    ] {
        let (requests, gaps, summary) = read(&bytes[..cut]);
        assert_eq!(requests, load[..blocks * BLOCK_REQUESTS]);
        assert_eq!((gaps, summary.is_complete), (Vec::new(), false));
    }
}

#[test]
fn a_damaged_block_is_a_gap_of_known_length() {
    let load = flash_load(3 * BLOCK_REQUESTS as u64);
    let intact = written(&header(), &load);
    let places = chunks(&intact);
    let second = BLOCK_REQUESTS..2 * BLOCK_REQUESTS;
    let without_second = [&load[..second.start], &load[second.end..]].concat();
    let gap = Gap {
        cause: GapCause::Damaged,
        from: load[second.start - 1].done,
        until: Some(load[second.end].done),
        requests: Some(BLOCK_REQUESTS as u64),
    };
    // Each part of the chunk's head, and its payload.
    for at in [0, 4, 9, 13, 17, 20, 500] {
        let mut bytes = intact.clone();
        bytes[places[1].start + at] ^= 0x40;
        let (requests, gaps, summary) = read(&bytes);
        assert_eq!((gaps, summary.is_complete), (vec![gap], true), "byte {at}");
        assert_eq!(summary.lost, BLOCK_REQUESTS as u64);
        assert_eq!(requests, without_second);
    }
    // The block is missing altogether, or there is rubbish with a marker in its place.
    let mut bytes = intact.clone();
    bytes.drain(places[1].clone());
    assert_eq!(read(&bytes).1, [gap]);
    bytes.splice(places[1].start..places[1].start, *b"rubbish\xF5tgcrubbish");
    assert_eq!(read(&bytes).1, [gap]);
    // A block twice is not counted twice.
    let mut bytes = intact.clone();
    let twice = intact[places[1].clone()].to_vec();
    bytes.splice(places[2].start..places[2].start, twice);
    let (requests, gaps, _) = read(&bytes);
    assert_eq!(requests, load);
    assert_eq!((gaps.len(), gaps[0].requests), (1, Some(0)));
}

#[test]
fn damage_at_the_end_is_a_gap_of_unknown_length() {
    let load = flash_load(2 * BLOCK_REQUESTS as u64);
    let mut bytes = written(&header(), &load);
    let places = chunks(&bytes);
    bytes.truncate(places[1].end);
    bytes[places[1].start + 100] ^= 1;
    let (requests, gaps, summary) = read(&bytes);
    assert_eq!(requests, load[..BLOCK_REQUESTS]);
    let [gap] = gaps[..] else {
        panic!("one gap: {gaps:?}")
    };
    assert_eq!((gap.until, gap.requests), (None, None));
    assert!(!summary.is_complete);
}

#[test]
fn dropped_requests_are_counted_where_they_are_missing() {
    let load = flash_load(100);
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&header(), &mut bytes);
    for one in &load[..40] {
        encoder.push(one, &mut bytes);
    }
    encoder.drop_requests(7, &mut bytes);
    encoder.drop_requests(3, &mut bytes);
    encoder.drop_requests(0, &mut bytes);
    for one in &load[40..] {
        encoder.push(one, &mut bytes);
    }
    encoder.drop_requests(5, &mut bytes);
    assert_eq!((encoder.requests(), encoder.pending()), (115, 0));
    encoder.end(load[99].done + Nanos(1), &mut bytes);
    let (requests, gaps, summary) = read(&bytes);
    assert_eq!(requests, load);
    let dropped = |from: usize, until: Option<usize>, requests| Gap {
        cause: GapCause::Dropped,
        from: load[from].done,
        until: until.map(|at| load[at].done),
        requests: Some(requests),
    };
    assert_eq!(gaps, [dropped(39, Some(40), 10), dropped(99, None, 5)]);
    assert_eq!((summary.dropped, summary.lost, summary.gaps), (15, 0, 2));
    assert_eq!(summary.last, load[99].done + Nanos(1));
}

/// Returns changes of every kind, with a VM, a policy and an objective that they name.
fn changes() -> Vec<Change> {
    let disk = |number| DiskFacts {
        number,
        name: format!("disk{number}"),
        size_bytes: 512,
        at: 0,
    };
    let new = VmFacts {
        number: 2,
        name: "web".to_owned(),
        disks: vec![disk(2)],
        ..VmFacts::default()
    };
    let mut policy = header().device.policy;
    policy.name = "mclock".to_owned();
    let mut objective = new.objective.clone();
    objective.reservation = Some("40 IOPS".to_owned());
    let name = "shop".to_owned();
    let (disk, size_bytes) = (disk(3), 1024);
    vec![
        Change::VmAdded { vm: new },
        Change::DiskAdded { vm: 2, disk },
        Change::VmRenamed { vm: 2, name },
        Change::Objective { vm: 2, objective },
        Change::DiskResized {
            disk: 3,
            size_bytes,
        },
        Change::DiskRemoved { disk: 2 },
        Change::VmRemoved { vm: 1 },
        Change::Policy { policy },
        Change::DeviceResized { size_bytes: 4096 },
    ]
}

#[test]
fn changes_stand_between_the_requests_and_apply_in_order() {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&header(), &mut bytes);
    for (change, at) in changes().iter().zip(1..) {
        encoder.push(&request(at), &mut bytes);
        encoder.change(Nanos(at), change, &mut bytes);
    }
    encoder.end(Nanos(10), &mut bytes);
    let mut reader = Reader::new(bytes.as_slice()).expect("it has a header");
    for (change, at) in changes().into_iter().zip(1..) {
        let item = reader.next_item().expect("memory can be read");
        assert_eq!(item, Some(Item::Request(request(at))));
        let item = reader.next_item().expect("memory can be read");
        assert_eq!(item, Some(Item::Change(Nanos(at), Box::new(change))));
    }
    let now = reader.inventory();
    let there: Vec<&str> = now.vms().map(|vm| vm.name.as_str()).collect();
    assert_eq!(there, ["oltp", "shop"]);
    let shop = now.vm(2).expect("it was added");
    assert_eq!(shop.objective.reservation.as_deref(), Some("40 IOPS"));
    let [disk] = &shop.disks[..] else {
        panic!("one disk: {shop:?}")
    };
    assert_eq!((disk.number, disk.size_bytes), (3, 1024));
    assert_eq!(now.vm(1).map(|vm| vm.name.as_str()), Some("backup"));
    assert_eq!(now.vm_of_disk(2).map(|vm| vm.number), Some(2));
    assert_eq!(now.device().policy.name, "mclock");
    assert_eq!(now.device().size_bytes, Some(4096));
    assert_eq!(now.next_numbers(), (3, 4));
    let header = now.header(7, 9);
    assert_eq!((header.started_unix_ns, header.first_request), (7, 9));
    assert_eq!(header.vms.len(), 2);
}

#[test]
fn a_gap_of_another_recording_is_passed_on() {
    let gap = Gap {
        cause: GapCause::Off,
        from: Nanos(5),
        until: Some(Nanos(9)),
        requests: None,
    };
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&header(), &mut bytes);
    encoder.push(&request(5), &mut bytes);
    encoder.gap(&gap, &mut bytes);
    encoder.push(&request(9), &mut bytes);
    encoder.end(Nanos(9), &mut bytes);
    let whole = Recording::read(bytes.as_slice(), 2).expect("two requests");
    assert_eq!(whole.gaps, [gap]);
    assert!(!whole.is_whole());
    assert_eq!(whole.missing(GapCause::Off), 0);
    let refused = Recording::read(bytes.as_slice(), 1).expect_err("two requests");
    assert!(matches!(refused, TooLarge::Requests(1)));
}

#[test]
fn a_recording_as_a_whole_is_sorted_by_arrival() {
    let load = flash_load(10_000);
    let bytes = written(&header(), &load);
    let whole = Recording::read(bytes.as_slice(), 10_000).expect("within the bound");
    assert!(whole.requests.is_sorted_by_key(|request| request.arrived));
    let mut by_end = whole.requests.clone();
    by_end.sort_by_key(|request| request.done);
    let ends = |requests: &[Request]| requests.iter().map(|it| it.done).collect::<Vec<_>>();
    assert_eq!(ends(&by_end), ends(&load));
    assert!(whole.is_whole() && whole.summary.is_complete);
    assert_eq!(whole.header, header());
}

#[test]
fn the_beginning_of_a_recording_has_its_own_totals() {
    let requests: Vec<Request> = (1..=5).map(|second| request(second * 1_000)).collect();
    let bytes = written(&header(), &requests);
    let (first, has_more) = Recording::read_first(bytes.as_slice(), 3).expect("a recording");
    assert!(has_more);
    assert_eq!(first.requests, requests[..3]);
    let summary = first.summary;
    assert_eq!((summary.requests, summary.last), (3, Nanos(3_000)));
    assert!(!summary.is_complete);
    let (all, has_more) = Recording::read_first(bytes.as_slice(), 5).expect("a recording");
    assert!(!has_more && all.summary.is_complete);
    let whole = Recording::read(bytes.as_slice(), 5).expect("a recording");
    assert_eq!(all, whole);
}

#[test]
fn a_later_file_goes_on_counting() {
    let header = Header {
        first_request: 1000,
        ..header()
    };
    let bytes = written(&header, &flash_load(10));
    let mut reader = Reader::new(bytes.as_slice()).expect("it has a header");
    while reader.next_item().expect("memory can be read").is_some() {}
    assert_eq!(reader.expected(), 1010);
    assert_eq!((reader.summary().requests, reader.summary().gaps), (10, 0));
}

#[test]
fn what_is_no_recording_is_refused_with_the_reason() {
    let refused = |bytes: &[u8]| Reader::new(bytes).expect_err("not readable");
    assert!(matches!(refused(b""), ReadError::NotARecording));
    assert!(matches!(
        refused(b"1,host,0,Read"),
        ReadError::NotARecording
    ));
    let mut bytes = written(&header(), &[]);
    assert!(matches!(refused(&bytes[..10]), ReadError::Header));
    assert!(matches!(refused(&bytes[..50]), ReadError::Header));
    bytes[40] ^= 1;
    assert!(matches!(refused(&bytes), ReadError::Header));
    bytes[8] = 2;
    assert!(matches!(refused(&bytes), ReadError::Version(2)));
    // A header with a right checksum that is none.
    let mut bytes = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
    chunk::put(Kind::Header, &mut bytes, |out| out.extend_from_slice(b"{}"));
    assert!(matches!(refused(&bytes), ReadError::Header));
}

#[test]
fn a_length_that_is_not_there_takes_no_memory_and_ends_the_recording() {
    let mut bytes = written(&header(), &flash_load(10));
    let places = chunks(&bytes);
    bytes.truncate(places[1].start);
    // A chunk of 16 MiB, of which nothing follows.
    let mut head = Vec::new();
    chunk::put(Kind::Block, &mut head, |out| out.resize(20 + (16 << 20), 0));
    bytes.extend_from_slice(&head[..40]);
    let (requests, gaps, summary) = read(&bytes);
    assert_eq!((requests.len(), gaps.len()), (10, 0));
    assert!(!summary.is_complete);
}

/// Returns a strategy for requests that are valid, of a few disks.
fn any_request() -> impl Strategy<Value = Request> {
    let times = [0u64..1 << 40, 0..1 << 34, 0..1 << 34, 0..1 << 20];
    let options = (any::<bool>(), any::<bool>(), 0usize..5);
    (0u32..5, any::<u64>(), any::<u32>(), times, options).prop_map(
        |(disk, offset, len, [arrived, held, queued, device], (fua, keep_allocated, op))| {
            let op = Op::ALL[op];
            let address = if op == Op::Flush { 0 } else { offset };
            Request {
                disk,
                op,
                fua,
                keep_allocated,
                outcome: Ok(()),
                offset: address,
                len,
                arrived: Nanos(arrived),
                admitted: Nanos(arrived + held),
                sent: Nanos(arrived + held + queued),
                done: Nanos(arrived + held + queued + device),
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_requests_are_read_as_they_were_written(
        requests in prop::collection::vec(any_request(), 0..300),
    ) {
        let bytes = written(&header(), &requests);
        prop_assert_eq!(read(&bytes).0, requests);
    }

    #[test]
    fn damage_yields_only_requests_that_were_written(
        requests in prop::collection::vec(any_request(), 1..300),
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&header(), &mut bytes);
        for (at, request) in requests.iter().enumerate() {
            encoder.push(request, &mut bytes);
            if at % 50 == 49 {
                encoder.finish_block(&mut bytes);
            }
        }
        encoder.end(Nanos(0), &mut bytes);
        for (place, byte) in places {
            *place.get_mut(&mut bytes) ^= byte;
        }
        super::fuzz::recording(&bytes);
        if let Ok(mut reader) = Reader::new(bytes.as_slice()) {
            let mut left = requests.iter();
            while let Some(item) = reader.next_item().expect("memory can be read") {
                if let Item::Request(request) = item {
                    prop_assert!(left.any(|written| *written == request));
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_survived(data in any::<Vec<u8>>(), kind in 1u8..6) {
        super::fuzz::recording(&data);
        // The same bytes where checksums are right.
        let kinds = [Kind::Header, Kind::Block, Kind::Change, Kind::Gap, Kind::End];
        let mut bytes = Vec::new();
        let _ = Encoder::new(&header(), &mut bytes);
        chunk::put(kinds[usize::from(kind) - 1], &mut bytes, |out| out.extend_from_slice(&data));
        super::fuzz::recording(&bytes);
    }
}
