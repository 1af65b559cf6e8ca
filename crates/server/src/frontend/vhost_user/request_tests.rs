use super::*;
use crate::buffer::{PAGE, Region};

const LIMITS: Limits = Limits {
    block: 512,
    payload: 1 << 20,
};

/// Memory of a test, of which chains are cut.
struct Guest(Region);

impl Guest {
    fn new() -> Guest {
        Guest(Region::new(PAGE * 4).expect("memory"))
    }

    /// Writes a header, and bytes behind it, at the front; returns their memory.
    fn with_header(&self, request_type: u32, sector: u64, then: &[u8]) -> Mem {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&request_type.to_le_bytes());
        // The reserved half must not matter.
        bytes[4..8].fill(0xff);
        bytes[8..].copy_from_slice(&sector.to_le_bytes());
        self.0.mem(0, HEADER).write(&bytes);
        self.0.mem(HEADER, then.len()).write(then);
        self.0.mem(0, HEADER + then.len())
    }

    fn writable(&self, len: usize) -> Mem {
        self.0.mem(PAGE, len)
    }
}

fn read(readable: Vec<Mem>, writable: Vec<Mem>) -> (Result<Request, Fault>, Chain) {
    let mut chain = Chain { readable, writable };
    (Request::read(&mut chain, &LIMITS), chain)
}

fn task_of(readable: Mem, writable: Mem) -> Task {
    read(vec![readable], vec![writable]).0.expect("sound").task
}

fn total(memory: &[Mem]) -> usize {
    memory.iter().map(Mem::len).sum()
}

#[test]
fn a_request_may_be_cut_anywhere() {
    let guest = Guest::new();
    let whole = guest.with_header(OUT, 3, &[7; 1024]);
    let expected = Task::Disk {
        kind: Kind::Write,
        offset: 3 * 512,
        len: 1024,
    };
    for cut in 1..whole.len() {
        let parts = vec![whole.slice(0, cut), whole.from(cut)];
        let (request, chain) = read(parts, vec![guest.writable(1)]);
        assert_eq!(request.expect("sound").task, expected, "cut at {cut}");
        let data: Vec<usize> = chain.readable.iter().map(Mem::addr).collect();
        assert_eq!(total(&chain.readable), 1024);
        assert_eq!(data[0], whole.addr() + HEADER);
    }
    let bytes: Vec<Mem> = (0..whole.len()).map(|n| whole.slice(n, 1)).collect();
    let (request, _) = read(bytes, vec![guest.writable(1)]);
    assert_eq!(request.expect("sound").task, expected);
}

#[test]
fn the_status_is_the_last_byte_wherever_it_is() {
    let guest = Guest::new();
    let header = guest.with_header(IN, 0, &[]);
    let memory = guest.writable(513);
    for parts in [
        vec![memory],
        vec![memory.slice(0, 512), memory.from(512)],
        vec![memory.slice(0, 100), memory.from(100)],
    ] {
        let (request, chain) = read(vec![header], parts);
        let request = request.expect("sound");
        assert_eq!(request.status.addr(), memory.addr() + 512);
        assert_eq!(request.status.len(), 1);
        assert_eq!(total(&chain.writable), 512);
    }
}

#[test]
fn chains_that_cannot_be_answered_are_faults() {
    let guest = Guest::new();
    let header = guest.with_header(IN, 0, &[]);
    let short = read(vec![header.slice(0, 15)], vec![guest.writable(1)]);
    assert_eq!(short.0.expect_err("short"), "a request without header");
    let none = read(vec![], vec![guest.writable(1)]);
    assert_eq!(none.0.expect_err("none"), "a request without header");
    let no_status = read(vec![header], vec![]);
    let expected = "a request without a status byte";
    assert_eq!(no_status.0.expect_err("no status"), expected);
}

#[test]
fn requests_that_make_no_sense_are_answered_with_an_error() {
    let guest = Guest::new();
    let of_type = |kind, sector, data: &[u8], answer| {
        task_of(
            guest.with_header(kind, sector, data),
            guest.writable(answer),
        )
    };
    let error = Task::Refuse(IO_ERROR);
    assert_eq!(of_type(IN, 0, &[], 1), error, "no data");
    assert_eq!(of_type(IN, 0, &[], 512), error, "511 bytes");
    assert_eq!(of_type(IN, 0, &[1; 512], 513), error, "data both ways");
    assert_eq!(of_type(OUT, 0, &[1; 512], 2), error, "data both ways");
    assert_eq!(of_type(OUT, 0, &[1; 100], 1), error, "100 bytes");
    assert_eq!(of_type(IN, u64::MAX / 512 + 1, &[], 513), error, "too far");
    assert_eq!(of_type(99, 0, &[], 1), Task::Refuse(UNSUPPORTED));
    let header = guest.with_header(IN, 0, &[]);
    let many = vec![guest.writable(PAGE); 257];
    let (request, _) = read(vec![header], many);
    assert_eq!(request.expect("sound").task, error, "longer than allowed");
}

#[test]
fn blocks_larger_than_sectors_are_the_unit() {
    let guest = Guest::new();
    let limits = Limits {
        block: 4096,
        payload: 1 << 20,
    };
    for (sector, len, sound) in [(0, 4096, true), (1, 4096, false), (8, 512, false)] {
        let mut chain = Chain {
            readable: vec![guest.with_header(IN, sector, &[])],
            writable: vec![guest.writable(len + 1)],
        };
        let request = Request::read(&mut chain, &limits).expect("sound");
        assert_eq!(request.task != Task::Refuse(IO_ERROR), sound);
    }
}

#[test]
fn ranges_have_one_segment_and_known_flags() {
    let guest = Guest::new();
    let segment = |sector: u64, sectors: u32, flags: u32| {
        let mut bytes = sector.to_le_bytes().to_vec();
        bytes.extend(sectors.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes
    };
    let of_type = |kind, data: &[u8]| task_of(guest.with_header(kind, 0, data), guest.writable(1));
    let disk = |kind, offset, len| Task::Disk { kind, offset, len };
    let zeroes = |keep_allocated| Kind::WriteZeroes {
        keep_allocated,
        only_if_fast: false,
    };
    let sound = of_type(DISCARD, &segment(8, 16, 0));
    assert_eq!(sound, disk(Kind::Discard, 4096, 8192));
    let sound = of_type(WRITE_ZEROES, &segment(8, 16, 0));
    assert_eq!(sound, disk(zeroes(true), 4096, 8192));
    let sound = of_type(WRITE_ZEROES, &segment(8, 16, UNMAP));
    assert_eq!(sound, disk(zeroes(false), 4096, 8192));
    let longest = of_type(DISCARD, &segment(0, RANGE_MAX / 512, 0));
    assert_eq!(longest, disk(Kind::Discard, 0, RANGE_MAX));
    let error = Task::Refuse(IO_ERROR);
    for wrong in [
        segment(0, 0, 0),
        segment(0, RANGE_MAX / 512 + 1, 0),
        segment(0, u32::MAX, 0),
        segment(u64::MAX, 8, 0),
        segment(0, 8, 0)[..15].to_vec(),
        [segment(0, 8, 0), segment(8, 8, 0)].concat(),
    ] {
        assert_eq!(of_type(DISCARD, &wrong), error, "{wrong:?}");
    }
    let unsupported = Task::Refuse(UNSUPPORTED);
    assert_eq!(of_type(DISCARD, &segment(0, 8, UNMAP)), unsupported);
    assert_eq!(of_type(WRITE_ZEROES, &segment(0, 8, 2)), unsupported);
}

#[test]
fn an_identifier_is_the_name_cut_to_twenty_bytes() {
    let guest = Guest::new();
    assert_eq!(
        task_of(guest.with_header(GET_ID, 0, &[]), guest.writable(21)),
        Task::Identify
    );
    let memory = guest.writable(24);
    let parts = [memory.slice(0, 3), memory.slice(3, 21)];
    for (name, expected) in [
        ("disk", *b"disk\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
        ("a-name-of-more-than-twenty", *b"a-name-of-more-than-"),
    ] {
        memory.write(&[0xee; 24]);
        assert_eq!(identify(name, &parts), (OK, 20));
        assert_eq!(memory.read_once::<20>(0), expected);
        assert_eq!(memory.read_once::<4>(20), [0xee; 4]);
    }
    assert_eq!(identify("disk", &[memory.slice(0, 19)]), (IO_ERROR, 0));
}
