//! Tests of the formats of Linux's tools and of clouds, on small handwritten files.

use super::{bad, read_text, skipping};
use crate::trace::{Format, Op, Options, Place, Record, Took, Trace, TraceError, read};
use tidegate_core::time::Nanos;

const DUMP: &str = include_str!("../../../testdata/dump.blkparse");
const IOLOG: &str = include_str!("../../../testdata/run.iolog");
const BIOSNOOP: &str = include_str!("../../../testdata/biosnoop.txt");
const ALIBABA: &str = "419,W,8792731648,16384,1577808144360767\n\
                       725,r,59110326272,360448,1577808144360813\n";
const TENCENT: &str = "1538323200,12910952,128,0,1063\n1538323201,6338688,8,1,1627\n";

/// Request in terms that a test can write in one line.
fn record(at: u64, disk: u32, op: Op, offset: u64, len: u32, took: Option<u64>) -> Record {
    Record {
        at: Nanos(at),
        disk,
        op,
        offset,
        len,
        fua: false,
        took: took.map_or(Took::UNKNOWN, |took| Took::new(Nanos(took))),
    }
}

fn whole(text: &str, format: Format) -> Trace {
    let trace = read_text(text).unwrap_or_else(|error| panic!("{format}: {error}"));
    assert_eq!(trace.format, format);
    trace
}

#[test]
fn a_blkparse_dump_gives_bios_with_their_ends() {
    let trace = whole(DUMP, Format::Blkparse);
    assert_eq!(trace.disks, ["8,0", "8,16"]);
    assert_eq!(
        trace.records,
        [
            // Merged into one request, so both end with it; the requeue changes nothing.
            record(1_829, 0, Op::Write, 2048 * 512, 4096, Some(1_002_171)),
            record(4_000, 0, Op::Write, 2056 * 512, 4096, Some(1_000_000)),
            // Split into two requests, and ended by the later one.
            record(10_000, 1, Op::Read, 512 * 512, 16_384, Some(3_000_000)),
            // Not complete within the dump.
            record(4_000_000, 0, Op::Discard, 4096 * 512, 1 << 20, None),
        ]
    );
    // The flush, and the end of a read that came before the dump.
    assert_eq!((trace.others, trace.out_of_order), (2, 0));
}

#[test]
fn a_dump_without_arrivals_counts_from_the_issue() {
    let issued: String = (DUMP.lines())
        .filter(|line| line.split_whitespace().nth(5) != Some("Q"))
        .map(|line| format!("{line}\n"))
        .collect();
    let trace = whole(&issued, Format::Blkparse);
    let found: Vec<_> = (trace.records.iter())
        .map(|it| (it.at.0, it.offset / 512, it.len / 512))
        .collect();
    // `G` has the first bio alone; the rest of the merged request has no event of its own.
    assert_eq!(
        found,
        [(2_197, 2048, 8), (12_000, 512, 16), (13_000, 528, 16)]
    );
}

#[test]
fn equal_outstanding_bios_end_one_after_the_other() {
    let text = "8,0 0 1 0.000000001 1 Q R 8 + 8 [a]\n\
                8,0 0 2 0.000000002 1 Q R 8 + 8 [b]\n\
                8,0 0 3 0.000000005 0 C R 8 + 8 [0]\n\
                8,0 0 4 0.000000009 0 C R 8 + 8 [0]\n";
    let trace = whole(text, Format::Blkparse);
    let took: Vec<_> = trace.records.iter().map(|it| it.took.get()).collect();
    assert_eq!(took, [Some(Nanos(4)), Some(Nanos(7))]);
}

/// A request that never ends must not hold those behind it in memory.
#[test]
fn requests_without_an_end_are_returned_all_the_same() {
    let lines = (0..40_000u64).map(|n| format!("8,0 0 {n} 0.{n:09} 1 Q R {} + 8 [a]\n", n * 8));
    let trace = whole(&lines.collect::<String>(), Format::Blkparse);
    assert_eq!(trace.records.len(), 40_000);
    assert!(trace.records.iter().all(|it| it.took == Took::UNKNOWN));
    assert!(trace.records.is_sorted_by_key(|it| it.offset));
}

#[test]
fn fio_logs_of_both_versions_have_times_in_microseconds() {
    let trace = whole(IOLOG, Format::Iolog);
    assert_eq!(trace.disks, ["/tmp/f"]);
    assert_eq!(trace.others, 1);
    assert_eq!(
        trace.records,
        [
            record(134_000, 0, Op::Read, 0, 4096, None),
            record(379_000, 0, Op::Write, 45_056, 8192, None),
            record(539_000, 0, Op::Discard, 28_672, 4096, None),
        ]
    );
    let text = "fio version 2 iolog\n/a add\n/a open\n/a read 0 512\n/a wait 100 0\n\
                /a datasync 0 0\n/a write 512 1024\n/b wait 50 0\n/a read 0 512\n";
    let trace = whole(text, Format::Iolog);
    let times: Vec<_> = trace.records.iter().map(|it| it.at.0).collect();
    assert_eq!(times, [0, 100_000, 150_000]);
    assert_eq!((trace.others, trace.disks), (1, vec!["/a".to_owned()]));
}

#[test]
fn biosnoop_prints_ends_from_which_arrivals_are_counted_back() {
    let trace = whole(BIOSNOOP, Format::Biosnoop);
    assert_eq!(trace.disks, ["vda", "vdb"]);
    let hour = 3_600_000_000_000;
    assert_eq!(
        trace.records,
        [
            record(hour - 510_000, 0, Op::Write, 1 << 20, 8192, Some(510_000)),
            record(hour + 20_000, 1, Op::Read, 2 << 20, 4096, Some(80_000)),
        ]
    );
    assert_eq!(trace.others, 1);
    // Without the column QUE(ms), and without a header if the format is given.
    let text = "1.5 dd 7 sda R 0 512 250.125\n";
    let trace = skipping(text.as_bytes(), Format::Biosnoop).expect("one request");
    let expected = record(hour + 1_249_875_000, 0, Op::Read, 0, 512, Some(250_125_000));
    assert_eq!(trace.records, [expected]);
}

#[test]
fn traces_of_clouds_are_told_apart_by_their_columns() {
    for text in [
        ALIBABA.to_owned(),
        format!("device_id,opcode,offset,length,timestamp\n{ALIBABA}"),
    ] {
        let trace = whole(&text, Format::Alibaba);
        assert_eq!(trace.disks, ["419", "725"]);
        let first = 1_577_808_144_360_767_000;
        assert_eq!(
            trace.records,
            [
                record(first, 0, Op::Write, 8_792_731_648, 16_384, None),
                record(first + 46_000, 1, Op::Read, 59_110_326_272, 360_448, None),
            ]
        );
    }
    for text in [
        TENCENT.to_owned(),
        format!("Timestamp,Offset,Size,IOType,VolumeID\n{TENCENT}"),
    ] {
        let trace = whole(&text, Format::Tencent);
        assert_eq!(trace.disks, ["1063", "1627"]);
        let first = 1_538_323_200_000_000_000;
        assert_eq!(
            trace.records,
            [
                record(first, 0, Op::Read, 12_910_952 * 512, 65_536, None),
                record(
                    first + 1_000_000_000,
                    1,
                    Op::Write,
                    6_338_688 * 512,
                    4096,
                    None
                ),
            ]
        );
    }
}

#[test]
fn one_disk_of_many_is_read_and_others_are_named() {
    let only = |disk: &str| {
        let options = Options {
            disk: Some(disk.to_owned()),
            ..Options::default()
        };
        read(DUMP.as_bytes(), &options)
    };
    let trace = only("8,16").expect("it has a request");
    assert_eq!(
        (&trace.disks[..], trace.records.len()),
        (&["8,16".to_owned()][..], 1)
    );
    assert_eq!(trace.records[0].disk, 0);
    let none = only("8,32").expect_err("there is no such disk");
    assert_eq!(
        none.to_string(),
        "no request of the disk \"8,32\" in this trace, which has: 8,0, 8,16"
    );
}

#[test]
fn more_disks_than_any_trace_has_are_refused() {
    let lines = (0..65_537).map(|disk| format!("{disk},R,0,512,1\n"));
    let (place, what) = bad(&lines.collect::<String>(), Format::Alibaba);
    assert_eq!(place, Place::Line(65_537));
    assert!(what.contains("more than 65536"), "{what}");
    let (_, what) = bad(&format!("{},R,0,512,1\n", "v".repeat(300)), Format::Alibaba);
    assert!(what.contains("more than 256 bytes"), "{what}");
}

/// Format with a right first line, and wrong lines with a part of their messages.
type Case = (
    Format,
    &'static str,
    &'static [(&'static str, &'static str)],
);

const WRONG: [Case; 5] = [
    (
        Format::Blkparse,
        "8,0 0 1 0.1 1 Q R 8 + 8 [a]",
        &[
            ("8,0 0 1 0.1", "4 words"),
            ("8.0 0 1 0.1 1 Q R 8 + 8 [a]", "device"),
            ("8,0 x 1 0.1 1 Q R 8 + 8 [a]", "CPU"),
            ("8,0 0 x 0.1 1 Q R 8 + 8 [a]", "sequence number"),
            ("8,0 0 1 0,1 1 Q R 8 + 8 [a]", "time"),
            ("8,0 0 1 0.1 x Q R 8 + 8 [a]", "process"),
            ("8,0 0 1 0.1 1 Z R 8 + 8 [a]", "action \"Z\""),
            ("8,0 0 1 0.1 1 Q", "no operation"),
            ("8,0 0 1 0.1 1 Q Y 8 + 8 [a]", "operation \"Y\""),
            ("8,0 0 1 0.1 1 Q R -8 + 8 [a]", "sector"),
            ("8,0 0 1 0.1 1 Q R 8 + b [a]", "sectors"),
            ("8,0 0 1 0.1 1 Q R 8 + 4194304 [a]", "more than 1 GiB"),
            (
                "8,0 0 1 0.1 1 Q R 18014398509481983 + 8 [a]",
                "beyond any disk",
            ),
        ],
    ),
    (
        Format::Iolog,
        "fio version 3 iolog",
        &[
            ("1 /a", "2 words, expected 3 or 5"),
            ("x /a read 0 512", "time"),
            ("1 /a wait 5 0", "wait"),
            ("1 /a erase 0 512", "action \"erase\""),
            ("1 /a read b 512", "offset"),
            ("1 /a read 0 b", "length"),
            ("1 /a read 0 0", "no bytes"),
            ("99999999999999999999 /a read 0 1", "time"),
            ("18446744073709551615 /a read 0 1", "584 years"),
        ],
    ),
    (
        Format::Biosnoop,
        "TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)",
        &[
            ("0.1 a 1 vda R 0 512", "7 words"),
            ("x a 1 vda R 0 512 0.1", "TIME(s)"),
            ("0.1 a 1 vda Q 0 512 0.1", "operation \"Q\""),
            ("0.1 a 1 vda R -1 512 0.1", "SECTOR"),
            ("0.1 a 1 vda R 0 x 0.1", "BYTES"),
            ("0.1 a 1 vda R 0 512 x", "LAT(ms)"),
            ("0.1 a 1 vda R 0 512 9999999999.0", "more than an hour"),
        ],
    ),
    (
        Format::Alibaba,
        "1,R,0,512,1",
        &[
            ("1,R,0,512", "4 fields, expected 5"),
            (",R,0,512,1", "no device_id"),
            ("1,T,0,512,1", "opcode \"T\""),
            ("1,R,x,512,1", "offset"),
            ("1,R,0,x,1", "length"),
            ("1,R,0,512,x", "timestamp"),
            ("1,R,0,512,18446744073709551615", "584 years"),
        ],
    ),
    (
        Format::Tencent,
        "1,0,1,0,7",
        &[
            ("1,0,1,0", "4 fields, expected 5"),
            ("x,0,1,0,7", "timestamp"),
            ("1,x,1,0,7", "offset"),
            ("1,0,x,0,7", "size"),
            ("1,0,1,2,7", "I/O type"),
            ("1,0,1,0,v", "volume"),
            ("1,36028797018963968,1,0,7", "beyond any disk"),
        ],
    ),
];

#[test]
fn mistakes_in_every_format_are_named_with_their_line() {
    for (format, first, lines) in WRONG {
        for (line, what) in lines {
            let (place, found) = bad(&format!("{first}\n{line}\n"), format);
            assert_eq!(place, Place::Line(2), "{format}: {line}");
            assert!(found.contains(what), "{format}: {line}: {found}");
        }
    }
    let (place, what) = bad("fio version 1 iolog\n", Format::Iolog);
    assert_eq!(place, Place::Line(1));
    assert!(what.contains("expected \"fio version 2 iolog\""), "{what}");
}

#[test]
fn a_wrong_first_line_of_a_log_may_be_skipped() {
    let text = "an odd line\n5 /a read 0 512\n";
    let trace = skipping(text.as_bytes(), Format::Iolog).expect("one request");
    assert_eq!((trace.records.len(), trace.skipped), (1, 1));
    let none = read(&b"fio version 3 iolog\n1 /a add\n"[..], &Options::default());
    assert!(matches!(none, Err(TraceError::Empty { skipped: 0, .. })));
}

/// Recording of three requests and a flush, of two VMs, with `dropped` requests missing.
fn recording(dropped: u64) -> Vec<u8> {
    use tidegate_recording::{DiskFacts, Encoder, Header, Request, VmFacts};
    let vm = |number: u32, name: &str, disk: &str| VmFacts {
        number,
        name: name.to_owned(),
        disks: vec![DiskFacts {
            number,
            name: disk.to_owned(),
            size_bytes: 1 << 30,
            at: 0,
        }],
        ..VmFacts::default()
    };
    let header = Header {
        vms: vec![vm(0, "oltp", "oltp"), vm(1, "dss", "logs")],
        ..Header::default()
    };
    let request = |disk, op, offset, [arrived, done]: [u64; 2]| Request {
        disk,
        op,
        fua: op == Op::Write,
        keep_allocated: false,
        outcome: Ok(()),
        offset,
        len: if op == Op::Flush { 0 } else { 4096 },
        arrived: Nanos(arrived),
        admitted: Nanos(arrived),
        sent: Nanos(arrived),
        done: Nanos(done),
    };
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&header, &mut bytes);
    encoder.push(&request(1, Op::Read, 8192, [20, 30]), &mut bytes);
    encoder.push(&request(0, Op::Write, 0, [10, 40]), &mut bytes);
    encoder.drop_requests(dropped, &mut bytes);
    encoder.push(&request(0, Op::Flush, 0, [45, 50]), &mut bytes);
    encoder.push(&request(0, Op::Discard, 4096, [50, 50]), &mut bytes);
    encoder.end(Nanos(60), &mut bytes);
    bytes
}

#[test]
fn a_recording_gives_its_requests_in_the_order_of_arrival() {
    let trace = read(recording(0).as_slice(), &Options::default()).expect("whole");
    assert_eq!(trace.format, Format::Recording);
    // Disks are in the order of the file, in which requests stand as they ended.
    assert_eq!(trace.disks, ["dss/logs", "oltp"]);
    let expected = [
        Record {
            fua: true,
            ..record(10, 1, Op::Write, 0, 4096, Some(30))
        },
        record(20, 0, Op::Read, 8192, 4096, Some(10)),
        record(50, 1, Op::Discard, 4096, 4096, Some(0)),
    ];
    assert_eq!(trace.records, expected);
    assert_eq!((trace.others, trace.out_of_order), (1, 1));
}

#[test]
fn a_gap_of_a_recording_is_a_bad_record() {
    let bytes = recording(5);
    let Err(TraceError::Bad(gap)) = read(bytes.as_slice(), &Options::default()) else {
        panic!("a gap")
    };
    assert_eq!(gap.place, Place::Request(3));
    assert_eq!(gap.what, "5 requests were not recorded");
    let lenient = Options {
        skip_bad: true,
        ..Options::default()
    };
    let trace = read(bytes.as_slice(), &lenient).expect("without the gap");
    assert_eq!((trace.records.len(), trace.skipped), (3, 1));
    // A header that is damaged is the reason, not a format that is unknown.
    let cut = read(&bytes[..40], &Options::default()).map(drop);
    let refused = cut.expect_err("cut off").to_string();
    assert!(refused.contains("header of the recording"), "{refused}");
}
