//! Values that daemons publish: `members/HOST` and `clocks/HOST` under a lease, and
//! `reservations/HOST`, which stays.
//!
//! A member is read leniently, because no one writes it back: of a record of another version it
//! counts that it is there. A reservation decides where a transfer may be placed, so one that is
//! not understood is an error.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class;

use super::value::SCHEMA;
use crate::clock::PublishedClock;
use crate::membership::{MemberDevice, Membership, PublishedTransfer, RegisteredDaemon};

/// Value of `reservations/HOST`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReservationValue {
    schema: u32,
    /// Bytes per second by device.
    pub(crate) devices: BTreeMap<String, u64>,
    pub(crate) written_ns: u64,
    /// True once the daemon has left in order.
    pub(crate) left: bool,
}

impl ReservationValue {
    /// Creates the value of a daemon that is registered.
    pub(crate) fn new(devices: BTreeMap<String, u64>, written: Nanos) -> ReservationValue {
        ReservationValue {
            schema: SCHEMA,
            devices,
            written_ns: written.0,
            left: false,
        }
    }

    /// Returns the membership of a host whose daemon is not registered.
    pub(super) fn to_membership(&self) -> Membership {
        Membership {
            reserved: self.devices.clone(),
            written: Nanos(self.written_ns),
            has_left: self.left,
            daemon: None,
        }
    }
}

/// Value of `clocks/HOST`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(crate) struct ClockValue {
    schema: u32,
    /// Time at which it was written, by the wall clock of the host.
    time_ns: u64,
}

impl ClockValue {
    pub(crate) fn new(time: Nanos) -> ClockValue {
        ClockValue {
            schema: SCHEMA,
            time_ns: time.0,
        }
    }

    /// Returns the clock of a host; `None`: the value is damaged or of another version, and says
    /// nothing of that clock.
    pub(super) fn read(host: &str, value: &[u8]) -> Option<PublishedClock> {
        let read = serde_json::from_slice::<ClockValue>(value).ok();
        let read = read.filter(|read| read.schema == SCHEMA)?;
        Some(PublishedClock {
            host: host.to_owned(),
            time: Nanos(read.time_ns),
        })
    }
}

/// Value of `members/HOST`.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub(crate) struct MemberValue {
    pub(crate) schema: u32,
    pub(crate) instance: String,
    /// Time of the registration.
    pub(crate) joined_ns: u64,
    pub(crate) version: String,
    pub(crate) api: Option<String>,
    pub(crate) vms: usize,
    pub(crate) devices: Vec<MemberDeviceValue>,
}

/// Device in the value of `members/HOST`.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub(crate) struct MemberDeviceValue {
    pub(crate) name: String,
    pub(crate) policy: Option<String>,
    pub(crate) vms: usize,
    pub(crate) reserved_bytes_per_s: u64,
    /// Answer of `GET /v1/budget` for the device.
    pub(crate) budget: Option<serde_json::Value>,
    /// Names of the VMs.
    pub(crate) vm_names: Option<Vec<String>>,
    /// Running transfers.
    pub(crate) transfers: Option<Vec<PublishedTransferValue>>,
}

/// Running transfer in the value of `members/HOST`.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub(crate) struct PublishedTransferValue {
    vm: String,
    bytes: u64,
    moved_bytes: u64,
    due_ns: u64,
    class: String,
    as_of_ns: u64,
}

impl PublishedTransferValue {
    /// Creates the value of a transfer.
    pub(crate) fn new(transfer: &PublishedTransfer) -> PublishedTransferValue {
        PublishedTransferValue {
            vm: transfer.vm.clone(),
            bytes: transfer.bytes,
            moved_bytes: transfer.moved,
            due_ns: transfer.due.0,
            class: transfer.class.name().to_owned(),
            as_of_ns: transfer.as_of.0,
        }
    }

    fn into_record(self) -> PublishedTransfer {
        let mut classes = Class::ALL.into_iter();
        let class = classes.find(|class| class.name() == self.class);
        PublishedTransfer {
            vm: self.vm,
            bytes: self.bytes,
            moved: self.moved_bytes.min(self.bytes),
            due: Nanos(self.due_ns),
            class: class.unwrap_or_default(),
            as_of: Nanos(self.as_of_ns),
        }
    }
}

impl MemberValue {
    /// Reads a value of any version: what cannot be read is empty.
    pub(crate) fn read(value: &[u8]) -> MemberValue {
        serde_json::from_slice(value).unwrap_or_default()
    }

    pub(super) fn into_record(self) -> RegisteredDaemon {
        let device = |device: MemberDeviceValue| MemberDevice {
            name: device.name,
            policy: device.policy,
            vms: device.vms,
            reserved_bytes_per_s: device.reserved_bytes_per_s,
            budget: device.budget,
            vm_names: device.vm_names,
            transfers: device.transfers.map(|all| {
                let all = all.into_iter();
                // One without a size is of another version.
                let all = all.filter(|transfer| transfer.bytes > 0);
                all.map(PublishedTransferValue::into_record).collect()
            }),
        };
        RegisteredDaemon {
            instance: self.instance,
            joined: Nanos(self.joined_ns),
            version: self.version,
            api: self.api,
            vms: self.vms,
            devices: self.devices.into_iter().map(device).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreError;
    use crate::store::etcd::records::{KeyValue, Records};

    fn read_all(pairs: &[(&str, &str)]) -> Result<BTreeMap<String, Membership>, StoreError> {
        let pair = |(key, value): &(&str, &str)| KeyValue {
            key: (*key).to_owned(),
            value: Some(value.as_bytes().to_vec()),
            version: 3,
            created: 2,
        };
        let records = Records::read("/t/", pairs.iter().map(pair).collect(), 3)?;
        Ok(records.snapshot().state.memberships)
    }

    #[test]
    fn a_clock_is_read_as_it_was_written_and_another_one_is_left_out() {
        let clock = ClockValue::new(Nanos(7));
        let text = serde_json::to_string(&clock).expect("JSON");
        assert_eq!(text, r#"{"schema":1,"time_ns":7}"#);
        let read = ClockValue::read("a", text.as_bytes()).expect("a clock");
        assert_eq!((read.host.as_str(), read.time), ("a", Nanos(7)));
        for other in [r#"{"schema":2,"time_ns":7}"#, r#"{"schema":1}"#, "["] {
            assert_eq!(ClockValue::read("a", other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn what_a_daemon_publishes_of_its_vms_and_transfers_is_read() {
        let transfer = PublishedTransfer {
            vm: "dss".to_owned(),
            bytes: 900,
            moved: 300,
            due: Nanos(8),
            class: Class::Idle,
            as_of: Nanos(5),
        };
        let device = MemberDeviceValue {
            name: "sda".to_owned(),
            vm_names: Some(vec!["dss".to_owned()]),
            transfers: Some(vec![PublishedTransferValue::new(&transfer)]),
            ..MemberDeviceValue::default()
        };
        let value = MemberValue {
            devices: vec![device],
            ..MemberValue::default()
        };
        let written = serde_json::to_vec(&value).expect("JSON");
        let read = MemberValue::read(&written).into_record();
        assert_eq!(read.devices[0].transfers, Some(vec![transfer]));
        assert_eq!(read.devices[0].serves("dss"), Some(true));
        assert_eq!(read.devices[0].serves("oltp"), Some(false));
        // Values of an earlier version, and of one whose fields have other meanings.
        let earlier = MemberValue::read(br#"{"schema":1,"devices":[{"name":"sda","vms":1}]}"#);
        let earlier = earlier.into_record();
        assert_eq!(earlier.devices[0].serves("dss"), None);
        assert_eq!(earlier.devices[0].transfers, None);
        let other = br#"{"devices":[{"transfers":[{"vm":"x"},{"bytes":2,"moved_bytes":7}]}]}"#;
        let other = MemberValue::read(other).into_record();
        let transfers = other.devices[0].transfers.as_ref().expect("published");
        assert_eq!((transfers.len(), transfers[0].moved), (1, 2));
    }

    #[test]
    fn a_member_of_another_version_is_there_and_a_reservation_is_refused() {
        let newer = r#"{"schema":2,"instance":"1f","devices":[{"name":"sda","tint":1}]}"#;
        let reserved = r#"{"schema":1,"devices":{"sda":7},"written_ns":5,"left":false}"#;
        let read = read_all(&[
            ("members/a", newer),
            ("members/b", "["),
            ("reservations/a", reserved),
        ]);
        let read = read.expect("understood");
        assert_eq!(read["a"].reserved_on(None), 7);
        let daemon = read["a"].daemon.as_ref().expect("there");
        assert_eq!((daemon.instance.as_str(), daemon.devices.len()), ("1f", 1));
        assert_eq!(read["b"].daemon.as_ref().expect("there").instance, "");
        for wrong in [r#"{"schema":2}"#, r#"{"schema":1,"devices":{}}"#] {
            let refused = read_all(&[("reservations/a", wrong)]).expect_err(wrong);
            assert!(
                refused.to_string().contains("/t/reservations/a"),
                "{refused}"
            );
        }
    }
}
