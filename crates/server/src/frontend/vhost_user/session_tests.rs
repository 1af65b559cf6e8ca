//! Tests of what messages set up.

use std::os::fd::{AsRawFd, OwnedFd};

use super::super::config_space::FLUSH;
use super::super::guest_memory::testing::memfd;
use super::super::inflight;
use super::super::inflight::RecordState;
use super::super::session_state::{QueueState, RegionState, SessionState};
use super::*;
use crate::ownership::Ownership;
use crate::ring::{Wake, sys};

fn volume() -> Volume {
    Volume {
        serial: 1,
        name: "disk".into(),
        size: 1 << 20,
        block_size: 512,
        physical_block: 4096,
        payload_max: 32 << 20,
        read_only: false,
        rotational: false,
        identity: None,
        activation: None,
    }
}

/// Messages of a front-end; returns whether each write must then be durable.
fn stable_writes(messages: impl FnOnce(&mut Device) -> Result<()>) -> bool {
    let (socket, _peer) = UnixStream::pair().expect("sockets");
    let current = Box::new(|| Some(volume()));
    let session = Session::new(socket, volume(), current, Arc::default());
    let (session, opening) = session.expect("a session");
    messages(&mut lock(&session.device)).expect("they are sound");
    opening.mailbox.stable_writes()
}

#[test]
fn writes_are_durable_unless_the_driver_can_flush_and_has_a_write_back_cache() {
    let (flush, mode) = (1 << FLUSH, 1 << CONFIG_WCE);
    let read = |device: &mut Device| device.get_config(0, 60, VhostUserConfigFlags::empty());
    let set = |device: &mut Device, writeback| {
        let at = config_space::WRITEBACK;
        device.set_config(at, &[writeback], VhostUserConfigFlags::WRITABLE)
    };
    assert!(stable_writes(|_| Ok(())), "before anything is known");
    assert!(stable_writes(|device| device.set_features(0)));
    assert!(!stable_writes(|device| device.set_features(flush)));
    assert!(
        stable_writes(|device| device.set_features(flush | mode)),
        "the driver may know a mode of an earlier session"
    );
    assert!(!stable_writes(|device| {
        read(device)?;
        device.set_features(flush | mode)
    }));
    assert!(stable_writes(|device| {
        read(device)?;
        device.set_features(flush | mode)?;
        set(device, 0)
    }));
    assert!(stable_writes(|device| {
        read(device)?;
        set(device, 0)?;
        device.set_features(flush | mode)
    }));
    assert!(!stable_writes(|device| {
        device.set_features(flush | mode)?;
        set(device, 0)?;
        set(device, 1)
    }));
    assert!(
        stable_writes(|device| {
            device.set_features(mode)?;
            set(device, 1)
        }),
        "without flushes nothing else makes them durable"
    );
    assert!(
        stable_writes(|device| {
            read(device)?;
            device.set_features(flush | mode)?;
            set(device, 0)?;
            // A reboot of the guest, whose hypervisor still shows the mode that was set.
            device.reset_device()?;
            device.set_features(flush | mode)
        }),
        "the mode that was set stays"
    );
}

#[test]
fn a_session_that_never_runs_ends_its_connection() {
    let (socket, _peer) = UnixStream::pair().expect("sockets");
    let session = Session::new(socket, volume(), Box::new(|| None), Arc::default());
    let (session, opening) = session.expect("a session");
    assert!(!opening.mailbox.has_left());
    drop(session);
    assert!(opening.mailbox.has_left());
}

#[test]
fn only_the_cache_mode_can_be_written_and_only_where_it_was_negotiated() {
    let write = |features, offset, bytes: &'static [u8]| {
        let (socket, _peer) = UnixStream::pair().expect("sockets");
        let (session, _opening) =
            Session::new(socket, volume(), Box::new(|| None), Arc::default()).expect("a session");
        let mut device = lock(&session.device);
        device.set_features(features).expect("offered");
        let flags = VhostUserConfigFlags::WRITABLE;
        device.set_config(offset, bytes, flags).is_ok()
    };
    let mode = 1 << CONFIG_WCE;
    assert!(write(mode, 32, &[0]));
    assert!(!write(0, 32, &[0]));
    assert!(!write(mode, 32, &[2]));
    assert!(!write(mode, 31, &[0]));
    assert!(!write(mode, 32, &[0, 0]));
    assert!(!write(mode, 0, &[0; 8]));
}

#[test]
fn a_driver_that_set_its_cache_mode_finds_it_in_the_next_session() {
    let asked = VhostUserInflight::new(0, 0, 1, 128);
    let mut kept = None;
    stable_writes(|device| {
        kept = Some(device.get_inflight_fd(&asked)?);
        Ok(())
    });
    let (given, file) = kept.expect("the session made it");
    // Hands the record over after the features, as QEMU does.
    let begin = |device: &mut Device| {
        device.set_features(1 << FLUSH | 1 << CONFIG_WCE)?;
        device.set_inflight_fd(&given, file.try_clone().expect("a descriptor"))
    };
    let set = |device: &mut Device, writeback| {
        let at = config_space::WRITEBACK;
        device.set_config(at, &[writeback], VhostUserConfigFlags::WRITABLE)
    };
    let read = |device: &mut Device| device.get_config(0, 60, VhostUserConfigFlags::empty());
    assert!(stable_writes(begin), "nobody has recorded a mode");
    assert!(!stable_writes(|device| {
        read(device)?;
        begin(device)
    }));
    assert!(!stable_writes(begin), "the mode that the driver has read");
    assert!(stable_writes(|device| {
        begin(device)?;
        set(device, 0)
    }));
    assert!(stable_writes(begin));
    assert!(
        stable_writes(|device| {
            read(device)?;
            begin(device)
        }),
        "the driver set it after it had read it"
    );
    assert!(!stable_writes(|device| {
        begin(device)?;
        set(device, 1)
    }));
    assert!(
        stable_writes(begin),
        "the front-end had no answer when the session ended"
    );
    assert!(!stable_writes(|device| {
        begin(device)?;
        set(device, 1)?;
        // The answer has been sent.
        device.keep_cache_mode();
        Ok(())
    }));
    assert!(!stable_writes(begin));
}

/// Disk that arrives when a queue starts, or has been here all the time.
struct Arriving(Option<Arrival>);

impl QueueUser for Arriving {
    fn begin(&mut self) -> std::result::Result<(), String> {
        Ok(())
    }

    fn take_arrival(&mut self) -> Option<Arrival> {
        self.0.take()
    }

    fn is_settled(&self) -> bool {
        self.0.is_none()
    }

    fn set_cache_mode(&mut self, _: Option<bool>) {}

    fn start_failed(&mut self) {}

    fn end(&mut self, _: bool) -> std::result::Result<(), String> {
        Ok(())
    }
}

/// Has a queue start after the disk has arrived with a cache mode.
fn arrive(device: &mut Device, writeback: Option<bool>) {
    device.user = Some(Box::new(Arriving(Some(Arrival { writeback }))));
    device.settle_cache_mode();
}

#[test]
fn a_driver_that_migrated_has_the_mode_that_came_with_its_disk_or_durable_writes() {
    let read = |device: &mut Device| device.get_config(0, 60, VhostUserConfigFlags::empty());
    let set = |device: &mut Device, writeback| {
        let at = config_space::WRITEBACK;
        device.set_config(at, &[writeback], VhostUserConfigFlags::WRITABLE)
    };
    // QEMU reads the configuration for itself, before the guest arrives.
    let migrated = |device: &mut Device, writeback| {
        read(device)?;
        device.set_features(1 << FLUSH | 1 << CONFIG_WCE)?;
        arrive(device, writeback);
        Ok(())
    };
    assert!(!stable_writes(|device| migrated(device, Some(true))));
    assert!(stable_writes(|device| migrated(device, Some(false))));
    assert!(stable_writes(|device| migrated(device, None)));
    assert!(
        stable_writes(|device| {
            migrated(device, None)?;
            read(device).map(drop)
        }),
        "the front-end's read is not the driver's"
    );
    assert!(!stable_writes(|device| {
        migrated(device, None)?;
        set(device, 1)
    }));
    // A driver that starts anew reads what the front-end shows: the record is a new one.
    let asked = VhostUserInflight::new(0, 0, 1, 128);
    let starts_anew = |device: &mut Device| device.get_inflight_fd(&asked).map(drop);
    assert!(!stable_writes(|device| {
        migrated(device, None)?;
        starts_anew(device)
    }));
    assert!(!stable_writes(|device| {
        migrated(device, Some(false))?;
        device.reset_device()
    }));
    assert!(stable_writes(|device| {
        migrated(device, Some(true))?;
        set(device, 0)?;
        starts_anew(device)
    }));
    assert!(
        stable_writes(|device| {
            device.set_features(1 << FLUSH | 1 << CONFIG_WCE)?;
            arrive(device, None);
            starts_anew(device)
        }),
        "the front-end has shown nothing in this session"
    );
    assert!(
        !stable_writes(|device| {
            read(device)?;
            device.set_features(1 << FLUSH | 1 << CONFIG_WCE)?;
            device.settle_cache_mode();
            arrive(device, None);
            Ok(())
        }),
        "a migration that was cancelled: the driver is the one that was here"
    );
}

#[test]
fn a_record_says_nothing_of_a_driver_that_has_not_arrived() {
    let asked = VhostUserInflight::new(0, 0, 1, 128);
    let mut kept = None;
    let read = |device: &mut Device| device.get_config(0, 60, VhostUserConfigFlags::empty());
    stable_writes(|device| {
        device.user = Some(Box::new(Arriving(Some(Arrival { writeback: None }))));
        read(device)?;
        let (given, file) = device.get_inflight_fd(&asked)?;
        device.set_inflight_fd(&given, file.try_clone().expect("a descriptor"))?;
        // As after each message.
        device.keep_cache_mode();
        kept = Some((given, file));
        Ok(())
    });
    let (given, file) = kept.expect("the session made it");
    // The queue could not start, and the front-end connects again.
    let again = |device: &mut Device| {
        device.set_features(1 << FLUSH | 1 << CONFIG_WCE)?;
        device.set_inflight_fd(&given, file.try_clone().expect("a descriptor"))
    };
    assert!(stable_writes(|device| {
        again(device)?;
        arrive(device, None);
        Ok(())
    }));
    assert!(!stable_writes(|device| {
        again(device)?;
        arrive(device, Some(true));
        Ok(())
    }));
    assert!(
        !stable_writes(|device| {
            again(device)?;
            arrive(device, None);
            Ok(())
        }),
        "the driver's own record, after a restart of the daemon"
    );
    stable_writes(|device| {
        again(device)?;
        // A later arrival of which the record of this session knows nothing.
        device.cache = CacheMode::default();
        arrive(device, None);
        Ok(())
    });
    assert!(stable_writes(again), "an unknown mode is recorded as such");
}

/// State of a session of one queue, with memory and a record of its own.
fn state() -> SessionState<OwnedFd> {
    let region = RegionState {
        address: RegionAddress {
            guest: 0,
            user: 0x7f00_0000_0000,
            len: 1 << 20,
            offset: 0,
        },
        file: memfd(1 << 20).into(),
    };
    let layout = Layout::new(1, 64);
    let file = layout.create().expect("memory");
    assert_eq!(sys::lock(&file, true).ok(), Some(true));
    let eventfd = || Some(eventfd());
    SessionState {
        listener: "unix /disk.sock".to_owned(),
        socket: UnixStream::pair().expect("sockets").0.into(),
        features: 1 << FLUSH | 1 << config_space::PROTOCOL_FEATURES,
        protocol_features: VhostUserProtocolFeatures::REPLY_ACK.bits(),
        block_size: 512,
        payload_max: 32 << 20,
        notices: Some(UnixStream::pair().expect("sockets").0.into()),
        known_size: Some(1 << 20),
        cache: CacheMode::default(),
        regions: vec![region],
        record: Some(RecordState {
            file: file.into(),
            offset: 0,
            bytes: layout.bytes(),
            queues: 1,
            entries: 64,
        }),
        queues: vec![QueueState {
            size: 64,
            addresses: Some(RingAddresses {
                descriptors: 0x7f00_0000_0000,
                available: 0x7f00_0000_1000,
                used: 0x7f00_0000_2000,
            }),
            base: 3,
            kick: eventfd(),
            call: eventfd(),
            enabled: Some(true),
            is_started: true,
        }],
        guest_has_run: true,
    }
}

fn eventfd() -> OwnedFd {
    let eventfd = Wake::new().and_then(|wake| wake.receiver());
    eventfd.expect("a descriptor")
}

fn resumed(state: SessionState<OwnedFd>, lock: Ownership) -> std::result::Result<Session, String> {
    let current = Box::new(|| Some(volume()));
    let resumed = Session::resumed(state, volume(), current, Arc::default(), lock);
    resumed.map(|(session, _)| session)
}

#[test]
fn a_state_that_no_session_can_have_is_refused() {
    resumed(state(), Ownership::pending()).expect("a sound one");
    type Change = fn(&mut SessionState<OwnedFd>);
    let changes: [(&str, Change); 15] = [
        ("an unknown feature", |it| it.features |= 1 << 63),
        ("an unknown protocol feature", |it| {
            it.protocol_features |= 1 << 63
        }),
        ("larger blocks", |it| it.block_size = 4096),
        ("longer requests", |it| it.payload_max += 1),
        ("a region beyond its file", |it| {
            it.regions[0].address.len <<= 1
        }),
        ("a region that wraps around", |it| {
            it.regions[0].address.guest = u64::MAX
        }),
        ("a region of a file that may block", |it| {
            let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).expect("a file");
            file.set_len(1 << 20).expect("room");
            it.regions[0].file = file.into();
        }),
        ("a record without queues", |it| {
            it.record.as_mut().expect("there").queues = 0
        }),
        ("a record that is too short", |it| {
            it.record.as_mut().expect("there").bytes = 64
        }),
        ("a record that is no memory", |it| {
            it.record.as_mut().expect("there").file = eventfd()
        }),
        ("a queue that runs without a record", |it| it.record = None),
        ("a queue of a wrong size", |it| it.queues[0].size = 65),
        ("a kick that is no eventfd", |it| {
            it.queues[0].kick = Some(memfd(4096).into())
        }),
        ("notices by no socket", |it| {
            it.notices = Some(memfd(4096).into())
        }),
        ("too many queues", |it| {
            let none = || QueueState {
                size: 0,
                addresses: None,
                base: 0,
                kick: None,
                call: None,
                enabled: None,
                is_started: false,
            };
            it.queues.extend((0..QUEUES_MAX).map(|_| none()));
        }),
    ];
    for (what, change) in changes {
        let mut state = state();
        change(&mut state);
        let refused = resumed(state, Ownership::pending());
        assert!(refused.is_err(), "{what}");
    }
}

#[test]
fn the_record_of_a_session_stays_locked_until_a_daemon_that_owns_it_ends_the_session() {
    for owns in [false, true] {
        let state = state();
        let record = state.record.as_ref().expect("a record").file.as_raw_fd();
        let other = inflight::open_own(record).expect("a file in memory");
        // The other daemon has it open as well.
        let _file = state.record.as_ref().map(|it| it.file.try_clone());
        let lock = Ownership::pending();
        let session = resumed(state, lock.clone()).expect("a sound one");
        if owns {
            lock.take();
        }
        drop(session);
        assert_eq!(sys::lock(&other, true).ok(), Some(owns));
    }
}
