//! What replay says about the logs that it read.

use std::fmt;
use std::path::PathBuf;

use shamba_key::SeqNo;

use shamba_key::LogNo;

/// Something that was left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplayWarning {
    /// The damaged file.
    pub file: PathBuf,
    /// Offset of the first byte that was left out.
    pub offset: u64,
    /// How many bytes were left out.
    pub bytes: u64,
    /// Why the bytes do not count.
    pub reason: String,
}

impl fmt::Display for ReplayWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, bytes, reason } = self;
        write!(f, "{}: {bytes} bytes from offset {offset} on left out: {reason}", file.display())
    }
}

/// What became of one log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplayedLog {
    /// Number of the log.
    pub number: LogNo,
    /// Length of the file.
    pub file_bytes: u64,
    /// Where its last used record ends; 0 for a log that was left out whole.
    pub valid_bytes: u64,
    /// The last sequence number when it ended.
    pub last_seq: SeqNo,
    /// The checksum of the frame that ends at `valid_bytes`.
    pub last_checksum: u32,
    /// How much of it was promised; all of it: `u64::MAX`.
    pub promised: u64,
    /// It was closed in order.
    pub clean: bool,
}

/// What replay found.
#[derive(Clone, Debug, Default)]
pub struct ReplayReport {
    /// The last sequence number that the logs account for; 0 if there are none.
    pub last_seq: SeqNo,
    /// Batches given to the caller.
    pub batches: u64,
    /// Operations in them.
    pub ops: u64,
    /// Every log from `first_log` on.
    pub logs: Vec<ReplayedLog>,
    /// What was left out, and why.
    pub warnings: Vec<ReplayWarning>,
    /// The last log was closed in order, and nothing was left out.
    pub clean: bool,
}
