//! Query strings of requests. [`Display`](std::fmt::Display) writes one with its leading `?`, or
//! nothing where no parameter is set.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Query of every change of a VM, its objective, its schedule or its disks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
pub struct ChangeQuery {
    /// Makes the change even where it would be refused for its consequences: an objective that does
    /// not fit, connections that are closed, data that is lost.
    pub force: bool,
    /// Persists the change, durably before the answer, so that it survives a restart.
    pub persist: bool,
}

/// Most VMs of [`StatsQuery::buckets_of`].
pub const BUCKETS_OF_MAX: usize = 128;

/// Query of `GET /v1/stats`.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct StatsQuery {
    /// Adds the buckets of each histogram.
    #[serde(default)]
    pub buckets: bool,
    /// Statistical interval of a [`PrecisionView`](crate::tuning::PrecisionView), such as `10s`:
    /// whole seconds up to 300 s; 30 s where left out.
    pub interval: Option<String>,
    /// VM whose counters alone are wanted.
    pub vm: Option<String>,
    /// Device whose VMs alone are wanted.
    pub device: Option<String>,
    /// VM whose buckets are wanted where those of all are not; the parameter is repeated for each
    /// of several, 128 at most. Names that are not served are passed over. With it the answer has
    /// the times of devices, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[param(max_items = 128)]
    pub buckets_of: Vec<String>,
}

/// Query of `GET /v1/events`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
pub struct EventsQuery {
    /// Number of events after which the answer ends, at least 1; without end where left out.
    pub count: Option<u32>,
}

/// Query of `GET /v1/vms/{name}/history` and of that of devices.
///
/// Times are `now`, a time ago such as `-15m` or `15 min`, RFC 3339 such as
/// `2026-11-28T14:02:00Z`, a time of day such as `14:02` in the daemon's time zone, or seconds
/// since 1970.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
pub struct HistoryQuery {
    /// Begin; 15 minutes ago where left out.
    pub from: Option<String>,
    /// End; now where left out.
    pub to: Option<String>,
    /// Length of the intervals: `1s`, or a multiple of 10 s such as `10s` or `5m`; chosen by the
    /// span where left out.
    pub step: Option<String>,
    /// Adds the distribution of latencies over the whole span.
    pub buckets: bool,
}

/// Query of `GET /v1/history/vms`, with times as in [`HistoryQuery`].
#[derive(Clone, PartialEq, Eq, Default, Debug, IntoParams)]
pub struct HistoriesQuery {
    /// VM; the parameter is repeated for each of several, 32 at most.
    pub vm: Vec<String>,
    /// Begin; 15 minutes ago where left out.
    pub from: Option<String>,
    /// End; now where left out.
    pub to: Option<String>,
    /// Length of the intervals, as in the history of one VM.
    pub step: Option<String>,
    /// Adds the distribution of each VM's latencies over the whole span.
    pub buckets: bool,
}

/// Query of `GET /v1/vms/{name}/explain`, with times as in [`HistoryQuery`].
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
pub struct ExplainQuery {
    /// Begin; 15 minutes before the end where left out.
    pub from: Option<String>,
    /// End; now where left out.
    pub to: Option<String>,
}

/// Query of `PUT /v1/vms/{name}/job`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
pub struct TransferQuery {
    /// Cancels a running deadline transfer in favour of the new one.
    pub replace: bool,
    /// Begins the transfer even if the throughput that it needs does not fit the device.
    pub force: bool,
}

/// Query of `PUT /v1/vms/{name}/learnt`, which imports learnt state: costs of I/Os, queue depth and
/// think times.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
pub struct LearntQuery {
    /// Relation of the VM's disks to those that the state was learnt on.
    #[param(inline)]
    pub disks: LearntDisks,
}

/// Query of `GET /v1/devices/{name}/recording`, which answers one recording of a range of time.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
pub struct RecordingQuery {
    /// VM whose requests alone are wanted.
    pub vm: Option<String>,
    /// Time from which requests arrive, as in [`HistoryQuery`].
    pub from: Option<String>,
    /// Time before which requests arrive.
    pub to: Option<String>,
}

/// Relation of a VM's disks to those that its learnt state comes from.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LearntDisks {
    /// Unknown to the client: the daemon compares the disks that the file names with the VM's.
    #[default]
    #[serde(rename = "tell")]
    Detect,
    /// Identical disks, whatever the file names.
    Same,
    /// Different disks: state that belongs to the disks is learnt anew. Its name on the wire is
    /// `moved`.
    #[serde(rename = "moved")]
    Different,
}

impl fmt::Display for ChangeQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let force = self.force.then_some("force=true");
        let persist = self.persist.then_some("persist=true");
        write_query(f, force.into_iter().chain(persist))
    }
}

impl fmt::Display for StatsQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let buckets = self.buckets.then(|| "buckets=true".to_owned());
        let texts = [
            ("interval", &self.interval),
            ("vm", &self.vm),
            ("device", &self.device),
        ];
        let of = self.buckets_of.iter();
        let of = of.map(|vm| format!("buckets_of={}", percent_encode(vm)));
        write_query(f, buckets.into_iter().chain(given(texts)).chain(of))
    }
}

impl fmt::Display for HistoryQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = [("from", &self.from), ("to", &self.to), ("step", &self.step)];
        let buckets = self.buckets.then(|| "buckets=true".to_owned());
        write_query(f, given(span).chain(buckets))
    }
}

impl fmt::Display for HistoriesQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let vms = self.vm.iter();
        let vms = vms.map(|vm| format!("vm={}", percent_encode(vm)));
        let span = [("from", &self.from), ("to", &self.to), ("step", &self.step)];
        let buckets = self.buckets.then(|| "buckets=true".to_owned());
        write_query(f, vms.chain(given(span)).chain(buckets))
    }
}

impl fmt::Display for ExplainQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_given(f, [("from", &self.from), ("to", &self.to)])
    }
}

impl fmt::Display for TransferQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let replace = self.replace.then_some("replace=true");
        let force = self.force.then_some("force=true");
        write_query(f, replace.into_iter().chain(force))
    }
}

impl fmt::Display for RecordingQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_given(
            f,
            [("vm", &self.vm), ("from", &self.from), ("to", &self.to)],
        )
    }
}

impl fmt::Display for LearntQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let disks = match self.disks {
            LearntDisks::Detect => None,
            LearntDisks::Same => Some("disks=same"),
            LearntDisks::Different => Some("disks=moved"),
        };
        write_query(f, disks)
    }
}

/// Returns `text` for use in a path or a query: bytes other than ASCII letters, digits, `-`, `_`
/// and `.` become `%XX` (RFC 3986, section 2.1).
pub fn percent_encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                encoded.push(char::from(byte));
            }
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// Writes the parameters that have a value.
fn write_given<const N: usize>(
    f: &mut fmt::Formatter<'_>,
    all: [(&str, &Option<String>); N],
) -> fmt::Result {
    write_query(f, given(all))
}

/// Returns the parameters that have a value, as they are in a query.
fn given<'a, const N: usize>(
    all: [(&'a str, &'a Option<String>); N],
) -> impl Iterator<Item = String> + 'a {
    all.into_iter().filter_map(|(name, value)| {
        let value = value.as_ref()?;
        Some(format!("{name}={}", percent_encode(value)))
    })
}

/// Writes `?first&second`, or nothing for no parts.
fn write_query<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    parts: impl IntoIterator<Item = T>,
) -> fmt::Result {
    for (index, part) in parts.into_iter().enumerate() {
        let mark = if index == 0 { '?' } else { '&' };
        write!(f, "{mark}{part}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_json::{refuses_unknown, round_trip};

    #[test]
    fn default_queries_are_empty() {
        assert_eq!(ChangeQuery::default().to_string(), "");
        assert_eq!(StatsQuery::default().to_string(), "");
        assert_eq!(HistoryQuery::default().to_string(), "");
        assert_eq!(ExplainQuery::default().to_string(), "");
        assert_eq!(TransferQuery::default().to_string(), "");
        assert_eq!(LearntQuery::default().to_string(), "");
    }

    #[test]
    fn parameters_are_joined_and_encoded() {
        let query = |force, persist| ChangeQuery { force, persist }.to_string();
        assert_eq!(query(true, false), "?force=true");
        assert_eq!(query(false, true), "?persist=true");
        assert_eq!(query(true, true), "?force=true&persist=true");
        let stats = StatsQuery {
            buckets: true,
            interval: Some("10s".to_owned()),
            vm: Some("a&b".to_owned()),
            device: None,
            buckets_of: vec!["c d".to_owned()],
        };
        let text = "?buckets=true&interval=10s&vm=a%26b&buckets_of=c%20d";
        assert_eq!(stats.to_string(), text);
        let spaced = StatsQuery {
            buckets: false,
            interval: Some("10 s&buckets=true#é".to_owned()),
            ..StatsQuery::default()
        };
        assert_eq!(
            spaced.to_string(),
            "?interval=10%20s%26buckets%3Dtrue%23%C3%A9"
        );
        let history = HistoryQuery {
            from: Some("2026-11-28T14:02:00+01:00".to_owned()),
            to: None,
            step: Some("10 s".to_owned()),
            buckets: false,
        };
        assert_eq!(
            history.to_string(),
            "?from=2026-11-28T14%3A02%3A00%2B01%3A00&step=10%20s"
        );
        let histories = HistoriesQuery {
            vm: ["a b", "c"].map(str::to_owned).to_vec(),
            to: Some("now".to_owned()),
            buckets: true,
            ..HistoriesQuery::default()
        };
        assert_eq!(histories.to_string(), "?vm=a%20b&vm=c&to=now&buckets=true");
        let transfer = |replace, force| TransferQuery { replace, force }.to_string();
        assert_eq!(transfer(true, false), "?replace=true");
        assert_eq!(transfer(true, true), "?replace=true&force=true");
        let learnt = |disks| LearntQuery { disks }.to_string();
        assert_eq!(learnt(LearntDisks::Same), "?disks=same");
        assert_eq!(learnt(LearntDisks::Different), "?disks=moved");
    }

    #[test]
    fn encoded_names_are_one_segment_of_a_path() {
        assert_eq!(percent_encode("oltp-1.a_b"), "oltp-1.a_b");
        assert_eq!(percent_encode("a/../b c?é"), "a%2F..%2Fb%20c%3F%C3%A9");
    }

    #[test]
    fn queries_round_trip_and_refuse_unknown_parameters() {
        let change = ChangeQuery {
            force: true,
            persist: false,
        };
        round_trip(&change, r#"{"force":true,"persist":false}"#);
        let stats = StatsQuery {
            buckets: true,
            interval: None,
            ..StatsQuery::default()
        };
        let text = r#"{"buckets":true,"interval":null,"vm":null,"device":null}"#;
        round_trip(&stats, text);
        let learnt = LearntQuery {
            disks: LearntDisks::Different,
        };
        round_trip(&learnt, r#"{"disks":"moved"}"#);
        let transfer = TransferQuery {
            replace: true,
            force: false,
        };
        round_trip(&transfer, r#"{"replace":true,"force":false}"#);
        refuses_unknown::<ChangeQuery>(r#"{"sure":true}"#, "sure");
        refuses_unknown::<StatsQuery>(r#"{"bucket":true}"#, "bucket");
        refuses_unknown::<TransferQuery>(r#"{"persist":true}"#, "persist");
        refuses_unknown::<LearntQuery>(r#"{"disk":"same"}"#, "disk");
    }
}
