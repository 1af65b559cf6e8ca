//! Options as they are typed.

use super::*;

/// The help of a command, such as `vm list`.
fn help(words: &str) -> String {
    let words = format!("tidegate {words} --help");
    let shown = Args::read(words.split(' ')).expect_err("help ends the process");
    assert_eq!(shown.kind(), ErrorKind::DisplayHelp, "{words}");
    shown.to_string()
}

#[test]
fn the_arguments_are_well_formed() {
    command().debug_assert();
}

#[test]
fn help_shows_only_options_that_the_command_makes_something_of() {
    for (words, socket, output, csv) in [
        ("serve x", false, false, false),
        ("init", false, false, false),
        ("doctor", false, true, false),
        ("import libvirt", false, false, false),
        ("vhost-user-blk", false, false, false),
        ("completions", false, false, false),
        ("check", false, true, false),
        ("sim", false, true, true),
        ("compare", false, true, false),
        ("sweep", false, true, true),
        ("sweep merge", false, true, true),
        ("demo", false, true, false),
        ("bench engine", false, true, false),
        ("policy list", false, true, false),
        ("policy show", false, true, false),
        ("policy set", true, true, false),
        ("vm list", true, true, false),
        ("vm set", true, true, false),
        ("vm add", true, true, false),
        ("vm remove", true, true, false),
        ("vm resize", true, true, false),
        ("vm export", true, true, false),
        ("vm import", true, true, false),
        ("export libvirt", true, true, false),
        ("export qemu", true, true, false),
        ("export cloud-hypervisor", true, true, false),
        ("job start", true, true, false),
        ("job list", true, true, false),
        ("device show", true, true, false),
        ("disk fault add", true, true, false),
        ("disk fault list", true, true, false),
        ("disk forget", true, true, false),
        ("stats", true, true, false),
        ("top", true, false, false),
        ("history x", true, true, true),
        ("report", true, false, false),
        ("token add", true, true, false),
        ("profile", false, true, false),
        ("profile show", false, true, false),
    ] {
        let message = help(words);
        for option in [
            "--socket <PATH>",
            "--tcp <ADDRESS>",
            "--token-file <PATH>",
            "--tls-ca <PATH>",
            "--tls-certificate <PATH>",
            "--tls-key <PATH>",
        ] {
            assert_eq!(message.contains(option), socket, "{message}");
        }
        assert_eq!(message.contains("--output"), output, "{message}");
        assert_eq!(message.contains("csv:"), csv, "{message}");
    }
}

/// Long and short help of `command` and of all its subcommands, rendered for a terminal of 80
/// columns.
fn helps(command: &mut clap::Command, texts: &mut Vec<String>) {
    texts.push(command.render_long_help().to_string());
    texts.push(command.render_help().to_string());
    for subcommand in command.get_subcommands_mut() {
        helps(subcommand, texts);
    }
}

#[test]
fn help_of_every_command_fits_a_terminal_of_80_columns() {
    let mut command = command().term_width(80);
    command.build();
    let mut texts = Vec::new();
    helps(&mut command, &mut texts);
    assert!(texts.len() > 100, "{} texts", texts.len());
    for text in texts {
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}\nin\n{text}");
        }
    }
}

#[test]
fn options_of_every_command_may_stand_anywhere() {
    for words in [
        "tidegate --socket /s -o json vm list",
        "tidegate vm list --socket /s -o json",
        "tidegate vm --socket /s list -o json",
        "tidegate -o json check x --socket /s",
        "tidegate policy -o json --socket /s list",
        "tidegate profile x --socket /s -o json",
        "tidegate --socket /s profile show x -o json",
    ] {
        let args = Args::read(words.split(' ')).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(args.global.output, Format::Json, "{words}");
        assert_eq!(args.global.socket, PathBuf::from("/s"), "{words}");
    }
}

#[test]
fn a_daemon_is_served_from_a_file_or_from_disks() {
    let read = |words: &str| Args::read(format!("tidegate serve {words}").split(' '));
    for good in [
        "t.toml",
        "--file a --size 1GiB --weight 3",
        "--file a --file b --read-only",
    ] {
        assert!(read(good).is_ok(), "{good}");
    }
    for bad in [
        "--log info",
        "t.toml --file a",
        "t.toml --size 1GiB",
        "t.toml --print-config",
    ] {
        assert!(read(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_number_below_zero_is_told_what_is_allowed() {
    let whole = "a whole number from 0 to 18446744073709551615";
    for (words, allowed) in [
        ("sim x --seed -1", whole),
        ("sim x --seed 1.5", whole),
        ("sim x --seed 18446744073709551616", whole),
        ("torture --seed -1", whole),
        ("torture --start-seed -1", whole),
        ("stats --follow --count -1", whole),
        ("torture --seeds -1", "from 1 to 1099511627776"),
        ("bench engine --runs -1", "from 1 to 1000"),
        ("bench engine --vms 1,-1", "from 1 to 1000000"),
        ("demo --seconds 3601", "from 8 to 3600"),
        ("sweep x --jobs 1025", "from 1 to 1024"),
        ("vm set a --weight -1", "a whole number from 1 to 10000"),
        ("sweep x --seeds -1", "1..20 (both included)"),
    ] {
        let words = format!("tidegate {words}");
        let message = Args::read(words.split(' ')).expect_err("refused");
        assert!(message.to_string().contains(allowed), "{message}");
    }
}

#[test]
fn options_of_shards_need_their_directory_and_exclude_results_of_the_whole() {
    let read = |words: &str| Args::read(format!("tidegate sweep {words}").split(' '));
    for good in [
        "x --shard 1/2 --out d",
        "x --shard auto --out d --fresh --jobs 2",
        "x --out d",
        "x y --out d --list",
        "x --out d --list=7 y",
        "merge d --report r --per-seed p --results j",
        "x --report r --per-seed p --results j",
    ] {
        if let Err(error) = read(good) {
            panic!("{good}: {error}");
        }
    }
    for bad in [
        "x --shard 1/2",
        "x --list",
        "x --out d --list --shard 1/2",
        "x --out d --list=0",
        "x --out d --results j",
        "x --out d --report r",
        "x --out d --per-seed p",
        "merge",
        "merge d --shard 1/2",
    ] {
        assert!(read(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_throttling_option_of_qemu_is_answered_with_ours() {
    let line = ["tidegate", "vm", "set", "oltp", "--iops-rd", "500"];
    let message = Args::read(line).expect_err("not an option").to_string();
    assert!(
        message.contains("'--iops-rd': write --limit-read RATE"),
        "{message}"
    );
    let line = ["tidegate", "vm", "set", "oltp", "--colour", "red"];
    let message = Args::read(line).expect_err("not an option").to_string();
    assert!(
        message.contains("unexpected argument '--colour' found"),
        "{message}"
    );
}

#[test]
fn csv_is_refused_where_there_is_none() {
    for words in ["tidegate -o csv vm list", "tidegate vm list -o csv"] {
        let message = Args::read(words.split(' '))
            .expect_err("no CSV")
            .to_string();
        assert!(
            message.contains("`vm` has no CSV output: use -o json"),
            "{message}"
        );
    }
    for words in ["tidegate -o csv sim x", "tidegate sweep x -o csv"] {
        let args = Args::read(words.split(' ')).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(args.global.output, Format::Csv, "{words}");
    }
}

#[test]
fn json_is_refused_by_commands_that_print_text_alone() {
    for words in [
        "tidegate -o json import qemu kvm",
        "tidegate init -o json",
        "tidegate report --output json",
        "tidegate -o json completions bash",
        "tidegate -o csv init",
        "tidegate -o json serve x",
        "tidegate vhost-user-blk --socket-path x -o json",
    ] {
        let message = Args::read(words.split(' '))
            .expect_err("text alone")
            .to_string();
        assert!(message.contains("output: leave out --output"), "{message}");
    }
    for words in ["tidegate -o table init", "tidegate -o json check x"] {
        let read = Args::read(words.split(' '));
        read.unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn a_vm_is_added_by_its_disks_or_from_a_file_and_a_disk_is_resized_by_its_size() {
    let read = |words: &[&str]| {
        let words = ["tidegate", "vm"].iter().chain(words);
        Args::read(words).map(|args| args.command)
    };
    for refused in [
        &["add"][..],
        &["add", "a"],
        &["add", "a", "--disk", "path"],
        &["add", "a", "--disk", "path=a", "--file", "f"],
        &["add", "--file", "f", "--weight", "3"],
        &["add", "--file", "f", "--background"],
        &["resize", "a"],
        &["resize", "a", "b", "1 GiB", "c"],
        &["remove"],
    ] {
        assert!(read(refused).is_err(), "{refused:?}");
    }
    assert!(read(&["add", "--file", "f"]).is_ok());
    let added = read(&[
        "add",
        "a",
        "--disk",
        "path=a b.raw, size=2 GiB",
        "--disk",
        "path=c",
    ]);
    let Ok(Command::Vm(VmCommand::Add(added))) = added else {
        panic!("{added:?}");
    };
    let typed = [("path", "a b.raw"), ("size", "2 GiB")];
    let typed = typed.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(added.disks[0].0, typed);
    assert_eq!(added.disks.len(), 2);
    let resized = read(&["resize", "a", "1 GiB"]);
    let Ok(Command::Vm(VmCommand::Resize(resized))) = resized else {
        panic!("{resized:?}");
    };
    assert_eq!(resized.disk, ["1 GiB"]);
}

#[test]
fn changing_nothing_is_a_mistake() {
    assert!(Args::read(["tidegate", "vm", "set", "oltp"]).is_err());
    assert!(Args::read(["tidegate", "vm", "set", "oltp", "--weight", "7"]).is_ok());
}
