//! The encoding of an entry of the history ([`HistoryEntry`]), the body of a field of an edit.
//!
//! ```text
//! 1 opened    epoch (1 byte: 1 an epoch begins, 0 none)  log  log before or 0  sequence
//! 2 ingested  sequence  keyspace  entries  first key  last key
//! 3 created   sequence  keyspace  name
//! 4 dropped   sequence  keyspace  name
//! 5 obsolete  log  log before  sequence  unix_ms
//! ```

use bytes::Bytes;
use shamba_key::{KeyspaceId, LogNo, MAX_KEY_BYTES, SeqNo};
use shamba_log::framing::codec::{Decoded, Decoder, put_prefixed, put_varint};

use super::pieces::Pieces;
use crate::version::history::HistoryEntry;

const OPENED: u8 = 1;
const INGESTED: u8 = 2;
const CREATED: u8 = 3;
const DROPPED: u8 = 4;
const OBSOLETE: u8 = 5;

/// Encodes an entry.
pub(super) fn put_entry(out: &mut Pieces, entry: &HistoryEntry) {
    let mut put = |kind: u8, numbers: &[u64]| {
        out.short.push(kind);
        numbers.iter().for_each(|number| put_varint(&mut out.short, *number));
    };
    match entry {
        HistoryEntry::Opened { log, after, seq, is_epoch } => {
            put(OPENED, &[u64::from(*is_epoch), log.0, after.0, seq.0]);
        }
        HistoryEntry::Ingested { seq, keyspace, entries, first, last } => {
            put(INGESTED, &[seq.0, u64::from(keyspace.0), *entries]);
            out.put_key(first);
            out.put_key(last);
        }
        HistoryEntry::Created { seq, keyspace, name } => {
            put(CREATED, &[seq.0, u64::from(keyspace.0)]);
            put_prefixed(&mut out.short, name.as_bytes());
        }
        HistoryEntry::Dropped { seq, keyspace, name } => {
            put(DROPPED, &[seq.0, u64::from(keyspace.0)]);
            put_prefixed(&mut out.short, name.as_bytes());
        }
        HistoryEntry::Obsolete { below, last, seq, unix_ms } => {
            put(OBSOLETE, &[below.0, last.0, seq.0, *unix_ms]);
        }
    }
}

/// Decodes an entry; `None` for a kind of a later build, which may be skipped as the whole field
/// may.
pub(super) fn entry(body: &mut Decoder<'_>) -> Decoded<Option<HistoryEntry>> {
    Ok(Some(match body.u8()? {
        OPENED => {
            let is_epoch = match body.u8()? {
                0 => false,
                1 => true,
                flag => return Err(format!("epoch flag {flag}")),
            };
            let (log, after) = (LogNo(body.varint()?), LogNo(body.varint()?));
            if after >= log {
                return Err(format!("log {after} cannot come before log {log}"));
            }
            HistoryEntry::Opened { log, after, seq: SeqNo(body.varint()?), is_epoch }
        }
        INGESTED => HistoryEntry::Ingested {
            seq: SeqNo(body.varint()?),
            keyspace: KeyspaceId(body.varint_u32()?),
            entries: body.varint()?,
            first: key(body)?,
            last: key(body)?,
        },
        CREATED => {
            let (seq, keyspace) = (SeqNo(body.varint()?), KeyspaceId(body.varint_u32()?));
            HistoryEntry::Created { seq, keyspace, name: body.text()?.to_owned() }
        }
        DROPPED => {
            let (seq, keyspace) = (SeqNo(body.varint()?), KeyspaceId(body.varint_u32()?));
            HistoryEntry::Dropped { seq, keyspace, name: body.text()?.to_owned() }
        }
        OBSOLETE => {
            let (below, last) = (LogNo(body.varint()?), LogNo(body.varint()?));
            if last >= below {
                return Err(format!("log {last} is not below log {below}"));
            }
            HistoryEntry::Obsolete { below, last, seq: SeqNo(body.varint()?), unix_ms: body.varint()? }
        }
        _ => return Ok(None),
    }))
}

fn key(body: &mut Decoder<'_>) -> Decoded<Bytes> {
    let key = body.prefixed()?;
    if key.len() > MAX_KEY_BYTES {
        return Err(format!("a key of {} bytes", key.len()));
    }
    Ok(Bytes::copy_from_slice(key))
}
