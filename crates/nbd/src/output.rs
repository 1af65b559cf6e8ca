//! Buffer of handshake bytes that the session has produced and the driver has not sent yet.

use crate::wire::*;

/// Handshake output: bytes produced by the session, and how many of them the driver has sent.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) bytes: Vec<u8>,
    sent: usize,
}

impl Output {
    pub(crate) fn pending(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    pub(crate) fn consume(&mut self, n: usize) {
        assert!(
            n <= self.pending().len(),
            "more output consumed than there was"
        );
        self.sent += n;
        if self.sent == self.bytes.len() {
            // Free the buffer instead of clearing it: the reply to `NBD_OPT_LIST` may have grown it
            // to `Limits::list_len_max`.
            *self = Output::default();
        }
    }

    /// Appends one option reply whose payload is the concatenation of `data`.
    pub(crate) fn reply(&mut self, option: u32, kind: u32, data: &[&[u8]]) {
        let len: usize = data.iter().map(|d| d.len()).sum();
        self.bytes.reserve(REP_HEAD_LEN + len);
        self.put(&NBD_REP_MAGIC.to_be_bytes());
        self.put(&option.to_be_bytes());
        self.put(&kind.to_be_bytes());
        self.put(&(len as u32).to_be_bytes());
        for d in data {
            self.put(d);
        }
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
}
