//! placeholder
use crate::error::Fatal;
use crate::export::Exports;
use crate::reply::ReplyStyle;
use crate::session::*;
#[derive(Debug)]
pub(crate) struct Handshake {}
pub(crate) enum Event {
    NeedMore(usize),
    Output,
    Abort,
    Open {
        opened: Box<Opened>,
        at: u64,
        shutting_down: bool,
    },
}
impl Handshake {
    pub(crate) fn new(_o: &mut Output) -> Self {
        Handshake {}
    }
    pub(crate) fn handle(
        &mut self,
        _i: &[u8],
        _e: &dyn Exports,
        _o: &mut Output,
        _l: &Limits,
    ) -> Result<(usize, Event), Fatal> {
        Ok((0, Event::NeedMore(1)))
    }
    pub(crate) fn shut_down(&mut self) {}
    pub(crate) fn style(&self) -> ReplyStyle {
        ReplyStyle::Simple
    }
    pub(crate) fn memory(&self) -> usize {
        0
    }
}
