//! The write-ahead log: every batch of every keyspace, in sequence order, before it is acknowledged.
//!
//! A log is a framed file ([`crate::framing`]) named `000007.log`. Its first record, the *head*, says what came
//! before it ([`head`]); then batches, those of one commit group in one record ([`record`]); a log that was
//! closed in order ends with an end marker. [`writer`] appends, [`replay`] reads a chain of logs back.
//!
//! Promises go along the chain: a log is synced before any later one is, so a promise above 0 in a log
//! covers all of every earlier log, and a head's `synced` covers its predecessor up to there. The *length*
//! that a head states is no promise (without a sync it may never have reached the disk), but it is where
//! the predecessor ends: what lies beyond was never acknowledged.
//!
//! Not here: who shares a sync (the commit path), what a batch does (memtables).

pub mod floor;
pub mod head;
pub mod record;
pub mod replay;
pub mod replayed;
pub mod report;
pub mod stream;
#[cfg(test)]
mod tests;
pub mod value;
pub mod writer;

pub use head::Predecessor;
pub use record::{OpRef, RecordView, encode_op, encoded_ops, encoded_ops_and_ends};
pub use replay::{Recovery, ReplayOptions, replay};
pub use replayed::{Replayed, ReplayedOp};
pub use report::ReplayReport;
pub use value::{ValueLog, ValueLogs, ValuePlace};
pub use writer::{LargeRecord, SHARED_BYTES_MAX, WalWriter};

use shamba_key::LogNo;

/// The name of a log's file.
pub fn log_file_name(number: LogNo) -> String {
    format!("{:06}.log", number.0)
}

/// The log that a file name belongs to; `None` for any other file.
pub fn parse_log_file_name(name: &str) -> Option<LogNo> {
    let digits = name.strip_suffix(".log")?;
    let number = LogNo(digits.parse().ok()?);
    // Signs and surplus zeros parse, too, but are no names of ours.
    (number.0 > 0 && log_file_name(number) == name).then_some(number)
}
