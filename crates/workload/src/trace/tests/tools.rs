//! Tests of reading in order, writing, changing and checking traces.

use super::read_text;
use crate::replay::Factor;
use crate::trace::{
    Cut, Format, InOrder, Lint, LintFindings, LintKind, LintOptions, Losses, Op, Options, Place,
    Reader, Record, Sample, SampleBy, Scale, Took, Trace, TraceError, Writer, read,
};
use proptest::prelude::*;
use tidegate_core::time::Nanos;

fn request(at: u64, op: Op, offset: u64, len: u32) -> Record {
    Record {
        at: Nanos(at),
        disk: 0,
        op,
        offset,
        len,
        fua: false,
        took: Took::UNKNOWN,
    }
}

fn written(records: &[Record], names: &[&str], format: Format) -> (String, Losses) {
    let mut writer = Writer::new(Vec::new(), format).expect("memory takes it");
    for record in records {
        let name = names[record.disk as usize];
        writer.write(record, name).expect("memory takes it");
    }
    let (bytes, losses) = writer.finish().expect("memory takes it");
    (String::from_utf8(bytes).expect("text"), losses)
}

fn lint(text: &str, options: LintOptions) -> Vec<LintFindings> {
    let lenient = Options {
        skip_bad: true,
        ..Options::default()
    };
    let mut reader = Reader::new(text.as_bytes(), &lenient).expect("its format is known");
    let mut lint = Lint::new(reader.format(), options);
    while let Some(record) = reader.next().expect("read") {
        lint.check(&record, reader.place());
    }
    let (tally, _) = reader.finish().expect("it has requests");
    lint.finish(&tally)
}

const LINT: LintOptions = LintOptions {
    disk_size: Some(1 << 20),
    block_size: 4096,
    gap: Nanos::from_secs(60),
};

#[test]
fn requests_are_put_in_order_within_a_window_only() {
    let text = "3 0 0 8 1\n1 0 8 8 1\n2 0 16 8 1\n5 0 24 8 1\n4 0 32 8 1\n";
    let order = |window| {
        let reader = Reader::new(text.as_bytes(), &Options::default()).expect("known");
        let mut reader = InOrder::with_window(reader, window);
        let mut found = Vec::new();
        while let Some(record) = reader.next()? {
            found.push((record.at.0, reader.place()));
        }
        Ok::<_, TraceError>(found)
    };
    let lines = [(1, 2), (2, 3), (3, 1), (4, 5), (5, 4)];
    let expected = lines.map(|(at, line)| (at, Place::Line(line)));
    assert_eq!(order(2).expect("the window is enough"), expected);
    let error = order(1).expect_err("line 2 is one behind");
    assert!(
        matches!(
            error,
            TraceError::TooLate {
                place: Place::Line(2),
                by: Nanos(2)
            }
        ),
        "{error}"
    );
    assert!(
        error.to_string().contains("sort the trace by time"),
        "{error}"
    );
}

#[test]
fn every_format_that_is_written_is_read_back() {
    let records = [
        Record {
            took: Took::new(Nanos(1_500)),
            ..request(7_000_000, Op::Read, 4096, 8192)
        },
        Record {
            disk: 1,
            ..request(7_001_000, Op::Write, 0, 512)
        },
        Record {
            disk: 2,
            ..request(9_000_000, Op::Discard, 1 << 20, 1 << 16)
        },
    ];
    let names = ["usr.3", "8,16", "my disk"];
    let (text, losses) = written(&records, &names, Format::Msr);
    assert_eq!(
        text,
        "70000,usr,3,Read,4096,8192,15\n70010,8_16,1,Write,0,512,0\n"
    );
    assert_eq!(
        losses,
        Losses {
            discards: 1,
            ..Losses::default()
        }
    );
    let back = read_text(&text).expect("it is right");
    assert_eq!(back.records, records[..2]);

    let (text, _) = written(&records, &names, Format::DiskSim);
    assert_eq!(text, "7000000 0 8 16 1\n7001000 1 0 1 0\n");
    let (text, _) = written(&records, &names, Format::Alibaba);
    assert_eq!(text, "usr.3,R,4096,8192,7000\n8_16,W,0,512,7001\n");
    let (text, losses) = written(&records, &names, Format::Iolog);
    assert_eq!(
        text,
        "fio version 3 iolog\n\
         0 usr.3 add\n0 usr.3 open\n0 usr.3 read 4096 8192\n\
         1 8,16 add\n1 8,16 open\n1 8,16 write 0 512\n"
            .replace("8,16", "8_16")
            + "2000 my_disk add\n2000 my_disk open\n2000 my_disk trim 1048576 65536\n\
               2000 usr.3 close\n2000 8_16 close\n2000 my_disk close\n"
    );
    assert_eq!(losses, Losses::default());
    let back = read_text(&text).expect("it is right");
    assert_eq!((back.format, back.records.len()), (Format::Iolog, 3));
}

#[test]
fn what_a_format_cannot_say_is_counted() {
    let odd = [request(1_234, Op::Read, 100, 600)];
    let (text, losses) = written(&odd, &["d"], Format::DiskSim);
    assert_eq!(text, "1234 0 0 2 1\n");
    assert_eq!((losses.sectors, losses.times), (1, 0));
    let (text, losses) = written(&odd, &["d"], Format::Msr);
    assert_eq!(text, "12,d,0,Read,100,600,0\n");
    assert_eq!((losses.sectors, losses.times), (0, 1));
}

#[test]
fn disks_keep_apart_when_their_names_become_equal() {
    let two = [
        request(0, Op::Read, 0, 512),
        Record {
            disk: 1,
            ..request(0, Op::Read, 0, 512)
        },
    ];
    for format in Format::WRITABLE {
        let (text, _) = written(&two, &["a b", "a,b"], format);
        let back = read_text(&text).unwrap_or_else(|error| panic!("{format}: {error}"));
        assert_eq!(back.disks.len(), 2, "{format}: {text}");
    }
    // The second disk is named by its index, which the first one has for a name.
    let (text, _) = written(&two, &["1", "b"], Format::DiskSim);
    assert_eq!(read_text(&text).expect("right").disks.len(), 2, "{text}");
}

#[test]
fn a_cut_keeps_times_and_operations() {
    let cut = Cut {
        from: Nanos(10),
        to: Some(Nanos(20)),
        op: Some(Op::Read),
    };
    let read = request(0, Op::Read, 0, 512);
    let kept: Vec<u64> = (0..30).filter(|&at| cut.keeps(Nanos(at), &read)).collect();
    assert_eq!(kept, (10..20).collect::<Vec<_>>());
    assert!(!cut.keeps(Nanos(10), &request(0, Op::Write, 0, 512)));
    assert!(cut.is_over(Nanos(20)) && !cut.is_over(Nanos(19)));
    assert!(Cut::default().keeps(Nanos(u64::MAX), &read));
}

#[test]
fn times_and_sizes_are_multiplied_from_the_first_request_on() {
    let mut scale = Scale::new(Factor::new(0.5), Factor::new(2.5), None);
    let mut apply = |record: Record| scale.apply(&record);
    let first = apply(request(1_000, Op::Read, 1024, 512)).expect("it fits");
    assert_eq!(first, Some(request(1_000, Op::Read, 2560, 1536)));
    let second = apply(request(1_100, Op::Write, 512, 1024)).expect("it fits");
    assert_eq!(second, Some(request(1_050, Op::Write, 1024, 2560)));
    let large = apply(request(1_200, Op::Read, 0, 1 << 30)).expect_err("2.5 GiB");
    assert!(large.contains("larger than 1 GiB"), "{large}");
    let far = apply(request(1_200, Op::Read, i64::MAX as u64 - 512, 512)).expect_err("far");
    assert!(far.contains("beyond any disk"), "{far}");
}

#[test]
fn a_sample_keeps_whole_regions_or_every_nth_request() {
    let sample = |by| Scale::new(Factor::ONE, Factor::ONE, Some(Sample::new(1, 4, by)));
    let kept = |mut scale: Scale, records: &[Record]| -> Vec<Record> {
        let apply = |record| scale.apply(record).expect("it fits");
        records.iter().filter_map(apply).collect()
    };
    let all: Vec<Record> = (0..4000)
        .map(|n| request(n, Op::Read, n % 400 * 65_536, 4096))
        .collect();
    let every = kept(sample(SampleBy::Request), &all);
    assert!(every.iter().zip(0..).all(|(it, n)| it.at.0 == n * 4));
    assert_eq!(every.len(), 1000);
    let region = 65_536;
    let hot = kept(sample(SampleBy::Region(region)), &all);
    let regions: std::collections::BTreeSet<u64> =
        hot.iter().map(|it| it.offset / region).collect();
    // Each of the 400 regions has ten requests, all of which are kept or none.
    assert_eq!(hot.len(), regions.len() * 10);
    assert!(
        (70..=130).contains(&regions.len()),
        "{} of 400",
        regions.len()
    );
    assert_eq!(kept(sample(SampleBy::Region(region)), &all), hot);
}

#[test]
fn lint_counts_each_kind_of_finding_with_its_first_places() {
    let text = "0 0 0 8 1\n\
                5 0 8 8 1\n\
                5 0 8 8 1\n\
                4 0 16 8 1\n\
                5 0 0 0 1\n\
                6 0 2040 16 0\n\
                7 0 3 8 0\n\
                nonsense\n\
                100000000000 0 8 8 1\n";
    let found = lint(text, LINT);
    let counts: Vec<_> = found.iter().map(|it| (it.kind, it.count)).collect();
    assert_eq!(
        counts,
        [
            (LintKind::Invalid, 1),
            (LintKind::Empty, 1),
            (LintKind::Backwards, 1),
            (LintKind::BeyondDisk, 1),
            (LintKind::Unaligned, 1),
            (LintKind::Duplicate, 1),
            (LintKind::Gap, 1),
        ]
    );
    let places: Vec<_> = found.iter().map(|it| it.examples[0].0).collect();
    let lines = [8, 5, 4, 6, 7, 3, 9].map(Place::Line);
    assert_eq!(places, lines);
    let many = "0 0 1 1 1\n".repeat(30);
    let found = lint(&many, LINT);
    let duplicates = &found[LintKind::Duplicate as usize];
    assert_eq!((duplicates.count, duplicates.examples.len()), (29, 5));
}

#[test]
fn a_clean_trace_has_no_findings() {
    let found = lint("0 0 0 8 1\n5 0 8 8 1\n5 1 8 8 1\n", LINT);
    assert!(
        found
            .iter()
            .all(|it| it.count == 0 && it.examples.is_empty())
    );
    // Ends of biosnoop are in order where arrivals are not.
    let text = "TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)\n\
                1.0 a 1 sda R 0 4096 1.0\n1.1 a 1 sda R 8 4096 900.0\n";
    let found = lint(text, LINT);
    assert_eq!(found[LintKind::Backwards as usize].count, 0);
}

proptest! {
    /// Streams and whole reads agree, and what is written is read back.
    #[test]
    fn a_stream_in_order_is_the_whole_trace(
        records in prop::collection::vec(
            (0u64..1 << 20, 0u32..4, any::<bool>(), 0u64..1 << 30, 1u32..2048),
            1..80,
        ),
        format in prop::sample::select(Format::WRITABLE.to_vec()),
    ) {
        let line = |&(at, disk, read, sector, sectors): &(u64, u32, bool, u64, u32)| {
            format!("{} {disk} {sector} {sectors} {}\n", at * 1000, u8::from(read))
        };
        let text: String = records.iter().map(line).collect();
        let whole: Trace = read_text(&text).expect("all are good");
        let reader = Reader::new(text.as_bytes(), &Options::default()).expect("known");
        let mut stream = InOrder::new(reader);
        let mut writer = Writer::new(Vec::new(), format).expect("memory");
        let mut all = Vec::new();
        while let Some(record) = stream.next().expect("all are good") {
            let name = stream.reader().disks()[record.disk as usize].clone();
            writer.write(&record, &name).expect("memory");
            all.push(record);
        }
        prop_assert_eq!(&all, &whole.records);
        let (bytes, losses) = writer.finish().expect("memory");
        prop_assert_eq!(losses, Losses::default());
        let back = read(&bytes[..], &Options::default()).expect("what was written is right");
        prop_assert_eq!(back.format, format);
        let first = |trace: &Trace| trace.records[0].at;
        let parts = |trace: &Trace| -> Vec<_> {
            let first = first(trace);
            trace.records.iter().map(|it| (it.at.since(first), it.op, it.offset, it.len)).collect()
        };
        prop_assert_eq!(parts(&back), parts(&whole));
    }
}
