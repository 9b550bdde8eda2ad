//! The records of a log in words.

use std::path::Path;

use shamba_env::Env;

use super::{Described, LogDescription, describe_file, escaped};
use crate::error::Result;
use crate::ids::LogNo;
use crate::log::{FileKind, Record, RecordKind};
use crate::wal::head::Head;
use crate::wal::{BatchView, Op};

/// Describes the log at `path`.
///
/// # Errors
/// `Corruption` when the file header is damaged (later damage is in [`LogDescription::ending`]),
/// `Unsupported` for a newer version, what reading says.
pub fn wal_file(env: &Env, path: &Path) -> Result<LogDescription> {
    describe_file(env, path, FileKind::Wal, &|record, number| describe(record, LogNo(number)))
}

fn describe(record: &Record, number: LogNo) -> Described {
    match record.kind {
        RecordKind::Promise => Ok(("promise", Vec::new())),
        RecordKind::End => Ok(("end", Vec::new())),
        RecordKind::Head => {
            let head = Head::decode(&record.payload, number)?;
            let before = match head.predecessor {
                None => "none".to_owned(),
                Some(before) => format!(
                    "log {}, {} bytes, {} synced, last sequence {}, last checksum {:08x}",
                    before.number, before.bytes, before.synced, before.last_seq, before.last_checksum
                ),
            };
            Ok(("head", vec![("predecessor", before), ("base", head.base_seq.to_string())]))
        }
        RecordKind::Data => {
            let batch = BatchView::decode(&record.payload)?;
            let fields = batch.ops().map(|(seq, keyspace, op)| match op {
                Op::Put { key, value } => {
                    ("put", format!("@{seq} [{keyspace}] {} ({} bytes)", escaped(&key), value.len()))
                }
                Op::Delete { key } => ("delete", format!("@{seq} [{keyspace}] {}", escaped(&key))),
                Op::RangeDelete { start, end } => {
                    let end = end.map_or_else(String::new, |end| escaped(&end));
                    ("range_delete", format!("@{seq} [{keyspace}] {}..{end}", escaped(&start)))
                }
            });
            Ok(("batch", fields.collect()))
        }
    }
}
