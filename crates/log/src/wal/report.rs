//! Report of a replay: state of each log and warnings.

use std::fmt;
use std::path::PathBuf;

use shamba_key::SeqNo;

use shamba_key::LogNo;

/// A part of a log that was not replayed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplayWarning {
    /// The damaged file.
    pub file: PathBuf,
    /// Offset of the first byte that was left out.
    pub offset: u64,
    /// Number of bytes that were left out.
    pub bytes: u64,
    /// The reason.
    pub reason: String,
}

impl fmt::Display for ReplayWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, bytes, reason } = self;
        write!(f, "{}: {bytes} bytes from offset {offset} ignored: {reason}", file.display())
    }
}

/// Result of replay for one log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplayedLog {
    /// Number of the log.
    pub number: LogNo,
    /// Length of the file.
    pub file_bytes: u64,
    /// Offset of the end of its last replayed record; 0 for a log that was left out entirely.
    pub valid_bytes: u64,
    /// The last sequence number at the end of the log.
    pub last_seq: SeqNo,
    /// The checksum of the frame that ends at `valid_bytes`.
    pub last_checksum: u32,
    /// The promised offset; `u64::MAX` if the whole log is promised.
    pub promised: u64,
    /// The log was closed cleanly.
    pub clean: bool,
}

/// Result of a replay.
#[derive(Clone, Debug, Default)]
pub struct ReplayReport {
    /// The last sequence number that the logs account for; 0 if there are none.
    pub last_seq: SeqNo,
    /// Number of batches passed to the caller.
    pub batches: u64,
    /// Number of operations in these batches.
    pub ops: u64,
    /// Every log from `first_log` on.
    pub logs: Vec<ReplayedLog>,
    /// The parts that were left out, and the reasons.
    pub warnings: Vec<ReplayWarning>,
    /// The last log was closed cleanly, and nothing was left out.
    pub clean: bool,
}
