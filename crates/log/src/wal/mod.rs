//! The write-ahead log: records every batch of every keyspace, in sequence order, before it is
//! acknowledged.
//!
//! A log is a framed file ([`crate::framing`]) named `000007.log`. Its first record, the *head*,
//! describes the preceding log ([`head`]). Then come batches; the batches of one commit group share
//! a record ([`record`]). A log that was closed cleanly ends with an end marker. [`writer`]
//! appends, `replay` reads a chain of logs back.
//!
//! Promises extend along the chain. A log is synced only after its predecessor, so a promise above
//! 0 in a log covers all of every earlier log. The `synced` field of a head promises its
//! predecessor up to that offset. The *length* in a head is no promise, because the bytes before it
//! may never have been synced. But it is the end of the predecessor: nothing beyond it was
//! acknowledged.
//!
//! Not here: which thread syncs for a commit group (the commit path), how a batch changes
//! memtables.

pub mod floor;
pub mod follow;
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

pub use follow::{CommittedBatch, LogFollower};
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
    // Signs and leading zeros parse, too, but never occur in a log's file name.
    (number.0 > 0 && log_file_name(number) == name).then_some(number)
}
