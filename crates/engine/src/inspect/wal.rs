//! The records of a log in words.

use std::path::Path;

use shamba_env::Env;
use shamba_key::SeqNo;

use super::{Described, LogDescription, describe_file, escaped};
use crate::error::Result;
use crate::ids::LogNo;
use crate::log::{FileKind, Record, RecordKind};
use crate::wal::head::Head;
use crate::wal::{OpRef, RecordView};

/// Describes the log at `path`.
///
/// # Errors
/// `Corruption` when the file header is damaged (later damage is in [`LogDescription::ending`]),
/// `Unsupported` for a newer version, what reading says.
pub fn wal_file(env: &Env, path: &Path) -> Result<LogDescription> {
    let mut last_seq = SeqNo::ZERO;
    describe_file(env, path, FileKind::Wal, &mut |record, number| {
        describe(record, LogNo(number), &mut last_seq)
    })
}

/// Describes a record that follows `last_seq`, and moves that on.
fn describe(record: &Record, number: LogNo, last_seq: &mut SeqNo) -> Described {
    match record.kind {
        RecordKind::Promise => Ok(("promise", Vec::new())),
        RecordKind::End => Ok(("end", Vec::new())),
        RecordKind::Head => {
            let head = Head::decode(&record.payload, number)?;
            *last_seq = head.base_seq;
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
            let batches = RecordView::decode(&record.payload, *last_seq)?;
            let mut fields = Vec::new();
            for batch in batches.batches() {
                *last_seq = batch.last_seq();
                fields.push(("batch", format!("of {}", batch.count())));
                fields.extend(batch.ops().map(|(seq, keyspace, op)| match op {
                    OpRef::Put { key, value } => {
                        ("put", format!("@{seq} [{keyspace}] {} ({} bytes)", escaped(key), value.len()))
                    }
                    OpRef::Delete { key } => ("delete", format!("@{seq} [{keyspace}] {}", escaped(key))),
                    OpRef::RangeDelete { start, end } => {
                        let end = end.map_or_else(String::new, escaped);
                        ("range_delete", format!("@{seq} [{keyspace}] {}..{end}", escaped(start)))
                    }
                }));
            }
            Ok(("batches", fields))
        }
    }
}
