//! Requests as the parsers of formats return them.

use super::{Op, Took};
use std::borrow::Cow;
use tidegate_core::time::Nanos;

/// Record as a format's parser returns it, with the disk's name and an unchecked length.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct RawRecord<'a> {
    pub(super) at: Nanos,
    pub(super) disk: Cow<'a, str>,
    pub(super) op: Op,
    pub(super) fua: bool,
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) took: Took,
}

/// Meaning of a line.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Parsed<'a> {
    /// Request.
    Request(RawRecord<'a>),
    /// Request without bytes, such as a flush.
    Other,
    /// No request: names of columns, or an action on a file.
    Nothing,
}
