//! The scheduling engine of Tidegate, sans-I/O.
//!
//! It knows no clock, file, thread or socket: a driver hands in requests, completions and the
//! time, and asks what the device does next. The daemon and the simulator drive the same code.
//!
//! ```
//! use tidegate_core::engine::{DiskSpec, Engine, EngineConfig};
//! use tidegate_core::{objective::Objective, policy::PolicySpec, request::Request, time::Nanos};
//!
//! let mut engine = Engine::new(EngineConfig::default(), &PolicySpec::named("mclock")?)?;
//! let now = Nanos::ZERO;
//! let vm = engine.add_vm(now, &Objective::default())?;
//! let disk = engine.add_disk(vm, DiskSpec { base: 0, size: 1 << 30, read_only: false })?;
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

pub mod budget;
pub mod control;
pub mod device;
pub mod dispatch;
pub mod ends;
pub mod engine;
pub mod estimator;
pub mod expect;
pub mod facts;
pub mod fenwick;
pub mod fit;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
pub mod heap;
pub mod jobs;
pub mod learnt;
pub mod names;
pub mod objective;
pub mod pace;
pub mod part;
pub mod pattern;
pub mod policy;
pub mod precision;
pub mod profile;
pub mod random;
pub mod regulate;
pub mod request;
pub mod roles;
pub mod seconds;
mod slots;
pub mod starvation;
pub mod stats;
mod steer;
pub mod time;
pub mod tournament;
pub mod treap;
pub mod tree;
pub mod tuning;
pub mod watch;
