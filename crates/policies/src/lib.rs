//! Policies for the engine: controllers, regulators and dispatchers, and the registry of named
//! compositions of them.
//!
//! ```
//! use tidegate_core::engine::{DiskSpec, Engine, EngineConfig};
//! use tidegate_core::{objective::Objective, request::Request, time::Nanos};
//! use tidegate_policies::policy::PolicySpec;
//!
//! let mut engine = Engine::new(EngineConfig::default(), &PolicySpec::named("mclock")?)?;
//! let now = Nanos::ZERO;
//! let vm = engine.vms_mut().add_vm(now, &Objective::default())?;
//! let disk = DiskSpec { base: 0, size: 1 << 30, read_only: false };
//! let disk = engine.vms_mut().add_disk(vm, disk)?;
//! let client = engine.connect(disk)?;
//!
//! engine.handle_request(now, client, Request::read(4096, 4096, 7))?;
//! let io = engine.poll_dispatch(now).expect("the device is idle, so it goes at once");
//! assert_eq!((io.addr, io.len), (4096, 4096));
//!
//! engine.handle_completion(now + Nanos::from_millis(8), io.id, Ok(()));
//! let done = engine.poll_done().expect("its only I/O has ended");
//! assert_eq!(done.tag, 7);
//! assert_eq!(done.account.device, Nanos::from_millis(8));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod control;
pub mod dispatch;
pub mod fenwick;
pub mod pattern;
pub mod policy;
pub mod regulate;
pub mod tournament;
pub mod treap;
pub mod tree;
