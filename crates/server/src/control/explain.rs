//! Handlers that say why VMs are slow: explanations of the past, and the matrix of interference.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use jiff::{Timestamp, Zoned};
use tidegate_api::explain::ExplainView;
use tidegate_api::history::SpanView;
use tidegate_api::interference::{InterferenceView, VmInterferenceView};
use tidegate_api::query::ExplainQuery;
use tidegate_api::recording::RecordingsView;
use tidegate_config::stat_views;
use tidegate_core::interference::{Interval, VmTimes};
use tidegate_core::objective::Limit;
use tidegate_core::request::VmId;
use tidegate_core::time::Nanos;
use tidegate_diagnosis::{
    AROUND_MS, DeviceFacts, Episode, Neighbour, STEP_MS, Traffic, sentences, traffic,
};
use tidegate_history::column::Column;
use tidegate_history::query::{Answer, Request, Step};
use tidegate_history::recorder;
use tidegate_history::sample::Key;

use super::Api;
use super::error::{ApiError, ApiResult};
use super::handlers::{ok, parse_query};
use super::history::span_of;
use super::limited_disks::LimitedDisks;
use super::path::Path;
use super::plane::Plane;
use crate::command::DeviceSnapshot;
use crate::config::LimitGroup;
use crate::recording::Recordings;

const ALLOWED: &str = "?from=-15m, ?to=14:02, ?from=2026-11-28T14:00:00Z";
/// Longest span that is explained.
const SPAN_MAX_MS: u64 = 24 * 3600 * 1000;
/// Most VMs whose traffic is looked up: each reads the history once.
const NEIGHBOURS_MAX: usize = 4;
/// Age of an episode's end up to which the present state of the disk belongs to it.
const PRESENT_MS: u64 = 2 * STEP_MS;

/// Query of the history in steps of [`STEP_MS`].
fn request(key: Key, span: SpanView) -> Request {
    Request {
        key,
        from_ms: span.from_ms,
        to_ms: span.to_ms,
        step: Step::Every(STEP_MS),
    }
}

/// Returns the span in whole steps, as the history has them.
fn in_steps(span: SpanView) -> SpanView {
    SpanView {
        from_ms: span.from_ms / STEP_MS * STEP_MS,
        to_ms: span.to_ms.div_ceil(STEP_MS) * STEP_MS,
    }
}

/// Returns when a span was, in the zone of `now`: `at 14:02:10`, or `from 14:02:10 to 14:03:20`.
fn when(span: SpanView, now: &Zoned) -> String {
    let local = |ms: u64| {
        let time = i64::try_from(ms).ok();
        let time = time.and_then(|ms| Timestamp::from_millisecond(ms).ok());
        time.map(|time| time.to_zoned(now.time_zone().clone()))
    };
    let text = |ms| {
        let Some(time) = local(ms) else {
            return "an unknown time".to_owned();
        };
        let form = if time.date() == now.date() {
            "%H:%M:%S"
        } else {
            "%Y-%m-%d %H:%M:%S"
        };
        time.strftime(form).to_string()
    };
    if span.to_ms - span.from_ms <= STEP_MS {
        format!("at {}", text(span.from_ms))
    } else {
        format!("from {} to {}", text(span.from_ms), text(span.to_ms))
    }
}

/// Returns true if the recordings have all of a span of a device, but for less than a step at its
/// ends: they may begin and end within one.
fn is_recorded(recordings: &RecordingsView, device: &str, span: SpanView) -> bool {
    let ms = |text: &Option<String>| {
        let time: Timestamp = text.as_ref()?.parse().ok()?;
        u64::try_from(time.as_millisecond()).ok()
    };
    let covers = |from: u64, until: u64| {
        from < span.from_ms + STEP_MS && until.saturating_add(STEP_MS) > span.to_ms
    };
    let of_device = recordings.devices.iter().find(|it| it.device == device);
    of_device.is_some_and(|it| {
        // What is being recorded has no end: the span's last step may be under way.
        let until = if it.on { Some(u64::MAX) } else { ms(&it.until) };
        let times = ms(&it.from).zip(until);
        times.is_some_and(|(from, until)| covers(from, until))
    })
}

/// Device of a VM that is explained.
struct Place {
    index: usize,
    name: String,
}

impl<P: Plane> Api<P> {
    /// Returns the device on which a VM is served; `None`: it is not served.
    fn place_of(&self, vm: &str) -> Option<Place> {
        let devices = self.plane.devices().into_iter().enumerate();
        let mut with_vm = devices.filter(|(_, (_, vms))| vms.iter().any(|it| it == vm));
        with_vm
            .next()
            .map(|(index, (name, _))| Place { index, name })
    }

    /// Returns whether a VM has a limit, and whether it is a background process.
    fn kind_of(&self, vm: &str) -> (bool, bool) {
        let now = Timestamp::now();
        let config = self.plane.vm(vm);
        config.map_or((false, false), |vm| {
            let limited = vm.promised_at(now).limit != Limit::default();
            (limited, vm.background)
        })
    }

    /// Returns what is known of the device in a span. `answer`: its history there.
    async fn device_facts(
        &self,
        vm: &str,
        place: &Place,
        span: SpanView,
        answer: &Answer,
    ) -> DeviceFacts<'static> {
        let recordings = self.plane.recordings();
        let recordings = recordings.with_files(Recordings::status).await;
        // Recordings that cannot be read explain nothing.
        let recorded = matches!(recordings, Ok(recordings)
            if is_recorded(&recordings, &place.name, span));
        // A loop that does not answer leaves the explanation by the history.
        let snapshot = self.snapshot(place.index, &place.name).await.ok();
        let now_ms = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0);
        let is_present = span.to_ms + PRESENT_MS > now_ms;
        let hangs = |device: &DeviceSnapshot| {
            let vm = device.vms.iter().find(|it| it.name == vm);
            vm.is_some_and(|vm| vm.disks.iter().any(|disk| disk.hung.is_some()))
        };
        let stalled = answer.intervals.iter();
        let stalled: u64 = stalled.map(|it| it.values[Column::Stalled]).sum();
        DeviceFacts {
            costs: snapshot.as_ref().map(|it| it.costs).unwrap_or_default(),
            stalled: Nanos(stalled * 1000),
            longest: None,
            hung: is_present && snapshot.as_deref().is_some_and(hangs),
            recorded,
        }
    }

    /// Returns the limits that disks of a device share, as they are now.
    async fn limit_groups(&self, place: &Place) -> Vec<LimitGroup> {
        // A loop that does not answer leaves the explanation without them.
        let snapshot = self.snapshot(place.index, &place.name).await;
        snapshot.map_or_else(|_| Vec::new(), |device| device.limit_groups.clone())
    }

    /// Explains the latencies of a VM in a span of the past.
    async fn explain(&self, vm: &str, asked: SpanView, now: &Zoned) -> ApiResult<ExplainView> {
        let asked = in_steps(asked);
        let around = SpanView {
            from_ms: asked.from_ms.saturating_sub(AROUND_MS),
            to_ms: asked.to_ms + AROUND_MS,
        };
        let key = recorder::vm(vm);
        let place = self.place_of(vm);
        let (answers, is_known) = self.ask_history(vec![request(key, around)]).await?;
        if !is_known && place.is_none() {
            let devices = self.plane.devices();
            let known: Vec<String> = devices.into_iter().flat_map(|(_, vms)| vms).collect();
            return Err(ApiError::not_found("vm", vm, &known));
        }
        let episode = Episode::choose(&answers[0].intervals, asked);
        let explained = episode.explained;
        let names: Vec<&str> = episode.culprits().take(NEIGHBOURS_MAX).collect();
        let of_vms = names.iter().map(|name| recorder::vm(name));
        let of_device = place.iter().map(|place| recorder::device(&place.name));
        let requests = of_vms.chain(of_device).map(|key| request(key, explained));
        let requests: Vec<Request> = requests.collect();
        let answers = if requests.is_empty() {
            Vec::new()
        } else {
            self.ask_history(requests).await?.0
        };
        let neighbours = names.iter().zip(&answers).map(|(&name, answer)| {
            let (limited, background) = self.kind_of(name);
            let traffic: Traffic = traffic(&answer.intervals);
            Neighbour {
                name,
                background,
                limited,
                traffic,
            }
        });
        let neighbours: Vec<Neighbour> = neighbours.collect();
        let device = match (&place, answers.last()) {
            (Some(place), Some(answer)) => {
                self.device_facts(vm, place, episode.observed, answer).await
            }
            _ => DeviceFacts::default(),
        };
        let config = self.plane.vm(vm);
        let objective = config.as_ref().map(|vm| *vm.promised_at(now.timestamp()));
        let objective = objective.unwrap_or_default();
        let reserved = !objective.reservation.is_none();
        let mut diagnosis = episode.diagnose(vm, reserved, &neighbours, &device);
        diagnosis.limited = !objective.limit.is_none() || !objective.target.is_none();
        if let (Some(config), Some(place)) = (&config, &place) {
            let groups = self.limit_groups(place).await;
            let limited = LimitedDisks::new(&config.disks, &groups);
            diagnosis.limited_disks = limited.exports();
            diagnosis.raise_disk_limits = limited.commands(&place.name);
        }
        diagnosis.device = place.as_ref().map(|place| place.name.clone());
        // A VM that was removed meanwhile has no present state.
        let present = self.vm_snapshot(vm).await.ok();
        diagnosis.promises_unfit =
            present.is_some_and(|vm| vm.feasibility.is_some_and(|verdict| !verdict.fits));
        Ok(ExplainView {
            asked,
            explained,
            searched: episode.searched,
            device: place.map(|place| place.name),
            sentences: sentences(&diagnosis, Some(&when(explained, now))),
            diagnosis,
        })
    }
}

pub(super) async fn vm<P: Plane>(
    State(api): State<Api<P>>,
    Path(name): Path<String>,
    uri: Uri,
) -> ApiResult<Response> {
    let query: ExplainQuery = parse_query(&uri, ALLOWED)?;
    let now = Zoned::now();
    let (from_ms, to_ms) = span_of([&query.from, &query.to], &now)?;
    if to_ms - from_ms > SPAN_MAX_MS {
        let what = "the span is longer than the history goes back";
        return Err(ApiError::new(StatusCode::BAD_REQUEST, what, "query")
            .allowing("at most 24 hours from ?from to ?to"));
    }
    Ok(ok(&api
        .explain(&name, SpanView { from_ms, to_ms }, &now)
        .await?))
}

pub(super) async fn device<P: Plane>(
    State(api): State<Api<P>>,
    Path(name): Path<String>,
) -> ApiResult<Response> {
    let device = api.device(&name)?;
    let snapshot = api.snapshot(device, &name).await?;
    Ok(ok(&matrix(&snapshot)))
}

/// Returns the matrix of a device's VMs since each was added.
fn matrix(device: &DeviceSnapshot) -> InterferenceView {
    // A map, because there may be thousands of VMs and each lists others.
    let names = device.vms.iter().map(|vm| (vm.id, vm.name.as_str()));
    let names: BTreeMap<VmId, &str> = names.collect();
    let name = |id: VmId| (*names.get(&id).unwrap_or(&"(removed)")).to_owned();
    let vms = device.vms.iter().map(|vm| {
        let since_added = Interval::between(&VmTimes::default(), &vm.times);
        VmInterferenceView {
            vm: vm.name.clone(),
            background: vm.background,
            times: stat_views::interference(&since_added, name),
        }
    });
    let mut vms: Vec<VmInterferenceView> = vms.collect();
    vms.sort_by(|a, b| a.vm.cmp(&b.vm));
    InterferenceView {
        device: device.name.clone(),
        vms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_api::recording::DeviceRecordingView;

    #[test]
    fn a_time_of_another_day_has_its_date() {
        let now: Zoned = "2026-03-02T00:05:00+01:00[Europe/Berlin]"
            .parse()
            .expect("a time");
        let ms = |text: &str| {
            let time: Timestamp = text.parse().expect("a time");
            u64::try_from(time.as_millisecond()).expect("after 1970")
        };
        let span = SpanView {
            from_ms: ms("2026-03-01T22:59:50Z"),
            to_ms: ms("2026-03-01T23:00:10Z"),
        };
        assert_eq!(
            when(span, &now),
            "from 2026-03-01 23:59:50 to 00:00:10",
            "the begin was yesterday"
        );
        let one = SpanView {
            from_ms: span.to_ms,
            to_ms: span.to_ms + STEP_MS,
        };
        assert_eq!(when(one, &now), "at 00:00:10");
    }

    #[test]
    fn a_recording_covers_a_span_from_its_begin_to_its_end() {
        let mut recordings = RecordingsView {
            devices: vec![DeviceRecordingView {
                device: "disk0".to_owned(),
                from: Some("1970-01-01T00:00:10Z".to_owned()),
                until: Some("1970-01-01T00:01:00Z".to_owned()),
                ..DeviceRecordingView::default()
            }],
            ..RecordingsView::default()
        };
        let covers = |recordings: &RecordingsView, from_ms, to_ms| {
            let span = SpanView { from_ms, to_ms };
            is_recorded(recordings, "disk0", span)
        };
        assert!(covers(&recordings, 10_000, 60_000));
        assert!(covers(&recordings, 1_000, 69_000));
        assert!(!covers(&recordings, 0, 60_000));
        assert!(!covers(&recordings, 10_000, 70_000));
        let span = SpanView {
            from_ms: 10_000,
            to_ms: 20_000,
        };
        assert!(!is_recorded(&recordings, "disk1", span));
        recordings.devices[0].on = true;
        assert!(covers(&recordings, 10_000, 70_000));
        assert!(!covers(&recordings, 0, 70_000));
    }
}
