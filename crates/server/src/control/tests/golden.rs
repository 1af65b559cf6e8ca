//! Answers of the API, byte for byte, as clients of an earlier build read them.
//!
//! `golden/*.txt` holds conversations with a simulated daemon whose clock stands still: a request
//! after `> ` (method, path and body), then the status and the body of its answer. Answers may gain
//! fields, none may lose one, and neither order nor number formats change. Lists of policies that
//! enforce a part of an objective may gain names: a new policy touches no golden file.
//! `TIDEGATE_BLESS=1` writes the answers anew, to be reviewed before they are committed.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tidegate_core::device_monitor::{Drift, DriftDirection, LearntCap};
use tidegate_core::engine::Holdings;
use tidegate_core::estimator::{LearntCost, LearntCosts, LearntKind};
use tidegate_core::profile::{Access, Direction};
use tidegate_core::queue_depth::{DepthReason, DepthView};
use tidegate_core::roles::Waits;
use tidegate_core::transfers::TransferOutcome;
use tidegate_core::tuning::{BandwidthRange, Inadequate, Throttle, Tuning};
use tidegate_policies::policy::registry;

use super::simulated_daemon::{ended_transfer, running_transfer};
use super::tuning::moved_for_a_minute;
use super::*;

const NOW: &str = "2026-11-22T12:00:00.25Z";

fn api(plane: &Pretended) -> Api<Pretended> {
    let now: Timestamp = NOW.parse().expect("a time");
    let zone = TimeZone::get("Europe/Berlin").expect("it is known");
    Api::new(plane.clone(), Clock::from_fn(move || now).in_zone(zone))
}

/// Returns a daemon that has a value for every part of every view.
fn busy() -> Pretended {
    let plane = Pretended::new();
    let now: Timestamp = NOW.parse().expect("a time");
    plane.with(|devices| {
        let device = &mut devices[0];
        device.waits = Some(Waits {
            begun: 7,
            succeeded: 5,
        });
        device.drift = Some(Drift {
            ratio: 1.25,
            spread: 0.1,
            windows: 60,
            since: Nanos::from_secs(3),
            direction: Some(DriftDirection::Slower),
            saturating_depth: 32,
            too_shallow: false,
        });
        device.learnt_cap = Some(LearntCap {
            iops: Some(3000.0),
            bytes_per_s: Some(125_000_000),
            either: true,
            since: Nanos::from_secs(4),
        });
        device.adapted_depth = Some(DepthView {
            depth: 12,
            reason: DepthReason::Product,
        });
        device.learnt_costs = Some(costs());
        device.uncounted = 1;
        device.oldest_io = Some(Nanos::from_secs(11));
    });
    let (engine, id) = moved_for_a_minute();
    plane.change("oltp", |vm| {
        *vm.stats = engine.vms().vm_stats(id).clone();
        vm.seconds = engine.vms().vm_seconds(Nanos::from_secs(62), id);
        (vm.clients, vm.pending, vm.in_flight, vm.stalled) = (3, 40, 16, 2);
        vm.holdings = Holdings {
            slots: 40,
            slots_part: 64,
            payload: 163_840,
            payload_part: 1 << 20,
            borrows: false,
        };
        (vm.reply_time[0]).record(Nanos::from_millis(3));
        vm.tuning = Some(tuning());
        let mut transfer = running_transfer(2_000_000_000, Nanos::from_secs(60), now);
        transfer.status.bandwidth = Some(50_000_000);
        let ended = ended_transfer(&transfer, TransferOutcome::Done, Nanos::from_secs(5));
        vm.transfers.ended.count(ended.result());
        vm.transfers.last = Some(ended);
        vm.transfers.running = Some(transfer);
        let disk = &mut vm.disks[0];
        disk.failed = Some("fsync: EIO".to_owned());
        disk.oldest_io = Some(Nanos::from_secs(11));
        disk.hung = Some(Nanos::from_secs(6));
    });
    plane
}

fn costs() -> LearntCosts {
    let kind = |ios, access, direction| LearntKind {
        direction,
        access,
        ios,
        size: 4096,
        cost: LearntCost {
            time_ps: 1_234_567.5,
            relative_half_width: 0.125,
        },
    };
    LearntCosts {
        windows: 90,
        discarded_windows: 12,
        kinds: [
            kind(0, Access::Sequential, Direction::Read),
            kind(700, Access::Random, Direction::Read),
            kind(0, Access::Sequential, Direction::Write),
            kind(30, Access::Random, Direction::Write),
        ],
    }
}

fn tuning() -> Tuning {
    Tuning {
        merge_limit: Some(8192),
        throttle: Throttle::Ios(1_500_250),
        window: Nanos::from_millis(78),
        settled: true,
        aim: Some(30_000_000),
        range: Some(BandwidthRange {
            lowest: 17_000_000,
            highest: 68_000_000,
            merge_limit: 45_056,
        }),
        profiling: Some((3, 11)),
        precision: Some((-12_000, 34_000)),
        inadequate: Some(Inadequate {
            since: Nanos::SECOND,
            bytes_per_s: 12_000_000,
            ios_per_s: 250_000,
        }),
    }
}

/// Returns the path of a golden file.
fn golden(name: &str) -> PathBuf {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/control/tests/golden");
    all.join(name)
}

/// Sends all requests of a golden file and compares the answers with those in it.
async fn compare(api: &Api<Pretended>, name: &str) {
    let before = std::fs::read_to_string(golden(name)).expect("readable");
    let mut transcript = String::new();
    for line in before.lines().filter_map(|line| line.strip_prefix("> ")) {
        let mut parts = line.splitn(3, ' ');
        let [method, path, body] = [(); 3].map(|()| parts.next().unwrap_or_default());
        let (status, answer) = ask_text(api, method, path, body).await;
        transcript += &format!("> {line}\n{}\n{answer}\n", status.as_u16());
    }
    compare_text(name, &transcript);
}

fn compare_text(name: &str, transcript: &str) {
    let names: Vec<&str> = registry().iter().map(|info| info.name).collect();
    // Names of policies come from the registry, so that a new policy changes no golden file.
    let transcript = without_policies(&transcript.replace(&names.join(", "), "{policies}"));
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        std::fs::write(golden(name), &transcript).expect("writable");
    }
    let expected = std::fs::read_to_string(golden(name)).expect("readable");
    let mut lines = transcript.lines().zip(expected.lines()).enumerate();
    if let Some((at, (is, was))) = lines.find(|(_, (is, was))| is != was) {
        panic!("{name}:{}: {is:?} is said, and {was:?} was", at + 1);
    }
    assert_eq!(transcript.len(), expected.len(), "{name} ends elsewhere");
}

/// Text before the first item of a list of enforcing policies.
const ENFORCED_BY: &str = "\"enforced_by\": [";

/// Replaces the items of each list of enforcing policies by `{policies}`, because a new policy in
/// the registry must not change a golden file.
fn without_policies(transcript: &str) -> String {
    let (mut text, mut in_list) = (String::new(), false);
    for line in transcript.split_inclusive('\n') {
        if in_list {
            if line.trim_start().starts_with(']') {
                text += line.trim_start();
                in_list = false;
            }
        } else if line.trim_end().ends_with(ENFORCED_BY) {
            text += &format!("{}{{policies}}", line.trim_end());
            in_list = true;
        } else {
            text += line;
        }
    }
    text
}

#[test]
fn a_list_of_policies_is_one_word_and_an_empty_one_is_empty() {
    let list = |policies: &[&str]| {
        let answer = json!({ "a": 1, "enforced_by": policies, "b": { "enforced_by": ["x"] } });
        without_policies(&format!("{answer:#}\n"))
    };
    assert_eq!(list(&["limit", "mclock"]), list(&["newer"]));
    assert!(list(&["newer"]).contains("\"enforced_by\": [{policies}]"));
    assert_ne!(list(&["newer"]), list(&[]));
    assert_eq!(without_policies("no list"), "no list");
}

#[tokio::test]
async fn what_a_quiet_daemon_shows_is_as_it_was() {
    compare(&api(&Pretended::new()), "quiet.txt").await;
}

#[tokio::test]
async fn what_a_busy_daemon_shows_is_as_it_was() {
    let api = api(&busy());
    let rule = r#"{"on": "write", "every": 100, "error": "EIO"}"#;
    ask_api(&api, "POST", "/v1/disks/oltp/faults", rule).await;
    let entry =
        r#"{"from": "10:00", "until": "23:00", "target": "50 MB/s", "timezone": "Europe/Berlin"}"#;
    ask_api(&api, "POST", "/v1/vms/oltp/schedule", entry).await;
    compare(&api, "busy.txt").await;
}

#[tokio::test]
async fn changes_are_answered_as_they_were() {
    let api = api(&Pretended::new());
    compare(&api, "changes.txt").await;
    let (_, file) = ask_text(&api, "GET", "/v1/vms/oltp/learnt", "").await;
    let (status, vm) = ask_text(&api, "PUT", "/v1/vms/dss/learnt?disks=moved", &file).await;
    assert_eq!(status, StatusCode::OK, "{vm}");
    compare_text("imported.txt", &vm);
}

#[tokio::test]
async fn refusals_are_answered_as_they_were() {
    compare(&api(&Pretended::new()), "refusals.txt").await;
}
