//! Helpers shared by several modules of the tests, beside `tidegate_testkit`.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every subject uses its own part of it"
)]

pub mod checked;
pub mod costs;
pub mod credit;
pub mod credits;
pub mod crowd;
pub mod lab;
mod oracle_test;
pub mod tuned;

pub(crate) use oracle_test::oracle_test;
pub use tidegate_testkit::*;
