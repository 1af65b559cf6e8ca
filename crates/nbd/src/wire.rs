//! Constants of the NBD protocol under the specification's names, and big-endian field access.

/// Longest protocol string in bytes ("Values", strings): export names, messages, queries.
pub const NAME_LEN_MAX: usize = 4096;

/// Length of a request header in bytes ("Request message").
pub const REQUEST_LEN: usize = 28;

// Handshake phase.
pub(crate) const NBDMAGIC: u64 = 0x4e42_444d_4147_4943;
pub(crate) const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
pub(crate) const NBD_REP_MAGIC: u64 = 0x0003_e889_0455_65a9;

pub(crate) const NBD_FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
pub(crate) const NBD_FLAG_NO_ZEROES: u16 = 1 << 1;
pub(crate) const NBD_FLAG_C_FIXED_NEWSTYLE: u32 = 1 << 0;
pub(crate) const NBD_FLAG_C_NO_ZEROES: u32 = 1 << 1;

pub(crate) const NBD_OPT_EXPORT_NAME: u32 = 1;
pub(crate) const NBD_OPT_ABORT: u32 = 2;
pub(crate) const NBD_OPT_LIST: u32 = 3;
pub(crate) const NBD_OPT_STARTTLS: u32 = 5;
pub(crate) const NBD_OPT_INFO: u32 = 6;
pub(crate) const NBD_OPT_GO: u32 = 7;
pub(crate) const NBD_OPT_STRUCTURED_REPLY: u32 = 8;
pub(crate) const NBD_OPT_LIST_META_CONTEXT: u32 = 9;
pub(crate) const NBD_OPT_SET_META_CONTEXT: u32 = 10;

/// Length of the header of an option reply in bytes.
pub(crate) const REP_HEAD_LEN: usize = 20;

pub(crate) const NBD_REP_ACK: u32 = 1;
pub(crate) const NBD_REP_SERVER: u32 = 2;
pub(crate) const NBD_REP_INFO: u32 = 3;
pub(crate) const NBD_REP_META_CONTEXT: u32 = 4;
pub(crate) const NBD_REP_FLAG_ERROR: u32 = 1 << 31;
pub(crate) const NBD_REP_ERR_UNSUP: u32 = NBD_REP_FLAG_ERROR | 1;
pub(crate) const NBD_REP_ERR_POLICY: u32 = NBD_REP_FLAG_ERROR | 2;
pub(crate) const NBD_REP_ERR_INVALID: u32 = NBD_REP_FLAG_ERROR | 3;
pub(crate) const NBD_REP_ERR_TLS_REQD: u32 = NBD_REP_FLAG_ERROR | 5;
pub(crate) const NBD_REP_ERR_UNKNOWN: u32 = NBD_REP_FLAG_ERROR | 6;
pub(crate) const NBD_REP_ERR_SHUTDOWN: u32 = NBD_REP_FLAG_ERROR | 7;
pub(crate) const NBD_REP_ERR_BLOCK_SIZE_REQD: u32 = NBD_REP_FLAG_ERROR | 8;
pub(crate) const NBD_REP_ERR_TOO_BIG: u32 = NBD_REP_FLAG_ERROR | 9;

pub(crate) const NBD_INFO_EXPORT: u16 = 0;
pub(crate) const NBD_INFO_NAME: u16 = 1;
pub(crate) const NBD_INFO_DESCRIPTION: u16 = 2;
pub(crate) const NBD_INFO_BLOCK_SIZE: u16 = 3;

/// Name of the only metadata context that this server has.
pub(crate) const BASE_ALLOCATION: &str = "base:allocation";
/// Query that lists every context of the `base` namespace.
pub(crate) const BASE_WILDCARD: &str = "base:";
/// Identifier under which `base:allocation` is selected.
pub(crate) const BASE_ALLOCATION_ID: u32 = 1;

// Transmission flags.
pub(crate) const NBD_FLAG_HAS_FLAGS: u16 = 1 << 0;
pub(crate) const NBD_FLAG_READ_ONLY: u16 = 1 << 1;
pub(crate) const NBD_FLAG_SEND_FLUSH: u16 = 1 << 2;
pub(crate) const NBD_FLAG_SEND_FUA: u16 = 1 << 3;
pub(crate) const NBD_FLAG_ROTATIONAL: u16 = 1 << 4;
pub(crate) const NBD_FLAG_SEND_TRIM: u16 = 1 << 5;
pub(crate) const NBD_FLAG_SEND_WRITE_ZEROES: u16 = 1 << 6;
pub(crate) const NBD_FLAG_SEND_DF: u16 = 1 << 7;
pub(crate) const NBD_FLAG_CAN_MULTI_CONN: u16 = 1 << 8;
pub(crate) const NBD_FLAG_SEND_CACHE: u16 = 1 << 10;
pub(crate) const NBD_FLAG_SEND_FAST_ZERO: u16 = 1 << 11;

// Transmission phase.
pub(crate) const NBD_REQUEST_MAGIC: u32 = 0x2560_9513;
pub(crate) const NBD_SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
pub(crate) const NBD_STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

pub(crate) const NBD_CMD_READ: u16 = 0;
pub(crate) const NBD_CMD_WRITE: u16 = 1;
pub(crate) const NBD_CMD_DISC: u16 = 2;
pub(crate) const NBD_CMD_FLUSH: u16 = 3;
pub(crate) const NBD_CMD_TRIM: u16 = 4;
pub(crate) const NBD_CMD_CACHE: u16 = 5;
pub(crate) const NBD_CMD_WRITE_ZEROES: u16 = 6;
pub(crate) const NBD_CMD_BLOCK_STATUS: u16 = 7;

pub(crate) const NBD_CMD_FLAG_FUA: u16 = 1 << 0;
pub(crate) const NBD_CMD_FLAG_NO_HOLE: u16 = 1 << 1;
pub(crate) const NBD_CMD_FLAG_DF: u16 = 1 << 2;
pub(crate) const NBD_CMD_FLAG_REQ_ONE: u16 = 1 << 3;
pub(crate) const NBD_CMD_FLAG_FAST_ZERO: u16 = 1 << 4;

pub(crate) const NBD_REPLY_FLAG_DONE: u16 = 1 << 0;
pub(crate) const NBD_REPLY_TYPE_NONE: u16 = 0;
pub(crate) const NBD_REPLY_TYPE_OFFSET_DATA: u16 = 1;
pub(crate) const NBD_REPLY_TYPE_OFFSET_HOLE: u16 = 2;
pub(crate) const NBD_REPLY_TYPE_BLOCK_STATUS: u16 = 5;
pub(crate) const NBD_REPLY_FLAG_ERROR: u16 = 1 << 15;
pub(crate) const NBD_REPLY_TYPE_ERROR: u16 = NBD_REPLY_FLAG_ERROR | 1;
pub(crate) const NBD_REPLY_TYPE_ERROR_OFFSET: u16 = NBD_REPLY_FLAG_ERROR | 2;

pub(crate) const NBD_STATE_HOLE: u32 = 1 << 0;
pub(crate) const NBD_STATE_ZERO: u32 = 1 << 1;

/// Big-endian reader of a slice. Each method consumes a field, or returns `None` and consumes
/// nothing if the slice is too short.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Big-endian writer to the front of a caller's buffer.
///
/// # Panics
/// `put` panics if the buffer is too small: the caller chooses its size by the constants in
/// [`reply`](crate::reply).
pub(crate) struct Writer<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut [u8]) -> Self {
        Writer { out, len: 0 }
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) -> &mut Self {
        let end = self.len + bytes.len();
        assert!(
            end <= self.out.len(),
            "reply buffer of {} bytes needs {end}",
            self.out.len()
        );
        self.out[self.len..end].copy_from_slice(bytes);
        self.len = end;
        self
    }

    pub(crate) fn u16(&mut self, v: u16) -> &mut Self {
        self.put(&v.to_be_bytes())
    }

    pub(crate) fn u32(&mut self, v: u32) -> &mut Self {
        self.put(&v.to_be_bytes())
    }

    pub(crate) fn u64(&mut self, v: u64) -> &mut Self {
        self.put(&v.to_be_bytes())
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// Accumulator of a fixed-size header that may arrive in pieces.
#[derive(Clone, Debug)]
pub(crate) struct Gather<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Gather<N> {
    pub(crate) const fn new() -> Self {
        Gather {
            bytes: [0; N],
            len: 0,
        }
    }

    /// Takes the missing bytes from the front of `input`. Returns the number of bytes taken and,
    /// once the part has all `N` bytes, the part; the accumulator is then empty again.
    pub(crate) fn fill(&mut self, input: &[u8]) -> (usize, Option<[u8; N]>) {
        let n = self.missing().min(input.len());
        self.bytes[self.len..self.len + n].copy_from_slice(&input[..n]);
        self.len += n;
        if self.len < N {
            return (n, None);
        }
        self.len = 0;
        (n, Some(self.bytes))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes that have arrived of a part that is not complete.
    pub(crate) fn filled(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(crate) fn missing(&self) -> usize {
        N - self.len
    }
}

/// Returns the longest prefix of `s` of at most `max` bytes that ends between two characters.
pub(crate) fn clip(s: &str, max: usize) -> &str {
    &s[..s.floor_char_boundary(max)]
}

/// Decodes a protocol string: UTF-8, at most [`NAME_LEN_MAX`] bytes, no NUL. The error says which
/// rule is broken.
pub(crate) fn string(bytes: &[u8]) -> Result<&str, &'static str> {
    if bytes.len() > NAME_LEN_MAX {
        return Err("a string is longer than the 4096 bytes the protocol allows");
    }
    if bytes.contains(&0) {
        return Err("a string contains a NUL byte");
    }
    str::from_utf8(bytes).map_err(|_| "a string is not UTF-8")
}
