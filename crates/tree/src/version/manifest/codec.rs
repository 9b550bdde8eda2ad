//! The encoding of an edit.
//!
//! ```text
//! edit   = field*
//! field  = tag (1 byte)  length (varint)  body
//!
//! 0x81 setting            name  value
//! 0x82 keyspace created   id  name  count  (name value)*
//! 0x83 keyspace settings  id  count  (name value)*
//! 0x84 keyspace dropped   id
//! 0x85 tree changes       keyspace  (kind (1 byte)  length  body)*
//!        1 add            level run age  table  range  live_bytes
//!        2 remove         level run table_id
//!        3 narrow         level run table_id  range  live_bytes
//! 0x86 flushed            keyspace  sequence
//! 0x87 first log          log
//! 0x88 log promise        log  offset
//! 0x89 last sequence      sequence
//! 0x8a next id            id
//! 0x8b merge operator     keyspace  name
//! 0x8c time               unix_ms
//! 0x8d compaction filter  keyspace  name
//! 0x8e value file, 0x8f table values, 0x90 values in use: [`super::value_fields`]
//! 0x01 tombstone time     table_id  unix_ms
//! 0x02 table expiry       table_id  count  bytes  of_bytes  unix_ms (9 times)
//! 0x03 history            an entry of the history of the logs ([`super::history`])
//!
//! table  = id  birth (8 bytes)  file_bytes  entries  deletes  range_deletes  smallest  bound
//!          smallest_seq  largest_seq  bits_per_key (8 bytes, IEEE 754)
//! range  = lower  bound
//! bound  = 0, or 1 and a key: no end, or an exclusive one
//! ```
//!
//! Numbers are varints unless a size is given. Names, values and keys are a varint length and
//! bytes. Tags are never reused. A reader skips an unknown tag below 0x80; an unknown tag of 0x80
//! or above makes the manifest unsupported. The fields of an edit apply together, in any order. The
//! changes of a tree apply in their order.
//!
//! A compaction filter with an empty name: the keyspace has none from now on.
//!
//! A tombstone time belongs to a table that the same edit adds; without it the time of the table's
//! oldest tombstone is not known. An older build skips the field. So does a table expiry: the
//! number of the table's entries that expire, the bytes of their keys and values and of all, their
//! first expiry, the bounds between eighths of them, and the last. A time is that of the database,
//! from the first use of expiry on; it never decreases.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use shamba_key::{Expiry, MAX_KEY_BYTES, SeqNo};
use shamba_table::{BirthId, ExpiringEntries, TableId};

use super::history;
use super::pieces::Pieces;
use super::value_fields::{self, TABLE_VALUES, VALUE_FILE, VALUES_IN_USE, ValueFields};
use crate::version::edit::{Change, KeyRange, ManifestEdit, TableMeta, TableUse, VersionEdit};
use crate::version::value_files::ValueFiles;
use crate::version::values::ValueUses;
use shamba_key::{Age, KeyspaceId, LogNo, RunId};

/// Maximum next number of files. A counter above it could reach its end.
const NEXT_ID_MAX: u64 = u64::MAX / 4;
use shamba_log::framing::codec::{Decoded, Decoder, put_prefixed, put_varint};

const SETTING: u8 = 0x81;
const KEYSPACE_CREATED: u8 = 0x82;
const KEYSPACE_SETTINGS: u8 = 0x83;
const KEYSPACE_DROPPED: u8 = 0x84;
const TREE_CHANGES: u8 = 0x85;
const FLUSHED: u8 = 0x86;
const FIRST_LOG: u8 = 0x87;
const LOG_PROMISE: u8 = 0x88;
const LAST_SEQ: u8 = 0x89;
const NEXT_ID: u8 = 0x8a;
const MERGE_OPERATOR: u8 = 0x8b;
/// A build that does not know expiry must refuse it.
const TIME: u8 = 0x8c;
const COMPACTION_FILTER: u8 = 0x8d;
const TOMBSTONE_TIME: u8 = 0x01;
const TABLE_EXPIRY: u8 = 0x02;
const HISTORY: u8 = 0x03;
/// A reader refuses an unknown tag from here on.
const MUST_UNDERSTAND: u8 = 0x80;

/// Maximum number of bytes or entries of one table. No file has as many, and sums over a million
/// tables cannot overflow.
const COUNT_MAX: u64 = 1 << 44;

const ADD: u8 = 1;
const REMOVE: u8 = 2;
const NARROW: u8 = 3;

/// The reason why an edit cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EditFault {
    /// The bytes are not a valid edit.
    Malformed(String),
    /// The edit has an unknown field that must not be skipped.
    Unsupported(String),
}

impl From<String> for EditFault {
    fn from(detail: String) -> Self {
        Self::Malformed(detail)
    }
}

/// Encodes the record of an edit.
pub fn edit_pieces(edit: &ManifestEdit) -> Pieces {
    let mut out = Pieces::default();
    for (name, value) in &edit.settings {
        out.put_field(SETTING, |body| put_texts(&mut body.short, name, value));
    }
    for (id, name, settings) in &edit.keyspaces_created {
        out.put_field(KEYSPACE_CREATED, |body| {
            put_numbers(body, &[u64::from(id.0)]);
            put_prefixed(&mut body.short, name.as_bytes());
            put_settings(&mut body.short, settings);
        });
    }
    for (id, settings) in &edit.keyspace_settings {
        out.put_field(KEYSPACE_SETTINGS, |body| {
            put_numbers(body, &[u64::from(id.0)]);
            put_settings(&mut body.short, settings);
        });
    }
    for (id, name) in &edit.merge_operators {
        out.put_field(MERGE_OPERATOR, |body| {
            put_numbers(body, &[u64::from(id.0)]);
            put_prefixed(&mut body.short, name.as_bytes());
        });
    }
    for (id, name) in &edit.compaction_filters {
        out.put_field(COMPACTION_FILTER, |body| {
            put_numbers(body, &[u64::from(id.0)]);
            put_prefixed(&mut body.short, name.as_deref().unwrap_or_default().as_bytes());
        });
    }
    for id in &edit.keyspaces_dropped {
        out.put_field(KEYSPACE_DROPPED, |body| put_numbers(body, &[u64::from(id.0)]));
    }
    for version in &edit.versions {
        out.put_field(TREE_CHANGES, |body| {
            put_numbers(body, &[u64::from(version.keyspace.0)]);
            for change in &version.changes {
                put_change(body, change);
            }
        });
    }
    for change in edit.versions.iter().flat_map(|version| &version.changes) {
        let Change::Add { table, .. } = change else { continue };
        if let Some(unix_ms) = table.meta.oldest_tombstone.unix_ms() {
            out.put_field(TOMBSTONE_TIME, |body| put_numbers(body, &[table.meta.id.0, unix_ms]));
        }
    }
    for change in edit.versions.iter().flat_map(|version| &version.changes) {
        let Change::Add { table, .. } = change else { continue };
        if let Some(ExpiringEntries { count, bytes, of_bytes, bounds }) = table.meta.expiring.get() {
            out.put_field(TABLE_EXPIRY, |body| {
                put_numbers(body, &[table.meta.id.0, count, bytes, of_bytes]);
                put_numbers(body, &bounds.map(|bound| bound.0));
            });
        }
    }
    value_fields::put(&mut out, edit);
    for (keyspace, seq) in &edit.flushed {
        out.put_field(FLUSHED, |body| put_numbers(body, &[u64::from(keyspace.0), seq.0]));
    }
    if let Some(log) = edit.first_log {
        out.put_field(FIRST_LOG, |body| put_numbers(body, &[log.0]));
    }
    if let Some((log, offset)) = edit.log_promise {
        out.put_field(LOG_PROMISE, |body| put_numbers(body, &[log.0, offset]));
    }
    if let Some(seq) = edit.last_seq {
        out.put_field(LAST_SEQ, |body| put_numbers(body, &[seq.0]));
    }
    if let Some(unix_ms) = edit.time_ms {
        out.put_field(TIME, |body| put_numbers(body, &[unix_ms]));
    }
    if let Some(id) = edit.next_id {
        out.put_field(NEXT_ID, |body| put_numbers(body, &[id]));
    }
    for entry in &edit.history {
        out.put_field(HISTORY, |body| history::put_entry(body, entry));
    }
    out
}

/// Encodes the record of an edit as one byte string.
#[cfg(test)]
pub fn encode_edit(edit: &ManifestEdit) -> Vec<u8> {
    edit_pieces(edit).parts().concat()
}

/// Decodes the record of an edit. `files` are the value files that the edits before it name; those
/// of this edit are added, even if it cannot be used.
pub fn decode_edit(payload: &[u8], files: &mut ValueFiles) -> Result<ManifestEdit, EditFault> {
    let mut edit = ManifestEdit::default();
    let (mut of_tables, mut of_values) = (OfTables::default(), ValueFields::default());
    let mut fields = Decoder::new(payload);
    while !fields.is_empty() {
        let tag = fields.u8()?;
        let mut body = Decoder::new(fields.prefixed()?);
        let decoded = match tag {
            VALUE_FILE | TABLE_VALUES | VALUES_IN_USE => {
                of_values.decode(tag, &mut body, &mut edit, files).map(|()| true)
            }
            _ => decode_field(&mut edit, &mut of_tables, tag, &mut body),
        };
        let known = decoded.map_err(|detail| EditFault::Malformed(format!("field {tag:#04x}: {detail}")))?;
        if known {
            body.finish().map_err(|detail| EditFault::Malformed(format!("field {tag:#04x}: {detail}")))?;
        } else if tag >= MUST_UNDERSTAND {
            return Err(EditFault::Unsupported(format!("an edit with the unknown field {tag:#04x}")));
        }
    }
    if !of_tables.is_empty() {
        for change in edit.versions.iter().flat_map(|version| &version.changes) {
            let Change::Add { table, .. } = change else { continue };
            if let Some(unix_ms) = of_tables.tombstone_times.get(&table.meta.id) {
                table.meta.oldest_tombstone.lower(*unix_ms);
            }
            if let Some(expiring) = of_tables.expiring.get(&table.meta.id) {
                let entries = table.meta.entries.saturating_sub(table.meta.deletes);
                expiring.check(entries).map_err(|detail| {
                    EditFault::Malformed(format!(
                        "field {TABLE_EXPIRY:#04x}: table {}: {detail}",
                        table.meta.id
                    ))
                })?;
                table.meta.expiring.set(*expiring);
            }
        }
    }
    of_values.tell(&mut edit, files).map_err(EditFault::Malformed)?;
    Ok(edit)
}

/// Fields of an edit that belong to tables which it adds.
#[derive(Default)]
struct OfTables {
    tombstone_times: BTreeMap<TableId, u64>,
    expiring: BTreeMap<TableId, ExpiringEntries>,
}

impl OfTables {
    fn is_empty(&self) -> bool {
        self.tombstone_times.is_empty() && self.expiring.is_empty()
    }
}

/// Decodes `body` into `edit` and `of_tables`. Returns whether the tag is known.
fn decode_field(
    edit: &mut ManifestEdit,
    of_tables: &mut OfTables,
    tag: u8,
    body: &mut Decoder<'_>,
) -> Decoded<bool> {
    match tag {
        SETTING => edit.settings.push(texts(body)?),
        KEYSPACE_CREATED => {
            let id = keyspace(body)?;
            let name = body.text()?.to_owned();
            edit.keyspaces_created.push((id, name, settings(body)?));
        }
        KEYSPACE_SETTINGS => {
            let id = keyspace(body)?;
            edit.keyspace_settings.push((id, settings(body)?));
        }
        KEYSPACE_DROPPED => edit.keyspaces_dropped.push(keyspace(body)?),
        TREE_CHANGES => {
            let mut version = VersionEdit { keyspace: keyspace(body)?, changes: Vec::new() };
            while !body.is_empty() {
                let kind = body.u8()?;
                let mut inner = Decoder::new(body.prefixed()?);
                let change = change(kind, &mut inner)?;
                inner.finish()?;
                version.changes.push(change);
            }
            edit.versions.push(version);
        }
        FLUSHED => {
            let id = keyspace(body)?;
            edit.flushed.push((id, seq(body)?));
        }
        FIRST_LOG => once(&mut edit.first_log, LogNo(body.varint()?))?,
        LOG_PROMISE => {
            let log = LogNo(body.varint()?);
            once(&mut edit.log_promise, (log, body.varint()?))?;
        }
        LAST_SEQ => once(&mut edit.last_seq, seq(body)?)?,
        NEXT_ID => once(&mut edit.next_id, next_id(body)?)?,
        MERGE_OPERATOR => {
            let id = keyspace(body)?;
            edit.merge_operators.push((id, body.text()?.to_owned()));
        }
        COMPACTION_FILTER => {
            let id = keyspace(body)?;
            let name = body.text()?;
            edit.compaction_filters.push((id, (!name.is_empty()).then(|| name.to_owned())));
        }
        TOMBSTONE_TIME => {
            let table = TableId(body.varint()?);
            of_tables.tombstone_times.insert(table, body.varint()?);
        }
        TABLE_EXPIRY => {
            let table = TableId(body.varint()?);
            let mut expiring = ExpiringEntries::evenly(body.varint()?, Expiry(0), Expiry(0));
            (expiring.bytes, expiring.of_bytes) = (body.varint()?, body.varint()?);
            for bound in &mut expiring.bounds {
                bound.0 = body.varint()?;
            }
            of_tables.expiring.insert(table, expiring);
        }
        TIME => once(&mut edit.time_ms, body.varint()?)?,
        HISTORY => match history::entry(body)? {
            Some(entry) => edit.history.push(entry),
            None => return Ok(false),
        },
        _ => return Ok(false),
    }
    Ok(true)
}

fn once<T>(place: &mut Option<T>, value: T) -> Decoded<()> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err("it is there twice".to_owned()),
    }
}

fn put_numbers(out: &mut Pieces, numbers: &[u64]) {
    for &number in numbers {
        put_varint(&mut out.short, number);
    }
}

fn put_texts(out: &mut Vec<u8>, name: &str, value: &str) {
    put_prefixed(out, name.as_bytes());
    put_prefixed(out, value.as_bytes());
}

fn texts(decoder: &mut Decoder<'_>) -> Decoded<(String, String)> {
    let name = decoder.text()?.to_owned();
    Ok((name, decoder.text()?.to_owned()))
}

fn put_settings(out: &mut Vec<u8>, settings: &[(String, String)]) {
    put_varint(out, settings.len() as u64);
    for (name, value) in settings {
        put_texts(out, name, value);
    }
}

fn settings(decoder: &mut Decoder<'_>) -> Decoded<Vec<(String, String)>> {
    let count = decoder.varint()?;
    // No allocation by the stated count: the input of a false count ends before memory fills.
    let mut settings = Vec::new();
    for _ in 0..count {
        settings.push(texts(decoder)?);
    }
    Ok(settings)
}

/// A sequence number. A log with a larger one than the maximum could not be read.
fn seq(decoder: &mut Decoder<'_>) -> Decoded<SeqNo> {
    let seq = SeqNo(decoder.varint()?);
    if seq > SeqNo::MAX { Err(format!("the sequence number {seq} is too large")) } else { Ok(seq) }
}

/// The next number for files. The ones after it must not run out.
fn next_id(decoder: &mut Decoder<'_>) -> Decoded<u64> {
    let number = decoder.varint()?;
    if number > NEXT_ID_MAX { Err(format!("the next number {number} is too large")) } else { Ok(number) }
}

fn keyspace(decoder: &mut Decoder<'_>) -> Decoded<KeyspaceId> {
    Ok(KeyspaceId(decoder.varint_u32()?))
}

fn put_bound(out: &mut Pieces, bound: Option<&Bytes>) {
    out.short.push(u8::from(bound.is_some()));
    if let Some(bound) = bound {
        out.put_key(bound);
    }
}

fn bound(decoder: &mut Decoder<'_>) -> Decoded<Option<Bytes>> {
    match decoder.u8()? {
        0 => Ok(None),
        1 => Ok(Some(key(decoder)?)),
        flag => Err(format!("bound flag {flag}")),
    }
}

fn key(decoder: &mut Decoder<'_>) -> Decoded<Bytes> {
    let key = decoder.prefixed()?;
    // The smallest upper bound above a key of maximum length is one byte longer.
    if key.len() > MAX_KEY_BYTES + 1 {
        return Err(format!("a key of {} bytes", key.len()));
    }
    Ok(Bytes::copy_from_slice(key))
}

fn put_range(out: &mut Pieces, range: &KeyRange) {
    out.put_key(&range.lower);
    put_bound(out, range.upper.as_ref());
}

fn range(decoder: &mut Decoder<'_>) -> Decoded<KeyRange> {
    Ok(KeyRange { lower: key(decoder)?, upper: bound(decoder)? })
}

fn put_change(out: &mut Pieces, change: &Change) {
    match change {
        Change::Add { level, run, age, table } => out.put_field(ADD, |body| {
            put_numbers(body, &[u64::from(*level), run.0, age.0]);
            put_table(body, &table.meta);
            put_range(body, &table.range);
            put_numbers(body, &[table.live_bytes]);
        }),
        Change::Remove { level, run, table } => {
            out.put_field(REMOVE, |body| put_numbers(body, &[u64::from(*level), run.0, table.0]));
        }
        Change::Narrow { level, run, table, range, live_bytes, .. } => out.put_field(NARROW, |body| {
            put_numbers(body, &[u64::from(*level), run.0, table.0]);
            put_range(body, range);
            put_numbers(body, &[*live_bytes]);
        }),
    }
}

fn change(kind: u8, decoder: &mut Decoder<'_>) -> Decoded<Change> {
    if !(ADD..=NARROW).contains(&kind) {
        return Err(format!("unknown change {kind}"));
    }
    let level = decoder.varint_u32()?;
    let run = RunId(decoder.varint()?);
    Ok(match kind {
        ADD => {
            let age = Age(decoder.varint()?);
            let meta = Arc::new(table(decoder)?);
            let range = shared_bounds(range(decoder)?, &meta);
            let (live_bytes, values) = (count(decoder, "bytes in use")?, ValueUses::default());
            Change::Add { level, run, age, table: TableUse { meta, range, live_bytes, values } }
        }
        REMOVE => Change::Remove { level, run, table: TableId(decoder.varint()?) },
        _ => Change::Narrow {
            level,
            run,
            table: TableId(decoder.varint()?),
            range: range(decoder)?,
            live_bytes: count(decoder, "bytes in use")?,
            values: ValueUses::default(),
        },
    })
}

/// Replaces bounds that equal the table's own by shared references to them: most tables are used as
/// a whole.
fn shared_bounds(mut range: KeyRange, meta: &TableMeta) -> KeyRange {
    if range.lower == meta.smallest {
        range.lower = meta.smallest.clone();
    }
    if range.upper == meta.upper {
        range.upper = meta.upper.clone();
    }
    range
}

fn put_table(out: &mut Pieces, meta: &TableMeta) {
    put_numbers(out, &[meta.id.0]);
    out.short.extend_from_slice(&meta.birth.0.to_le_bytes());
    put_numbers(out, &[meta.file_bytes, meta.entries, meta.deletes, meta.range_deletes]);
    out.put_key(&meta.smallest);
    put_bound(out, meta.upper.as_ref());
    put_numbers(out, &[meta.smallest_seq.0, meta.largest_seq.0]);
    out.short.extend_from_slice(&meta.bits_per_key.to_bits().to_le_bytes());
}

/// Reads a number of bytes or entries of one table.
fn count(decoder: &mut Decoder<'_>, name: &str) -> Decoded<u64> {
    let count = decoder.varint()?;
    if count > COUNT_MAX { Err(format!("{count} {name}")) } else { Ok(count) }
}

fn table(decoder: &mut Decoder<'_>) -> Decoded<TableMeta> {
    let meta = TableMeta {
        id: TableId(decoder.varint()?),
        birth: BirthId(decoder.u64()?),
        file_bytes: count(decoder, "bytes of a table")?,
        entries: count(decoder, "entries of a table")?,
        deletes: count(decoder, "deletes of a table")?,
        range_deletes: count(decoder, "range deletes of a table")?,
        smallest: key(decoder)?,
        upper: bound(decoder)?,
        smallest_seq: SeqNo(decoder.varint()?),
        largest_seq: SeqNo(decoder.varint()?),
        bits_per_key: f64::from_bits(decoder.u64()?),
        reader: Default::default(),
        oldest_tombstone: Default::default(),
        older_versions: Default::default(),
        expiring: Default::default(),
        values: Default::default(),
        statistics: Default::default(),
    };
    if !meta.bits_per_key.is_finite() || meta.bits_per_key < 0.0 {
        return Err(format!("{} filter bits per key", meta.bits_per_key));
    }
    if meta.largest_seq > SeqNo::MAX || meta.smallest_seq > meta.largest_seq {
        return Err(format!("sequence numbers {} to {}", meta.smallest_seq, meta.largest_seq));
    }
    Ok(meta)
}
