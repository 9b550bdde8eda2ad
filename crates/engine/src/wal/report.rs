//! What replay says about the logs that it read.

use std::fmt;
use std::path::PathBuf;

use shamba_key::SeqNo;

use crate::ids::LogNo;

/// Something that was left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ReplayWarning {
    pub(crate) file: PathBuf,
    pub(crate) offset: u64,
    /// How many bytes were left out.
    pub(crate) bytes: u64,
    pub(crate) reason: String,
}

impl fmt::Display for ReplayWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, bytes, reason } = self;
        write!(f, "{}: {bytes} bytes from offset {offset} on left out: {reason}", file.display())
    }
}

/// What became of one log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ReplayedLog {
    pub(crate) number: LogNo,
    pub(crate) file_bytes: u64,
    /// Where its last used record ends; 0 for a log that was left out whole.
    pub(crate) valid_bytes: u64,
    /// The last sequence number when it ended.
    pub(crate) last_seq: SeqNo,
    /// The checksum of the frame that ends at `valid_bytes`.
    pub(crate) last_checksum: u32,
    /// How much of it was promised; all of it: `u64::MAX`.
    pub(crate) promised: u64,
    /// It was closed in order.
    pub(crate) clean: bool,
}

/// What replay found.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplayReport {
    /// The last sequence number that the logs account for; 0 if there are none.
    pub(crate) last_seq: SeqNo,
    /// Batches given to the caller.
    pub(crate) batches: u64,
    /// Operations in them.
    pub(crate) ops: u64,
    /// Every log from `first_log` on.
    pub(crate) logs: Vec<ReplayedLog>,
    /// What was left out, and why.
    pub(crate) warnings: Vec<ReplayWarning>,
    /// The last log was closed in order, and nothing was left out.
    pub(crate) clean: bool,
}
