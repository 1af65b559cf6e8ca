//! Structural rules of the workspace's sources, and the debts that are left of them.
//!
//! `cargo test -p tidy` reads every source file, applies the [rules](RULES) and compares what it
//! finds with `crates/tidy/debts.txt`. A finding without a debt fails, and so does a debt that is
//! larger than what is left of it, so debts only shrink. `cargo run -p tidy -- --lower` writes the
//! lower figures.
//!
//! The parts: [`Workspace`] holds the sources, `parse` extracts from each file what rules ask for,
//! `modules` resolves names inside a crate, `rules` has a file for each rule, and [`Debts`]
//! compares findings with what was there before.

mod debts;
mod finding;
mod modules;
mod parse;
mod rules;
mod source;
mod workspace;

pub use debts::{Debts, Problem};
pub use finding::Finding;
pub use rules::{RULES, Rule, check};
pub use workspace::Workspace;
