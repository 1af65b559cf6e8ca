//! Help for keys of other systems: the line to write in a Tidegate configuration instead.
//!
//! Understood are the throttling keys of QEMU (`throttling.iops-total`, `bps_max`), libvirt's
//! `<iotune>` (`total_bytes_sec`), Proxmox VE (`mbps_rd`), the cgroup v2 file `io.max` (`rbps`),
//! Ceph's RBD (`rbd_qos_read_iops_limit`) and SPDK (`rw_mbytes_per_sec`).

use tidegate_units::{Rate, parse_rate};

use crate::node::{Entry, Value};

/// Kind of a throttling key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForeignKey {
    /// Rate in a table of an objective, such as `limit.read`, in a unit.
    Rate(&'static str, ForeignUnit),
    /// Length in seconds of a burst: of the figure in a unit of a rate in a table of an objective,
    /// such as `limit.burst.read`.
    BurstLength(&'static str, ForeignUnit),
    /// Size that counts as one request.
    RequestSize,
}

/// Heading of the table of limits.
const LIMIT: &str = "vm.objective.limit";

/// Unit of a bare number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForeignUnit {
    /// Requests a second.
    Iops,
    /// Bytes a second.
    Bytes,
    /// MiB a second (Proxmox VE, SPDK).
    MiB,
}

/// Returns the help text for an unknown key that is a throttling key of another system. `entries`
/// are all keys of its table, because one rate may come from two of them; `is_json` selects the
/// notation, `heading` is that of the table. `None` if the key is not known.
pub(crate) fn help(key: &str, entries: &[Entry], heading: &str, is_json: bool) -> Option<String> {
    let (place, value) = match foreign_key(key)? {
        ForeignKey::RequestSize => {
            return Some(
                "the request size is part of the rate: \"500 IOPS @ 16 KiB\" counts a larger \
                 request as several"
                    .to_owned(),
            );
        }
        ForeignKey::BurstLength(..) => ("limit.burst.length", length(key, entries)),
        ForeignKey::Rate(place, _) => match rate(place, entries) {
            Rates::Given(rate) => (place, rate),
            Rates::Example(example) => (place, example.to_owned()),
            Rates::Zero => {
                return Some("leave it out: 0 means none, which is the default".to_owned());
            }
        },
    };
    // The key stands in the table of limits already, so its name there is enough.
    if let (LIMIT, Some(key)) = (heading, place.strip_prefix("limit.")) {
        return Some(format!("write {key} = \"{value}\" in [{LIMIT}]"));
    }
    // A limit on reads and writes together is the plain `limit`, unless a table is needed.
    let place = if place == "limit.total" {
        "limit"
    } else {
        place
    };
    if is_json {
        let json = place
            .split('.')
            .rev()
            .fold(format!("\"{value}\""), |inner, key| {
                format!("{{\"{key}\": {inner}}}")
            });
        return Some(format!("write {json} in the objective of the VM"));
    }
    Some(format!("write {place} = \"{value}\" in [vm.objective]"))
}

/// Returns the place in an objective, such as `limit.read`, that a throttling key or option of
/// another system sets, such as `iops-rd`.
pub(crate) fn objective_path(name: &str) -> Option<&'static str> {
    Some(match foreign_key(name)? {
        ForeignKey::Rate(place, _) => place,
        ForeignKey::BurstLength(..) => "limit.burst.length",
        ForeignKey::RequestSize => "limit.total",
    })
}

/// Returns the meaning of a throttling key or option of another system; `None` if it is no such
/// key.
pub fn foreign_key(key: &str) -> Option<ForeignKey> {
    let lower = key.to_ascii_lowercase();
    let (mut unit, mut direction) = (None, "total");
    let (mut is_burst, mut is_length, mut is_minimum, mut is_size) = (false, false, false, false);
    for (index, word) in lower.split(['_', '-', '.']).enumerate() {
        match word {
            "iops" | "ios" => unit = Some(ForeignUnit::Iops),
            "bps" | "bytes" => unit = Some(ForeignUnit::Bytes),
            "mbps" | "mbytes" => unit = Some(ForeignUnit::MiB),
            "riops" => (unit, direction) = (Some(ForeignUnit::Iops), "read"),
            "wiops" => (unit, direction) = (Some(ForeignUnit::Iops), "write"),
            "rbps" => (unit, direction) = (Some(ForeignUnit::Bytes), "read"),
            "wbps" => (unit, direction) = (Some(ForeignUnit::Bytes), "write"),
            "read" | "rd" | "r" => direction = "read",
            "write" | "wr" | "w" => direction = "write",
            "burst" => is_burst = true,
            // `max_iops` is a limit; `iops_max` of QEMU, libvirt and Proxmox VE is a burst.
            "max" if index > 0 => is_burst = true,
            "min" => is_minimum = true,
            "length" | "seconds" => is_length = true,
            "size" => is_size = true,
            "total" | "rw" | "sec" | "s" | "per" | "limit" | "max" | "throttling" | "rbd"
            | "qos" => {}
            _ => return None,
        }
    }
    // Words such as `read` or `max` alone are keys of many systems, and no throttle.
    let unit = unit?;
    if is_size {
        return Some(ForeignKey::RequestSize);
    }
    let burst = match direction {
        "read" => "limit.burst.read",
        "write" => "limit.burst.write",
        _ => "limit.burst.total",
    };
    if is_length {
        return Some(ForeignKey::BurstLength(burst, unit));
    }
    let place = match (is_minimum, is_burst, direction) {
        (true, ..) => "reservation",
        (_, true, _) => burst,
        (.., "read") => "limit.read",
        (.., "write") => "limit.write",
        _ => "limit.total",
    };
    Some(ForeignKey::Rate(place, unit))
}

/// Rate that the keys of a table give for one place.
enum Rates {
    /// IOPS, bandwidth or both.
    Given(String),
    /// All keys are 0, which means no limit in all of these systems.
    Zero,
    /// No value is a rate; an example of one.
    Example(&'static str),
}

/// Returns the rate that all keys of a table for one place give together.
fn rate(place: &str, entries: &[Entry]) -> Rates {
    let (mut iops, mut bandwidth) = (None, None);
    let mut example = "500 IOPS";
    let mut all_zero = true;
    for entry in entries {
        let Some(ForeignKey::Rate(other, unit)) = foreign_key(&entry.key) else {
            continue;
        };
        if other != place {
            continue;
        }
        all_zero &= is_zero(&entry.node.value);
        let found = figure(&entry.node.value, unit);
        if unit == ForeignUnit::Iops {
            iops = found.or(iops);
        } else {
            example = "50 MB/s";
            bandwidth = found.or(bandwidth);
        }
    }
    let all: Vec<String> = iops.into_iter().chain(bandwidth).collect();
    match (all.is_empty(), all_zero) {
        (false, _) => Rates::Given(all.join(", ")),
        (true, true) => Rates::Zero,
        (true, false) => Rates::Example(example),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Integer(number) => *number == 0,
        Value::Float(text) | Value::Text(text) => text.trim().parse() == Ok(0.0),
        _ => false,
    }
}

/// Returns one value with its unit: a number in `unit`, or text that is a rate already. `None` for
/// 0, which means no limit in all of these systems, and for anything else.
fn figure(value: &Value, unit: ForeignUnit) -> Option<String> {
    let number = match value {
        Value::Integer(number) => u64::try_from(*number).ok(),
        Value::Float(text) => {
            let number = text.parse::<f64>().ok()?;
            let decimal = format!("{number} MiB/s");
            // Proxmox VE takes parts of a MiB; of a request or a byte there are none.
            if unit == ForeignUnit::MiB && parse_rate(&decimal).is_ok_and(|rate| !rate.is_none()) {
                return Some(decimal);
            }
            Some(number.round() as u64)
        }
        Value::Text(text) => match parse_rate(text) {
            Ok(rate) => return (!rate.is_none()).then(|| rate.to_string()),
            Err(_) => text.trim().parse().ok(),
        },
        _ => None,
    };
    // Shifted, so that a number of MiB stays in range as well.
    let number = number.filter(|number| (1..=Rate::MAX >> 20).contains(number))?;
    Some(match unit {
        ForeignUnit::Iops => Rate::iops(number).to_string(),
        ForeignUnit::Bytes => Rate::bytes(number).to_string(),
        ForeignUnit::MiB => format!("{number} MiB/s"),
    })
}

/// Returns the length of a burst that a key gives in seconds.
fn length(key: &str, entries: &[Entry]) -> String {
    let entry = entries.iter().find(|entry| entry.key == key);
    match entry.map(|entry| &entry.node.value) {
        // `burst.length` is at most an hour.
        Some(Value::Integer(seconds)) if (1..=3600).contains(seconds) => format!("{seconds} s"),
        _ => "10 s".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::Issues;
    use crate::node::Node;

    fn helps(text: &str) -> Vec<String> {
        let issues = Issues::default();
        let node = Node::from_toml(text, &issues).expect("TOML");
        let Value::Table(entries) = node.value else {
            panic!("a table")
        };
        let help = |entry: &Entry| help(&entry.key, &entries, "vm", false).unwrap_or_default();
        entries.iter().map(help).collect()
    }

    #[test]
    fn keys_of_other_systems_get_the_line_to_write() {
        let cases = [
            ("iops_sec = 500", "limit = \"500 IOPS\""),
            ("iops-total = 500", "limit = \"500 IOPS\""),
            ("total_bytes_sec = 50000000", "limit = \"50 MB/s\""),
            ("read_iops_sec = 300", "limit.read = \"300 IOPS\""),
            ("iops_rd = 300", "limit.read = \"300 IOPS\""),
            ("mbps_rd = 20", "limit.read = \"20 MiB/s\""),
            ("mbps_wr = 0.5", "limit.write = \"0.5 MiB/s\""),
            ("mbps_wr = \"fast\"", "limit.write = \"50 MB/s\""),
            ("bps_max = 20000000", "limit.burst.total = \"20 MB/s\""),
            ("iops_rd_max_length = 60", "limit.burst.length = \"60 s\""),
            (
                "total_iops_sec_max = 900",
                "limit.burst.total = \"900 IOPS\"",
            ),
            ("wbps = \"20 MB/s\"", "limit.write = \"20 MB/s\""),
            ("rbd_qos_write_iops_limit = 70", "limit.write = \"70 IOPS\""),
            ("rw_mbytes_per_sec = 100", "limit = \"100 MiB/s\""),
            ("min_iops = 100", "reservation = \"100 IOPS\""),
            ("max_iops = 100", "limit = \"100 IOPS\""),
            ("\"throttling.bps-read\" = 7000", "limit.read = \"7 kB/s\""),
        ];
        for (text, line) in cases {
            let line = format!("write {line} in [vm.objective]");
            assert_eq!(helps(text), [line], "{text}");
        }
        assert!(helps("size_iops_sec = 4096")[0].contains("@ 16 KiB"));
        assert_eq!(helps("colour = 7\nmax = 3\nbytes_used = 1"), ["", "", ""]);
    }

    #[test]
    fn keys_that_set_no_limit_are_to_be_left_out() {
        let leave_out = "leave it out: 0 means none, which is the default";
        assert_eq!(helps("mbps_wr = 0"), [leave_out]);
        assert_eq!(helps("iops = 0.0\nbps = 0"), [leave_out, leave_out]);
        let line = "write limit = \"500 IOPS\" in [vm.objective]";
        assert_eq!(helps("iops = 500\nbps = 0"), [line, line]);
    }

    #[test]
    fn two_keys_of_one_limit_make_one_line() {
        let line = "write limit = \"500 IOPS, 50 MB/s\" in [vm.objective]";
        assert_eq!(
            helps("total_iops_sec = 500\ntotal_bytes_sec = 50000000"),
            [line, line]
        );
    }

    #[test]
    fn keys_of_other_systems_have_a_place_in_an_objective() {
        for (name, is) in [
            ("iops-total", "limit.total"),
            ("bps_rd", "limit.read"),
            ("total-iops-sec-max", "limit.burst.total"),
            ("iops-wr-max-length", "limit.burst.length"),
            ("min-iops", "reservation"),
        ] {
            assert_eq!(objective_path(name), Some(is), "{name}");
        }
        assert_eq!(objective_path("colour"), None);
    }

    #[test]
    fn the_table_of_limits_gets_its_own_key() {
        let issues = Issues::default();
        let node = Node::from_toml("mbps_rd = 20", &issues).expect("TOML");
        let Value::Table(entries) = node.value else {
            panic!("a table")
        };
        assert_eq!(
            help("mbps_rd", &entries, LIMIT, false).as_deref(),
            Some("write read = \"20 MiB/s\" in [vm.objective.limit]")
        );
    }

    #[test]
    fn json_gets_json() {
        let node = Node::from_json(&serde_json::json!({ "iops_rd": 300 }));
        let Value::Table(entries) = node.value else {
            panic!("a table")
        };
        assert_eq!(
            help("iops_rd", &entries, "", true).as_deref(),
            Some("write {\"limit\": {\"read\": \"300 IOPS\"}} in the objective of the VM")
        );
    }
}
