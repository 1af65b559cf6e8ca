//! Whole files: sections, what is passed over, and what is wrong where.

use super::*;

#[test]
fn a_global_section_holds_for_the_jobs_after_it() {
    let text = "[early]\n[global]\nbs=8k\nrw=write\n[a]\n[b]\nbs=16k\n\
                [global]\nbs=32k\n[c]\nrw=read\n";
    let file = parse(text, "f", false).unwrap();
    let workloads = file.sections.iter().map(|section| {
        let workload = section.workload(GIB).unwrap();
        (workload.name, workload.sizes[1].largest(), workload.rw.mix)
    });
    let expected = [
        ("early", 4096, Mix::Read),
        ("a", 8192, Mix::Write),
        ("b", 16384, Mix::Write),
        ("c", 32768, Mix::Read),
    ];
    let expected = expected.map(|(name, bytes, mix)| (name.to_owned(), bytes, mix));
    assert!(workloads.eq(expected));
}

#[test]
fn a_name_that_begins_with_global_is_global_as_in_fio() {
    let file = parse("[globals]\nbs=8k\n[a]\n", "f", false).unwrap();
    assert_eq!(file.sections.len(), 1);
    assert_eq!(
        file.sections[0].workload(GIB).unwrap().sizes[0].single(),
        Some(8192)
    );
    assert!(file.notes[0].what.contains("counts as [global]"));
}

#[test]
fn a_job_is_called_by_its_name_and_a_section_by_its_header() {
    let file = parse("[a]\nname=b\ndescription=costs $5\n", "f", false).unwrap();
    let section = &file.sections[0];
    assert_eq!((section.name.as_str(), section.line), ("a", 1));
    assert_eq!(section.workload(GIB).unwrap().name, "b");
    assert_eq!(section.description.as_deref(), Some("costs $5"));
}

#[test]
fn the_last_word_counts() {
    assert_eq!(workload("bs=4k | bs=8k").sizes[0].single(), Some(8192));
    assert_eq!(workload("rw=write | readwrite=trim").rw.mix, Mix::Trim);
}

#[test]
fn kb_base_holds_for_its_whole_section() {
    assert_eq!(
        workload("size=512k | kb_base=1000 | bs=512").size,
        Some(512_000)
    );
    assert_eq!(workload("kb_base=1024 | size=512k").size, Some(524_288));
    all_wrong(&["kb_base=10"]);
}

#[test]
fn what_only_concerns_fio_is_passed_over_with_the_reason() {
    let lines = "direct=1 | filename=/dev/sd${X} | group_reporting | ioengine=libaio | thread";
    let notes = notes(lines);
    assert_eq!(notes.len(), 5, "{notes:?}");
    assert_eq!(
        notes[0],
        "note: f.fio:2: [job] direct: ignored: requests go straight to the disk; the guest's \
         page cache is not simulated"
    );
}

#[test]
fn everything_on_the_list_of_the_ignored_is_passed_over() {
    for (why, names) in option_list::IGNORED {
        for name in *names {
            let notes = notes(&format!("{name}=1"));
            assert!(
                notes.len() == 1 && notes[0].contains(why),
                "{name}: {notes:?}"
            );
        }
    }
}

#[test]
fn everything_on_the_list_of_the_refused_is_refused_unless_it_asks_for_nothing() {
    for (why, harmless, names) in option_list::REFUSED {
        for name in *names {
            let (option, what, _) = only_error(&format!("{name}=17"));
            assert_eq!(
                (option.as_str(), what),
                (*name, format!("not supported: {why}"))
            );
            for value in *harmless {
                assert!(
                    notes(&format!("{name}={value}")).is_empty(),
                    "{name}={value}"
                );
            }
        }
    }
}

#[test]
fn options_that_nobody_knows_are_named_with_their_like() {
    let (option, what, help) = only_error("iodpeth=4");
    assert_eq!(
        (option.as_str(), what.as_str()),
        ("iodpeth", "unknown option")
    );
    assert_eq!(help, "did you mean \"iodepth\"?");
    assert_eq!(only_error("colour=blue").2, "");
}

#[test]
fn a_lenient_reader_passes_over_what_it_cannot_do() {
    let text = "[job]\ncolour=blue\nverify=md5\nbs=8k\n";
    let file = parse(text, "f", true).unwrap();
    let warnings: Vec<_> = file.notes.iter().map(|n| (n.kind, n.place.line)).collect();
    assert_eq!(warnings, [(Kind::Warning, 2), (Kind::Warning, 3)]);
    assert_eq!(
        file.sections[0].workload(GIB).unwrap().sizes[0].single(),
        Some(8192)
    );
    assert!(parse("[job]\nbs=blue\n", "f", true).is_err());
}

#[test]
fn variables_and_arithmetic_are_refused() {
    for lines in [
        "bs=${BS}",
        "name=$jobname",
        "numjobs=$ncpus",
        "size=$pagesize*4",
    ] {
        assert!(
            only_error(lines).1.starts_with("variables such as"),
            "{lines}"
        );
    }
    assert_eq!(only_error("size=(4*1024)").2, "write the result");
}

#[test]
fn two_sections_of_one_name_are_refused() {
    let errors = parse("[a]\n[b]\n[a]\n", "f", false).unwrap_err().0;
    assert_eq!(errors[0].what, "the section at line 1 has the same name");
    assert_eq!((errors[0].place.line, errors[0].place.column), (3, 2));
}

#[test]
fn a_file_without_a_job_is_refused() {
    for text in ["", "# nothing\n", "[global]\nbs=4k\n"] {
        let errors = parse(text, "f", false).unwrap_err().0;
        assert_eq!(errors[0].what, "no job section in this file");
    }
}

#[test]
fn all_mistakes_are_reported_together_each_once_at_its_place() {
    let text = "[global]\nbs=4x\nbanana=1\n[a]\nrw=reed\n[b]\niodepth=0 # none\n";
    let errors = parse(text, "jobs/f.fio", false).unwrap_err();
    let places: Vec<_> = (errors.0.iter())
        .map(|error| {
            (
                error.place.line,
                error.section.as_str(),
                error.option.as_str(),
            )
        })
        .collect();
    assert_eq!(
        places,
        [
            (2, "global", "bs"),
            (3, "global", "banana"),
            (5, "a", "rw"),
            (7, "b", "iodepth")
        ]
    );
    let shown = errors.to_string();
    let last = "error: [b] iodepth: 0 is out of range\n  --> jobs/f.fio:7:9\n  |\n\
                7 | iodepth=0 # none\n  |         ^\n  help: 1 to 65536";
    assert!(shown.ends_with(last), "{shown}");
}
