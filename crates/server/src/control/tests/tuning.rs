//! Views of tuning and precision.

use super::*;
use tidegate_core::engine::DiskSpec;
use tidegate_core::objective::Rate;
use tidegate_core::request::Request as GuestRequest;
use tidegate_core::tuning::{Inadequate, Throttle, Tuning};

fn tuning() -> Tuning {
    Tuning {
        merge_limit: Some(8192),
        throttle: Throttle::AtMost(33_000_000),
        window: Nanos::from_millis(78),
        settled: true,
        aim: Some(30_000_000),
        range: None,
        profiling: None,
        precision: Some((-12_000, 34_000)),
        inadequate: Some(Inadequate {
            since: Nanos::SECOND,
            bytes_per_s: 12_000_000,
            ios_per_s: 250_000,
        }),
    }
}

#[tokio::test]
async fn how_a_vm_is_tuned_is_told_and_that_a_capacity_is_inadequate() {
    let plane = Pretended::new();
    plane.change("oltp", |vm| vm.tuning = Some(tuning()));
    let (_, vm) = ask(&plane, "GET", "/v1/vms/oltp", "").await;
    assert_eq!(vm["tuning"]["merge_limit_bytes"], 8192, "{vm}");
    assert_eq!(vm["tuning"]["inadequate"]["bytes_per_s"], 12_000_000);
    let (_, vm) = ask(&plane, "GET", "/v1/vms/bulk", "").await;
    assert_eq!(vm.get("tuning"), None, "nothing tunes it");
    let (_, metrics) = ask(&plane, "GET", "/metrics", "").await;
    let metrics = metrics.as_str().expect("text");
    let oltp = "{vm=\"oltp\",device=\"disk0\"}";
    for line in [
        format!("tidegate_vm_target_unreachable{oltp} 1.0"),
        format!("tidegate_vm_target_achieved_bytes_per_second{oltp} 12000000.0"),
        format!("tidegate_vm_tuning_merge_limit_bytes{oltp} 8192.0"),
        format!("tidegate_vm_tuning_throttle_bytes_per_second{oltp} 33000000.0"),
        format!("tidegate_vm_tuning_window_seconds{oltp} 0.078"),
        format!("tidegate_vm_tuning_settled{oltp} 1.0"),
    ] {
        assert!(metrics.contains(&line), "{line} is not in\n{metrics}");
    }
    assert!(!metrics.contains("tidegate_vm_target_unreachable{vm=\"bulk\""));
}

#[tokio::test]
async fn precision_is_that_of_an_interval_that_can_be_chosen() {
    let plane = Pretended::new();
    let (engine, vm) = moved_for_a_minute();
    plane.change("oltp", |oltp| {
        oltp.objective.target = Rate::bytes(400_000);
        oltp.seconds = engine.vms().vm_seconds(Nanos::from_secs(62), vm);
    });
    let (status, stats) = ask(&plane, "GET", "/v1/stats?interval=10s", "").await;
    assert_eq!(status, StatusCode::OK, "{stats}");
    let precision = &stats["vms"][0]["precision"];
    assert_eq!(precision["interval_s"], 10);
    assert_eq!(
        (&precision["seconds"], &precision["idle_seconds"]),
        (&json!(61), &json!(0))
    );
    assert_eq!(precision["error_percent"], 2.4, "{precision}");
    assert_eq!(precision["absolute_error_percent"], 2.4);
    assert_eq!(precision["variability_percent"], 0.0);
    let (_, stats) = ask(&plane, "GET", "/v1/stats", "").await;
    assert_eq!(stats["vms"][0]["precision"]["interval_s"], 30);
    let never_asked = &stats["vms"][1]["precision"];
    assert_eq!(
        never_asked.get("variability_percent"),
        None,
        "{never_asked}"
    );
    let (_, metrics) = ask(&plane, "GET", "/metrics", "").await;
    let metrics = metrics.as_str().expect("text");
    let line = "tidegate_vm_precision_error_ratio{vm=\"oltp\",device=\"disk0\"} 0.024";
    assert!(metrics.contains(line), "{metrics}");
    for wrong in ["10", "500ms", "0s", "301s", "1500ms", "x"] {
        let path = format!("/v1/stats?interval={wrong}");
        let (status, answer) = ask(&plane, "GET", &path, "").await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{wrong}: {answer}");
        assert_eq!(answer["error"]["where"], "interval");
    }
}

/// Returns an engine whose VM moved 409,600 bytes in each of 62 seconds.
pub(super) fn moved_for_a_minute() -> (Engine, VmId) {
    let policy = PolicySpec::named("fifo").expect("it is registered");
    let mut engine = Engine::new(EngineConfig::default(), &policy).expect("defaults are good");
    let vm = engine.vms_mut().add_vm(Nanos::ZERO, &Objective::default());
    let vm = vm.expect("there is room");
    let spec = DiskSpec {
        base: 0,
        size: 1 << 30,
        read_only: false,
    };
    let disk = engine.vms_mut().add_disk(vm, spec).expect("it fits");
    let client = engine.connect(disk).expect("it is there");
    for n in 0..620 {
        let now = Nanos::from_millis(n * 100);
        let read = GuestRequest::read(n * 4096, 40_960, n);
        engine
            .handle_request(now, client, read)
            .expect("there is room");
        while let Some(io) = engine.poll_dispatch(now) {
            engine.handle_completion(now, io.id, Ok(()));
        }
        while engine.poll_done().is_some() {}
    }
    (engine, vm)
}
