//! Tests of the trace reader: formats, mistakes, order and figures.

mod formats;
mod tools;

use super::reader::BAD_SHOWN;
use super::*;
use proptest::prelude::*;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

fn read_text(text: &str) -> Result<Trace, TraceError> {
    read(text.as_bytes(), &Options::default())
}

fn skipping(bytes: &[u8], format: Format) -> Result<Trace, TraceError> {
    let options = Options {
        format: Some(format),
        skip_bad: true,
        disk: None,
    };
    read(bytes, &options)
}

fn bad(text: &str, format: Format) -> (Place, String) {
    let options = Options {
        format: Some(format),
        ..Options::default()
    };
    match read(text.as_bytes(), &options) {
        Err(TraceError::Bad(bad)) => (bad.place, bad.what),
        other => panic!("{text:?} gave {other:?}"),
    }
}

fn vscsi(bytes: u32, command: u16, version: u16, block: u64, micros: u64) -> Vec<u8> {
    let mut record = vec![7, 0, 0, 0];
    record.extend(bytes.to_le_bytes());
    record.extend(1u32.to_le_bytes());
    record.extend(command.to_le_bytes());
    record.extend(version.to_le_bytes());
    record.extend(block.to_le_bytes());
    record.extend(micros.to_le_bytes());
    record
}

#[test]
fn each_format_is_known_by_its_beginning() {
    let msr = "128166372003061629,usr,0,Read,7014609920,24576,41286\n\
               128166372016382155,usr,1,Write,2657792,512,1963\n";
    let trace = read_text(msr).expect("two records");
    assert_eq!(trace.format, Format::Msr);
    assert_eq!(trace.disks, ["usr.0", "usr.1"]);
    let first = Record {
        at: Nanos(12_816_637_200_306_162_900),
        disk: 0,
        op: Op::Read,
        offset: 7_014_609_920,
        len: 24_576,
        fua: false,
        took: Took::new(Nanos(4_128_600)),
    };
    assert_eq!(trace.records[0], first);
    assert_eq!(
        (trace.records[1].op, trace.records[1].len),
        (Op::Write, 512)
    );

    let trace = read_text("11413000 3 657728 16 1\n").expect("one record");
    assert_eq!(
        (trace.format, &trace.disks[..]),
        (Format::DiskSim, &["3".to_owned()][..])
    );
    assert_eq!(trace.records[0].offset, 657_728 * 512);
    assert_eq!(trace.records[0].len, 8192);

    let bytes = vscsi(4096, 0x2a, 0x0100, 8, 5);
    let trace = read(&bytes[..], &Options::default()).expect("one record");
    let (at, offset) = (Nanos(5_000), 4096);
    let record = Record {
        at,
        disk: 0,
        op: Op::Write,
        offset,
        len: 4096,
        fua: false,
        took: Took::UNKNOWN,
    };
    assert_eq!((trace.format, trace.records), (Format::Vscsi, vec![record]));

    for unknown in ["", "hello\n", "1 2 3\n", "\0\0\0\0", "{\"a\": 1}\n"] {
        assert!(
            matches!(read_text(unknown), Err(TraceError::Unknown)),
            "{unknown:?}"
        );
    }
}

#[test]
fn columns_named_and_blank_lines_are_no_records() {
    let text = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\r\n\r\n\
                1,a,0,read,0,512,1\r\n  \n2,a,0,WRITE,512,512,1";
    let trace = read_text(text).expect("two records");
    assert_eq!(trace.records.len(), 2);
    assert_eq!(trace.records[1].at, Nanos(200));
    // The name of a column is one only in the first line.
    let (place, _) = bad(&format!("1,a,0,read,0,512,1\n{text}"), Format::Msr);
    assert_eq!(place, Place::Line(2));
}

#[test]
fn bad_records_are_named_with_their_place() {
    let long = "9".repeat(5000);
    for (line, what) in [
        ("1 0 0 16", "4 words"),
        ("1 0 0 16 1 1", "6 words"),
        ("x 0 0 16 1", "arrival time"),
        ("1.5 0 0 16 1", "whole nanoseconds"),
        ("-1 0 0 16 1", "arrival time"),
        ("1 d 0 16 1", "device"),
        ("1 0 s 16 1", "first sector"),
        ("1 0 0 n 1", "sectors"),
        ("1 0 0 0 1", "no bytes"),
        ("1 0 0 16 2", "type"),
        ("1 0 0 4194304 1", "a request of 2 GiB"),
        ("1 0 36028797018963968 16 1", "beyond any disk"),
        ("1 0 18014398509481984 16 1", "beyond any disk"),
        (&long, "more than 4096 bytes"),
    ] {
        let (place, found) = bad(
            &format!("1 0 0 16 1\n\n{line}\n2 0 0 16 1\n"),
            Format::DiskSim,
        );
        assert_eq!(place, Place::Line(3), "{line}");
        assert!(found.contains(what), "{line}: {found}");
    }
    for (line, what) in [
        ("1,a,0,Read,0,512", "6 fields"),
        ("1,a,0,Read,0,512,1,1", "8 fields"),
        ("t,a,0,Read,0,512,1", "timestamp"),
        // Units of 100 ns from 1601 on: 2^64 ns end in the year 2185.
        ("184467440737095517,a,0,Read,0,512,1", "2185"),
        ("1,,0,Read,0,512,1", "host"),
        ("1,a,x,Read,0,512,1", "disk number"),
        ("1,a,0,Trim,0,512,1", "type"),
        ("1,a,0,Read,x,512,1", "offset"),
        ("1,a,0,Read,0,x,1", "size"),
        ("1,a,0,Read,0,512,x", "response time"),
        ("1,a,0,Read,9223372036854775807,512,1", "beyond any disk"),
    ] {
        let (place, found) = bad(&format!("1,a,0,Read,0,512,1\n{line}\n"), Format::Msr);
        assert_eq!(place, Place::Line(2), "{line}");
        assert!(found.contains(what), "{line}: {found}");
    }
    let (place, found) = {
        let bytes = b"1 0 0 16 1\n\xff\xfe 0 0 16 1\n";
        let bad = read(&bytes[..], &Options::default()).expect_err("not text");
        let TraceError::Bad(bad) = bad else {
            panic!("{bad}")
        };
        (bad.place, bad.what)
    };
    assert_eq!((place, found.as_str()), (Place::Line(2), "not UTF-8 text"));
}

#[test]
fn a_binary_record_that_is_bad_or_cut_off_is_named() {
    let good = vscsi(512, 0x28, 0x0100, 0, 1);
    let cases: [(Vec<u8>, &str); 6] = [
        (vscsi(512, 0x00, 0x0100, 0, 1), "SCSI command 0x00"),
        (vscsi(512, 0x28, 0x0200, 0, 1), "version 0x0200"),
        (vscsi(0, 0x28, 0x0100, 0, 1), "no bytes"),
        (vscsi(512, 0x28, 0x0100, u64::MAX, 1), "logical block"),
        (vscsi(512, 0x28, 0x0100, 0, u64::MAX), "time"),
        (good[..31].to_vec(), "cut off after 31 of 32 bytes"),
    ];
    for (record, what) in cases {
        let bytes = [&good[..], &record[..]].concat();
        let found = read(&bytes[..], &Options::default()).expect_err(what);
        let TraceError::Bad(found) = found else {
            panic!("{found}")
        };
        assert_eq!(found.place, Place::Record(2, 32));
        assert!(found.what.contains(what), "{}", found.what);
        let trace = skipping(&bytes, Format::Vscsi).expect("the first is good");
        assert_eq!((trace.records.len(), trace.skipped), (1, 1));
    }
}

#[test]
fn skipped_records_are_counted_and_the_first_of_them_kept() {
    let mut text = "1 0 0 16 1\n".to_owned();
    text.push_str(&"bad\n".repeat(25));
    text.push_str("2 0 0 16 1\n");
    let trace = skipping(text.as_bytes(), Format::DiskSim).expect("two are good");
    assert_eq!(
        (trace.records.len(), trace.skipped, trace.bad.len()),
        (2, 25, BAD_SHOWN)
    );
    assert_eq!(trace.bad[0].place, Place::Line(2));

    let none = skipping(b"bad\n\n", Format::DiskSim).expect_err("nothing is good");
    assert!(
        matches!(
            &none,
            TraceError::Empty {
                skipped: 1,
                first: Some(_)
            }
        ),
        "{none}"
    );
    let none = skipping(b"", Format::Msr).expect_err("nothing is there");
    assert!(matches!(
        none,
        TraceError::Empty {
            skipped: 0,
            first: None
        }
    ));
    let none = skipping(b"Timestamp,Hostname\n", Format::Msr).expect_err("names only");
    assert!(matches!(none, TraceError::Empty { skipped: 0, .. }));
}

#[test]
fn records_out_of_order_are_sorted_and_counted() {
    let trace = read_text("5 0 0 1 1\n3 0 1 1 1\n5 0 2 1 1\n4 0 3 1 0\n").expect("four");
    let order: Vec<_> = trace
        .records
        .iter()
        .map(|r| (r.at.0, r.offset / 512))
        .collect();
    assert_eq!(order, [(3, 1), (4, 3), (5, 0), (5, 2)]);
    assert_eq!(trace.out_of_order, 2);
}

#[test]
fn info_summarises_a_trace() {
    let text = "0 0 0 8 1\n\
                5000000 0 8 8 1\n\
                5000000 1 8 16 0\n\
                2005000000 0 12 8 1\n\
                2006000000 0 20 2 0\n";
    let trace = read_text(text).expect("five");
    let all = info(&trace, None).expect("five");
    assert_eq!((all.requests, all.reads), (5, 3));
    assert_eq!((all.bytes, all.read_bytes), (42 * 512, 24 * 512));
    assert_eq!(all.span, Nanos(2_006_000_000));
    assert_eq!(all.peak_per_s, 3);
    // 8..16 behind 0..8, and 20..22 behind 12..20.
    assert_eq!(all.sequential, 2);
    assert_eq!(all.footprint, (22 + 16) * 512);
    assert_eq!(all.extent, 24 * 512);
    assert_eq!(
        (all.sizes.least, all.sizes.median, all.sizes.most),
        (1024, 4096, 8192)
    );
    assert_eq!(
        all.sizes.commonest[0],
        SizeOf {
            bytes: 4096,
            requests: 3
        }
    );
    let second = Gaps {
        count: 1,
        time: Nanos(2_000_000_000),
    };
    assert_eq!(all.gaps, [second, second, second, Gaps::default()]);

    let one = info(&trace, Some(1)).expect("one of that disk");
    assert_eq!(
        (one.requests, one.footprint, one.span),
        (1, 16 * 512, Nanos::ZERO)
    );
    assert_eq!(info(&trace, Some(2)), None);
}

/// Reads the first records of real traces, unmodified.
#[test]
fn beginnings_of_real_traces_are_read() {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    for (name, format) in [
        ("tpcc.disksim", Format::DiskSim),
        ("websearch.disksim", Format::DiskSim),
        ("vm.vscsi", Format::Vscsi),
    ] {
        let trace = file(&testdata.join(name));
        assert_eq!((trace.format, trace.records.len()), (format, 300), "{name}");
        assert_eq!((trace.skipped, trace.out_of_order), (0, 0), "{name}");
    }
}

/// Reads whole real traces, if they are beside the repository; see `docs/dev/testing.md`.
#[test]
fn whole_real_traces_are_read() {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    if !beside.is_dir() {
        eprintln!("skipped: no traces beside the repository");
        return;
    }
    let web = file(&beside.join("websearch.disksim"));
    let found = info(&web, None).expect("requests");
    assert_eq!((web.records.len(), web.disks.len()), (24_783, 6));
    assert_eq!((found.reads, found.bytes), (WEB.0, WEB.1));
    let tpcc = file(&beside.join("tpcc.disksim"));
    let found = info(&tpcc, None).expect("requests");
    assert_eq!((tpcc.records.len(), tpcc.disks.len()), (6_999, 16));
    assert_eq!((found.reads, found.bytes), (TPCC.0, TPCC.1));
    let vm = file(&beside.join("vm-cloudphysics.vscsi"));
    let found = info(&vm, None).expect("requests");
    assert_eq!((vm.records.len(), vm.disks.len()), (55_918, 1));
    assert_eq!((found.reads, found.bytes), (VM.0, VM.1));
}

/// Numbers of reads and bytes, counted with other tools.
const WEB: (u64, u64) = (24_779, 382_117_888);
const TPCC: (u64, u64) = (4_381, 59_718_656);
const VM: (u64, u64) = (22_327, 2_097_564_672);

fn file(path: &Path) -> Trace {
    let open = File::open(path).expect("it is there");
    let trace = read(BufReader::new(open), &Options::default());
    trace.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        crate::fuzz::traces(&bytes);
        let records = match skipping(&bytes, Format::Vscsi) {
            Ok(trace) => trace.records.len() as u64 + trace.skipped,
            Err(TraceError::Empty { skipped, .. }) => skipped,
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        };
        prop_assert_eq!(records, bytes.len().div_ceil(vscsi::BYTES) as u64);
    }

    /// Lines that are nearly correct.
    #[test]
    fn nearly_right_lines_are_read_or_refused(
        lines in prop::collection::vec(
            prop::collection::vec(
                "[0-9]{1,4}|-1|0|1|1\\.5|a|Read|WRITE|99999999999999999999",
                4..9,
            ),
            1..8,
        ),
        by in prop::sample::select(vec![" ", ",", " , "]),
    ) {
        let lines: Vec<String> = lines.iter().map(|words| words.join(by)).collect();
        crate::fuzz::traces(lines.join("\n").as_bytes());
    }

    #[test]
    fn text_comes_back_as_it_was_written(
        records in prop::collection::vec(
            (0u64..1 << 40, 0u32..9, any::<bool>(), 0u64..1 << 40, 1u32..4096),
            1..60,
        ),
    ) {
        let mut text = String::new();
        for &(at, disk, read, sector, sectors) in &records {
            text.push_str(&format!("{at} {disk} {sector} {sectors} {}\n", u8::from(read)));
        }
        let trace = read_text(&text).expect("all are good");
        let mut sorted = records.clone();
        sorted.sort_by_key(|record| record.0);
        prop_assert_eq!(trace.records.len(), records.len());
        for (record, (at, disk, read, sector, sectors)) in trace.records.iter().zip(sorted) {
            prop_assert_eq!(record.at, Nanos(at));
            prop_assert_eq!(&trace.disks[record.disk as usize], &disk.to_string());
            prop_assert_eq!(record.op == Op::Read, read);
            prop_assert_eq!((record.offset, record.len), (sector * 512, sectors * 512));
        }
        // Each byte of the footprint is counted once, however often it is asked for.
        let found = info(&trace, None).expect("there are some");
        prop_assert!(found.footprint <= found.bytes);
        let mut touched = std::collections::HashSet::new();
        for &(_, disk, _, sector, sectors) in records.iter().take(8) {
            touched.extend((sector..sector + u64::from(sectors)).map(|sector| (disk, sector)));
        }
        prop_assert!(found.footprint >= touched.len() as u64 * 512);
        if records.len() <= 8 {
            prop_assert_eq!(found.footprint, touched.len() as u64 * 512);
        }
    }
}
