//! Reader of configuration documents that reports every mistake with its place, all at once.
//!
//! The daemon's configuration file, the simulator's scenarios and the control API's JSON describe
//! devices, policies and objectives with the same keys, which are read here. Crates above define
//! whole documents. Documents are read field by field from a tree ([`node`]) instead of by a
//! derived deserializer, which would stop at the first mistake.
//!
//! ```text
//!   TOML --> node tree --+--> Section, Field --> configuration, and warnings
//!   JSON ----------------+       |
//!                                +--> Diagnostic (field, place, found, allowed)
//! ```
//!
//! A reader takes the keys of a table one by one, each with its allowed values, and then calls
//! [`Section::finish`], which reports every key that was not taken as unknown. A field that returns
//! `None` was wrong and has been reported; the reader goes on with the other fields and fails at
//! the end.
//!
//! ```
//! use tidegate_config::{Field, Names, Section, document};
//! use tidegate_core::time::Nanos;
//!
//! struct Job {
//!     name: String,
//!     block: u64,
//!     pause: Nanos,
//! }
//!
//! fn job(field: &Field<'_>, names: &mut Names) -> Option<Job> {
//!     let field = field.labelled("job");
//!     let mut section = Section::open(&field)?;
//!     let name = section.require_unique_name("job", "scan", names);
//!     let block = section.read("block", 4096, |field| field.bytes(512..=1 << 20));
//!     let pause = section.read("pause", Nanos::ZERO, |field| {
//!         field.duration(Nanos::ZERO..=Nanos::from_secs(60))
//!     });
//!     section.finish();
//!     Some(Job { name: name?, block: block?, pause: pause? })
//! }
//!
//! fn jobs(root: &Field<'_>) -> Option<Vec<Job>> {
//!     let mut section = Section::open(root)?;
//!     let mut names = Names::default();
//!     let jobs: Vec<_> = (section.take_tables("job").iter())
//!         .map(|field| job(field, &mut names))
//!         .collect();
//!     section.finish();
//!     jobs.into_iter().collect()
//! }
//!
//! let text = "[[job]]\nname = \"scan\"\nblock = \"64 KiB\"\npause = \"2 ms\"\n";
//! let jobs_read = document::read(text, "jobs.toml", jobs)?.config;
//! assert_eq!((jobs_read[0].name.as_str(), jobs_read[0].block), ("scan", 65536));
//! assert_eq!(jobs_read[0].pause, Nanos::from_millis(2));
//!
//! let text = "[[job]]\nname = \"scan\"\nblok = \"64 KiB\"\npause = 2\n";
//! let refused = document::read(text, "jobs.toml", jobs).map(|_| ()).unwrap_err();
//! assert_eq!(
//!     refused.to_string(),
//!     r#"error: job "scan": unknown key `blok`
//!   --> jobs.toml:3:1
//!   |
//! 3 | blok = "64 KiB"
//!   | ^^^^
//!   help: did you mean `block`?
//!
//! error: job "scan": pause: 2 is a bare number, its unit is missing
//!   --> jobs.toml:4:9
//!   |
//! 4 | pause = 2
//!   |         ^
//!   help: "2 us", "2 ms" or "2 s""#
//! );
//! # Ok::<(), tidegate_config::ConfigErrors>(())
//! ```
#![forbid(unsafe_code)]

pub mod device;
pub mod diagnostic;
pub mod document;
pub mod enforced;
pub mod field;
pub mod figure;
pub mod frame;
pub mod keys;
pub mod library;
pub mod model;
pub mod moment;
mod name_form;
pub use name_form::is_name;
pub mod names;
pub mod node;
pub mod objective;
pub mod objective_view;
pub mod other_systems;
mod path;
pub mod policy;
pub mod policy_view;
pub mod profile;
pub mod recording_facts;
pub mod schedule;
pub mod schema;
pub mod section;
pub mod stat_views;
mod unit_spelling;

pub use diagnostic::{ConfigErrors, Diagnostic, Place, Severity};
pub use document::Loaded;
pub use enforced::{Unenforced, enforced_parts, newly_enforced, unenforced};
pub use field::Field;
pub use library::Library;
pub use names::Names;
pub use schedule::Schedule;
pub use section::Section;
