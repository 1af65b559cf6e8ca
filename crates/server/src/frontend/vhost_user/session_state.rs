//! State of a session that goes on in another daemon, with its files.
//!
//! Rings, requests in flight and guest memory stay where they are. A state says where that is; what
//! a front-end may not ask for by messages is refused in a state as well.

use std::convert::Infallible;

use serde::{Deserialize, Serialize};

use super::cache_mode::CacheMode;
use super::guest_memory::RegionAddress;
use super::inflight::RecordState;
use super::virtqueue::RingAddresses;

/// State of a session that rests between two messages. `F` is a file, or its number in a message
/// to another daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SessionState<F> {
    /// Key of the listening socket that the front-end has connected to.
    pub(crate) listener: String,
    /// Connection to the front-end. Messages that it has sent and that were not begun are in it.
    pub(crate) socket: F,
    /// Features that driver and front-end accepted.
    pub(crate) features: u64,
    pub(crate) protocol_features: u64,
    /// Block size in bytes in the configuration space that the driver has read.
    pub(crate) block_size: u32,
    /// Maximum length of a request with a payload in bytes, from which the configuration space
    /// follows.
    pub(crate) payload_max: u32,
    /// Socket of the front-end for notices.
    pub(crate) notices: Option<F>,
    /// Size in bytes that the front-end knows.
    pub(crate) known_size: Option<u64>,
    pub(crate) cache: CacheMode,
    pub(crate) regions: Vec<RegionState<F>>,
    pub(crate) record: Option<RecordState<F>>,
    /// Queues from the first to the last that was described.
    pub(crate) queues: Vec<QueueState<F>>,
    /// True once a queue has taken requests.
    pub(crate) guest_has_run: bool,
}

/// Region of guest memory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct RegionState<F> {
    pub(crate) address: RegionAddress,
    pub(crate) file: F,
}

/// Queue as messages have described it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct QueueState<F> {
    pub(crate) size: u16,
    pub(crate) addresses: Option<RingAddresses>,
    /// Index of the next available entry when the queue stood last. That of a queue with a record
    /// follows from the record.
    pub(crate) base: u16,
    pub(crate) kick: Option<F>,
    pub(crate) call: Option<F>,
    /// State by `SET_VRING_ENABLE`.
    pub(crate) enabled: Option<bool>,
    /// True if the queue was started, also if its rings are not in the memory table now.
    pub(crate) is_started: bool,
}

impl<F> SessionState<F> {
    /// Replaces each file.
    ///
    /// # Errors
    /// The first error of `file`.
    pub(crate) fn try_map<T, E>(
        self,
        mut file: impl FnMut(F) -> Result<T, E>,
    ) -> Result<SessionState<T>, E> {
        let socket = file(self.socket)?;
        let notices = self.notices.map(&mut file).transpose()?;
        let mut regions = Vec::with_capacity(self.regions.len());
        for RegionState { address, file: of } in self.regions {
            let file = file(of)?;
            regions.push(RegionState { address, file });
        }
        let record = match self.record {
            None => None,
            Some(record) => Some(RecordState {
                file: file(record.file)?,
                offset: record.offset,
                bytes: record.bytes,
                queues: record.queues,
                entries: record.entries,
            }),
        };
        let mut queues = Vec::with_capacity(self.queues.len());
        for queue in self.queues {
            queues.push(QueueState {
                kick: queue.kick.map(&mut file).transpose()?,
                call: queue.call.map(&mut file).transpose()?,
                size: queue.size,
                addresses: queue.addresses,
                base: queue.base,
                enabled: queue.enabled,
                is_started: queue.is_started,
            });
        }
        Ok(SessionState {
            listener: self.listener,
            socket,
            features: self.features,
            protocol_features: self.protocol_features,
            block_size: self.block_size,
            payload_max: self.payload_max,
            notices,
            known_size: self.known_size,
            cache: self.cache,
            regions,
            record,
            queues,
            guest_has_run: self.guest_has_run,
        })
    }

    /// Replaces each file, which cannot fail.
    pub(crate) fn map<T>(self, mut file: impl FnMut(F) -> T) -> SessionState<T> {
        match self.try_map(|of| Ok::<T, Infallible>(file(of))) {
            Ok(state) => state,
            Err(never) => match never {},
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state() -> SessionState<u32> {
        SessionState {
            listener: "unix /run/disk.sock".to_owned(),
            socket: 4,
            features: 0x1_7000_0200,
            protocol_features: 8,
            block_size: 512,
            payload_max: 1 << 20,
            notices: Some(5),
            known_size: Some(4 << 20),
            cache: CacheMode::default(),
            regions: vec![RegionState {
                address: RegionAddress {
                    guest: 4096,
                    user: 8192,
                    len: 65536,
                    offset: 0,
                },
                file: 6,
            }],
            record: Some(RecordState {
                file: 7,
                offset: 0,
                bytes: 2176,
                queues: 2,
                entries: 64,
            }),
            queues: vec![QueueState {
                size: 64,
                addresses: Some(RingAddresses {
                    descriptors: 8192,
                    available: 12288,
                    used: 16384,
                }),
                base: 9,
                kick: Some(8),
                call: None,
                enabled: Some(true),
                is_started: true,
            }],
            guest_has_run: true,
        }
    }

    /// The form of the first build that handed sessions over: later ones read and write it.
    #[test]
    fn a_state_has_its_form_between_daemons() {
        let form = json!({
            "listener": "unix /run/disk.sock",
            "socket": 4,
            "features": 0x1_7000_0200_u64,
            "protocol_features": 8,
            "block_size": 512,
            "payload_max": 1048576,
            "notices": 5,
            "known_size": 4194304,
            "cache": {"writeback": null, "shown": null, "is_certain": false, "is_open": false},
            "regions": [{
                "address": {"guest": 4096, "user": 8192, "len": 65536, "offset": 0},
                "file": 6
            }],
            "record": {"file": 7, "offset": 0, "bytes": 2176, "queues": 2, "entries": 64},
            "queues": [{
                "size": 64,
                "addresses": {"descriptors": 8192, "available": 12288, "used": 16384},
                "base": 9,
                "kick": 8,
                "call": null,
                "enabled": true,
                "is_started": true
            }],
            "guest_has_run": true
        });
        let state = state();
        assert_eq!(serde_json::to_value(&state).expect("plain"), form);
        let read: SessionState<u32> = serde_json::from_value(form).expect("understood");
        assert_eq!(read, state);
        // Files by their numbers, each once.
        let mut files = Vec::new();
        let copy = read.map(|number| {
            files.push(number);
            number
        });
        assert_eq!((copy, files), (state, vec![4, 5, 6, 7, 8]));
    }
}
