//! Messages between two daemons, and their form in bytes.
//!
//! ```text
//!   "TGTO"  length of the JSON (u32)  length of the bytes (u64)  number of descriptors (u32)
//!   one byte for each group of descriptors, with the descriptors | JSON | bytes
//! ```
//!
//! Numbers are little-endian. A daemon ignores fields of the JSON that it does not know. A change
//! that an older daemon would misunderstand increases [`FORMAT`].

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_nbd::{ReplyStyle, TransmissionState};

use super::limit_state::LimitState;
use crate::frontend::vhost_user::SessionState;
use crate::membership::HandedMembership;

/// Version of the hand-over. Both daemons must have the same.
pub const FORMAT: u32 = 2;
/// First bytes of a message.
const MAGIC: [u8; 4] = *b"TGTO";
/// Length of the head of a message in bytes.
pub(super) const HEAD_LEN: usize = 20;
/// Most bytes of JSON in a message: plans of 100,000 VMs are shorter.
const JSON_MAX: u32 = 1 << 30;
/// Most bytes beside the JSON: the payloads of all requests of a host.
const BYTES_MAX: u64 = 1 << 36;
/// Most descriptors in a message.
const DESCRIPTORS_MAX: u32 = 1 << 20;

/// Message between two daemons.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub(crate) enum Message {
    /// Versions of the sender.
    Hello(Hello),
    /// The sender does not go on, and nothing has changed. From a new daemon that has taken over:
    /// the service manager may not know it.
    Refused(Problem),
    /// Inventory of the running daemon, with its listening sockets and files.
    Plan(Box<Plan>),
    /// The new daemon is about to open what the plan names.
    Prepare,
    /// The running daemon has closed its store and refuses changes.
    Prepared,
    /// The new daemon is ready: clients are to be paused.
    Pause,
    /// Connections and what was learnt, with the sockets.
    State(State),
    /// The new daemon has everything and waits for the word.
    Taken,
    /// Everything is the new daemon's.
    Yours,
    /// The service manager knows the new daemon as the main process: the running one may end. For a
    /// daemon whose [`Hello`] has a service.
    Supervised,
}

/// Versions of a daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// [`FORMAT`].
    pub(crate) format: u32,
    /// Version of Tidegate.
    pub(crate) build: String,
    /// Service of systemd whose main process the running daemon is, and the new one may become.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) service: Option<Service>,
    /// Absolute path of the new daemon's configuration file. Earlier builds do not send it, and do
    /// not compare it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) config: Option<String>,
    /// True if the sender goes on with sessions of vhost-user front-ends. Earlier builds do not,
    /// and do not send it: front-ends are closed for them.
    #[serde(default)]
    pub(crate) sessions: bool,
}

/// Service of systemd.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Service {
    /// Time in microseconds for which the watchdog waits for a notification of the running daemon.
    #[serde(default)]
    pub(crate) watchdog_us: Option<u64>,
}

impl Hello {
    /// Returns the versions of this build.
    pub(crate) fn own() -> Hello {
        Hello {
            format: FORMAT,
            build: env!("CARGO_PKG_VERSION").to_owned(),
            service: None,
            config: None,
            sessions: true,
        }
    }

    /// Returns the versions of this build, as a process of this service.
    pub(crate) fn of(service: Option<Service>) -> Hello {
        Hello {
            service,
            ..Hello::own()
        }
    }
}

/// Reason of a refusal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Problem {
    /// Mistake or obstacle.
    pub(crate) what: String,
    /// Advice for the operator.
    pub(crate) help: String,
}

/// Inventory of a running daemon. Descriptors are named by their number in the message.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// End of the [`Lifeline`](super::Lifeline).
    pub(crate) lifeline: u32,
    pub(crate) sockets: Vec<SocketPlan>,
    pub(crate) disks: Vec<DiskPlan>,
    /// VMs of the daemon's configuration file, as the file has them.
    pub(crate) file_vms: Vec<Value>,
    /// VMs that are served now.
    pub(crate) vms: Vec<VmPlan>,
    /// VMs of the store that could not be served. Others that are not served were removed. Absent
    /// in a plan of earlier builds.
    #[serde(default)]
    pub(crate) not_served: Option<Vec<String>>,
    /// Clients of all disks and of all kinds, also those that have to connect again.
    #[serde(default)]
    pub(crate) clients: Vec<ClientPlan>,
    /// Policies of the devices.
    pub(crate) policies: Vec<PolicyPlan>,
    /// Limits that disks share. Daemons that lack this field hand none over: theirs go back to
    /// those of the file.
    #[serde(default)]
    pub(crate) limit_groups: Vec<LimitGroupPlan>,
    /// Devices whose requests are recorded now.
    #[serde(default)]
    pub(crate) recorded: Vec<String>,
    /// Registration in a cluster; absent without one, and in a plan of earlier builds.
    #[serde(default)]
    pub(crate) membership: Option<HandedMembership>,
}

/// Listening socket.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SocketPlan {
    /// Address as the configuration has it.
    pub(crate) key: String,
    /// Device and inode of a unix socket's file.
    pub(crate) file: Option<(u64, u64)>,
    pub(crate) descriptor: u32,
}

/// Disk that is served, and its file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct DiskPlan {
    pub(crate) disk: DiskSummary,
    /// File of a writable disk, locked.
    pub(crate) descriptor: Option<u32>,
    /// Claim on a block device.
    pub(crate) claim: Option<u32>,
}

/// Client of a disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ClientPlan {
    pub(crate) export: String,
    pub(crate) peer: String,
}

/// Properties of a disk that both daemons must agree on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct DiskSummary {
    pub(crate) export: String,
    /// Identity of its file: true for a block device, then device and inode.
    pub(crate) file: Option<(bool, u64, u64)>,
    /// Size in bytes.
    pub(crate) size: u64,
    pub(crate) read_only: bool,
    /// True unless it waits for a guest to arrive, or is another host's.
    pub(crate) is_active: bool,
}

/// VM that is served.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct VmPlan {
    pub(crate) name: String,
    /// True if the configuration file names it.
    pub(crate) is_configured: bool,
    /// Keys of a `[[vm]]`, with absolute paths.
    pub(crate) words: Value,
}

/// Policy of a device.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct PolicyPlan {
    pub(crate) device: String,
    /// Policy of the configuration file.
    pub(crate) in_file: Value,
    /// Policy in force.
    pub(crate) in_force: Value,
}

/// Limit that disks of a device share.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct LimitGroupPlan {
    pub(crate) device: String,
    pub(crate) name: String,
    /// Limit of the configuration file, as the file could have it.
    pub(crate) in_file: Value,
    /// Limit in force; null: none.
    pub(crate) in_force: Value,
}

/// Connections and what was learnt, when nothing is in flight.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct State {
    /// Monotonic time in nanoseconds at which clients were paused.
    pub(crate) paused_at: u64,
    pub(crate) devices: Vec<DeviceState>,
    pub(crate) connections: Vec<ConnectionState>,
    /// Sessions of vhost-user front-ends, whose files follow those of connections. Absent in a
    /// state of earlier builds, which close front-ends.
    #[serde(default)]
    pub(crate) sessions: Vec<SessionPlan>,
}

/// Session of a vhost-user front-end that rests. Files are descriptors by their numbers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SessionPlan {
    pub(crate) export: String,
    pub(crate) peer: String,
    pub(crate) session: SessionState<u32>,
}

/// Learnt states of a device and its VMs.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct DeviceState {
    pub(crate) device: String,
    /// Learnt states by name of the VM.
    pub(crate) learnt: Vec<(String, Vec<u8>)>,
    /// Learnt states of the device by their names.
    pub(crate) own: Vec<(String, Vec<u8>)>,
    /// Attainment, in the form of the store.
    pub(crate) attainment: Vec<u8>,
    /// Running deadline transfers and begun placements by name of the VM, in the form of the store.
    pub(crate) transfers: Vec<(String, String)>,
    /// Use of limits. Absent in a state of earlier builds: limits begin anew.
    #[serde(default)]
    pub(crate) limits: Vec<LimitState>,
    /// Monotonic time in nanoseconds at which limits were used up as far as that.
    #[serde(default)]
    pub(crate) limits_at: u64,
}

/// NBD connection at rest. Its bytes follow those of the connection before it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ConnectionState {
    pub(crate) export: String,
    pub(crate) peer: String,
    pub(crate) descriptor: u32,
    /// Size of the export in bytes, as the client knows it.
    pub(crate) size: u64,
    /// Number of bytes behind `input` that are to be discarded.
    pub(crate) skip: u64,
    pub(crate) block_min: u32,
    pub(crate) payload_max: u32,
    pub(crate) flags: u16,
    pub(crate) structured_replies: bool,
    pub(crate) context: Option<u32>,
    /// Number of bytes that were received and not answered.
    pub(crate) input: u64,
    /// Number of bytes of replies that were not sent.
    pub(crate) unsent: u64,
}

impl ConnectionState {
    /// Returns what a session needs.
    pub(crate) fn transmission(&self) -> TransmissionState {
        TransmissionState {
            size: self.size,
            skip: self.skip,
            block_min: self.block_min,
            payload_max: self.payload_max,
            flags: self.flags,
            style: match self.structured_replies {
                true => ReplyStyle::Structured,
                false => ReplyStyle::Simple,
            },
            has_context: self.context.is_some(),
        }
    }
}

/// Sizes of the parts of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(super) json: u32,
    pub(super) bytes: u64,
    pub(super) descriptors: u32,
}

impl Head {
    pub(super) fn encode(self) -> [u8; HEAD_LEN] {
        let mut out = [0; HEAD_LEN];
        out[..4].copy_from_slice(&MAGIC);
        out[4..8].copy_from_slice(&self.json.to_le_bytes());
        out[8..16].copy_from_slice(&self.bytes.to_le_bytes());
        out[16..].copy_from_slice(&self.descriptors.to_le_bytes());
        out
    }

    /// Reads a head.
    ///
    /// # Errors
    /// If it is that of another protocol, or a size is beyond what a daemon sends.
    pub(super) fn decode(bytes: &[u8; HEAD_LEN]) -> Result<Head, String> {
        if bytes[..4] != MAGIC {
            return Err("the peer does not speak the protocol of a takeover".to_owned());
        }
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let long = u64::from_le_bytes(bytes[8..16].try_into().expect("eight"));
        let head = Head {
            json: number(4),
            bytes: long,
            descriptors: number(16),
        };
        let fits =
            head.json <= JSON_MAX && head.bytes <= BYTES_MAX && head.descriptors <= DESCRIPTORS_MAX;
        fits.then_some(head)
            .ok_or_else(|| format!("a message is too long: {head:?}"))
    }
}

/// Takes descriptors and bytes of a received message in any order.
#[derive(Debug)]
pub(crate) struct Reader<T> {
    descriptors: Vec<Option<T>>,
    bytes: Vec<u8>,
    taken: usize,
}

impl<T> Reader<T> {
    pub(crate) fn new(descriptors: Vec<T>, bytes: Vec<u8>) -> Reader<T> {
        Reader {
            descriptors: descriptors.into_iter().map(Some).collect(),
            bytes,
            taken: 0,
        }
    }

    /// Takes a descriptor.
    ///
    /// # Errors
    /// If there is none of this number, or it was taken.
    pub(crate) fn descriptor(&mut self, number: u32) -> Result<T, String> {
        let there = self.descriptors.get_mut(number as usize);
        let taken = there.and_then(Option::take);
        taken.ok_or_else(|| format!("descriptor {number} is missing"))
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// If there are fewer.
    pub(crate) fn bytes(&mut self, len: u64) -> Result<Vec<u8>, String> {
        let rest = &self.bytes[self.taken..];
        let taken = usize::try_from(len).ok().and_then(|len| rest.get(..len));
        let taken = taken
            .ok_or_else(|| format!("{len} bytes are missing"))?
            .to_vec();
        self.taken += taken.len();
        Ok(taken)
    }
}
