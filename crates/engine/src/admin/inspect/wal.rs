//! Descriptions of the records of a log.

use std::path::Path;

use shamba_env::{Env, LockKind};
use shamba_key::{Expiry, Operand, SeqNo};

use super::{Described, Ending, Fields, LogDescription, describe_file, escaped};
use crate::admin::verify::replay_strictly;
use crate::directory::LOCK;
use crate::error::Result;
use crate::options::settings::Settings;
use shamba_key::{KeyspaceId, LogNo};
use shamba_log::framing::payload::{Stop, decoded};
use shamba_log::framing::{FileKind, FrameReader, Record, RecordKind};
use shamba_log::wal::head::Head;
use shamba_log::wal::stream::{Checked, OpStream, StreamedOp, StreamedValue, check};
use shamba_log::wal::{OpRef, RecordView, log_file_name};
use shamba_tree::version::manifest::ManifestReader;

/// Describes the log at `path`.
///
/// # Errors
/// `Corruption` if the file header is damaged (later damage is in [`LogDescription::ending`]),
/// `Unsupported` for a newer version, or a failed read.
pub fn wal_file(env: &Env, path: &Path) -> Result<LogDescription> {
    let mut last_seq = SeqNo::ZERO;
    let mut described = describe_file(env, path, FileKind::Wal, &mut |reader, record, number| {
        if record.payload_bytes > record.payload.len() as u64 {
            return Ok(decoded(describe_streamed(reader, record, &mut last_seq))?);
        }
        Ok(describe(record, LogNo(number), &mut last_seq))
    })?;
    if !described.is_corrupt() {
        if let Some((offset, detail)) = damage_by_the_others(env, path, LogNo(described.number)) {
            described.ending = Ending::Corrupt { offset, detail };
        }
    }
    Ok(described)
}

/// The error that an open would report for log `number`, if `path` is that log's file in a database
/// directory: the manifest and the other logs may promise more of the log than the log itself.
/// `None` if they cannot be read, which is no fault of this log, or if a writer is changing them.
fn damage_by_the_others(env: &Env, path: &Path, number: LogNo) -> Option<(u64, String)> {
    let (dir, name) = (path.parent()?, path.file_name()?);
    if name != log_file_name(number).as_str() {
        return None;
    }
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let _no_writer = env.vfs.lock(&dir.join(LOCK), LockKind::Shared).ok()?;
    let loaded = ManifestReader::load(env, dir).ok()??;
    let error = replay_strictly(env, dir, &loaded.state, Settings::default().held_value_bytes_max()).err()?;
    let damage = error.damage().filter(|damage| damage.file.file_name() == Some(name))?;
    // The description contains file and offset separately.
    let place = format!("damaged {} at offset {}: ", damage.structure, damage.offset);
    let detail = error.context().split_once(&place).map_or(error.context(), |(_, detail)| detail);
    Some((damage.offset, detail.to_owned()))
}

/// Describes a record that is too long to be held in memory.
fn describe_streamed(
    reader: &mut FrameReader,
    record: &Record,
    last_seq: &mut SeqNo,
) -> std::result::Result<(&'static str, Fields), Stop> {
    let Checked { first_seq, last_seq: last, .. } = check(reader.payload_of(record), *last_seq)?;
    let mut fields: Fields = Vec::new();
    let mut ops = OpStream::new(reader.payload_of(record), 0)?;
    let mut seq = first_seq;
    let (mut batch, mut count) = (0, 0u64);
    while let Some((is_first, keyspace, op)) = ops.next()? {
        if is_first {
            batch = fields.len();
            count = 0;
            fields.push(("batch", String::new()));
        }
        count += 1;
        if let Some((_, text)) = fields.get_mut(batch) {
            *text = format!("of {count}");
        }
        fields.push(match op {
            StreamedOp::Put { key, value } => put(seq, keyspace, key, bytes_of(value)),
            StreamedOp::PutExpiring { key, expiry, stored } => {
                let value_bytes = bytes_of(stored).saturating_sub(Expiry::STORED_BYTES as u64);
                put_expiring((seq, expiry), keyspace, key, value_bytes)
            }
            StreamedOp::Delete { key } => delete(seq, keyspace, key),
            StreamedOp::RangeDelete { start, end } => range_delete(seq, keyspace, start, end),
            StreamedOp::Merge { key, operand } => merge(seq, keyspace, key, operand),
        });
        seq = seq.next();
    }
    *last_seq = last;
    Ok(("batches", fields))
}

fn bytes_of(value: StreamedValue<'_>) -> u64 {
    match value {
        StreamedValue::Held(value) => value.len() as u64,
        StreamedValue::At { bytes, .. } => u64::from(bytes),
    }
}

type Field = (&'static str, String);

fn put(seq: SeqNo, keyspace: KeyspaceId, key: &[u8], value_bytes: u64) -> Field {
    ("put", format!("@{seq} [{keyspace}] {} ({value_bytes} bytes)", escaped(key)))
}

fn put_expiring((seq, expiry): (SeqNo, Expiry), keyspace: KeyspaceId, key: &[u8], value_bytes: u64) -> Field {
    let expires = expiry.0;
    ("put", format!("@{seq} [{keyspace}] {} ({value_bytes} bytes, expires {expires})", escaped(key)))
}

fn delete(seq: SeqNo, keyspace: KeyspaceId, key: &[u8]) -> Field {
    ("delete", format!("@{seq} [{keyspace}] {}", escaped(key)))
}

fn merge(seq: SeqNo, keyspace: KeyspaceId, key: &[u8], operand: &[u8]) -> Field {
    let bytes = Operand::decode(operand).map_or(0, |operand| operand.bytes.len());
    ("merge", format!("@{seq} [{keyspace}] {} ({bytes} bytes)", escaped(key)))
}

fn range_delete(seq: SeqNo, keyspace: KeyspaceId, start: &[u8], end: Option<&[u8]>) -> Field {
    let end = end.map_or_else(String::new, escaped);
    ("range_delete", format!("@{seq} [{keyspace}] {}..{end}", escaped(start)))
}

/// Describes a record that follows `last_seq`, and advances `last_seq`.
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
            let mut fields = vec![("predecessor", before), ("base", head.base_seq.to_string())];
            fields.extend(head.copy_of.map(|log| ("copy_of", log.to_string())));
            Ok(("head", fields))
        }
        RecordKind::Data => {
            let batches = RecordView::decode(&record.payload, *last_seq)?;
            let mut fields = Vec::new();
            for batch in batches.batches() {
                *last_seq = batch.last_seq();
                fields.push(("batch", format!("of {}", batch.count())));
                fields.extend(batch.ops().map(|(seq, keyspace, op)| match op {
                    OpRef::Put { key, value } => put(seq, keyspace, key, value.len() as u64),
                    OpRef::PutExpiring { key, stored } => {
                        let (expiry, value) = Expiry::split(stored).unwrap_or((Expiry(0), &[]));
                        put_expiring((seq, expiry), keyspace, key, value.len() as u64)
                    }
                    OpRef::Delete { key } => delete(seq, keyspace, key),
                    OpRef::RangeDelete { start, end } => range_delete(seq, keyspace, start, end),
                    OpRef::Merge { key, operand } => merge(seq, keyspace, key, operand),
                }));
            }
            Ok(("batches", fields))
        }
    }
}
