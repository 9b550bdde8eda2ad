//! Tests of the manifest: round trips, and loads after every kind of damage.

mod damage;
mod edits;
mod files;
mod format;
mod log_and_manifest;
mod values;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use shamba_env::{Env, FileError, MemFs, append_all, read_file};
use shamba_key::SeqNo;
use shamba_table::{BirthId, TableId, ValueFileId};

use super::load::Loaded;
use super::*;
use crate::version::edit::{Change, KeyRange, TableMeta, TableUse, VersionEdit};
use crate::version::{HistoryEntry, ValueFileMeta, ValueFiles, ValueUse, ValueUses};
use shamba_key::{Age, KeyspaceId, LogNo, RunId};

pub(super) const DIR: &str = "/db";

pub(super) fn new_env(seed: u64) -> Env {
    let env = Env::deterministic(Arc::new(MemFs::new()), seed);
    env.vfs.create_dir_all(Path::new(DIR)).expect("a directory");
    env
}

/// A table with the keys from `lower` to `upper`.
pub(super) fn table(id: u64, lower: &str, upper: Option<&str>) -> TableUse {
    let smallest = Bytes::copy_from_slice(lower.as_bytes());
    let upper = upper.map(|upper| Bytes::copy_from_slice(upper.as_bytes()));
    let meta = TableMeta {
        id: TableId(id),
        birth: BirthId(id.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        file_bytes: 10_000 + id,
        entries: 300,
        deletes: 20,
        range_deletes: 1,
        smallest: smallest.clone(),
        upper: upper.clone(),
        smallest_seq: SeqNo(id),
        largest_seq: SeqNo(id + 400),
        bits_per_key: 10.5,
        reader: Default::default(),
        oldest_tombstone: Default::default(),
        older_versions: Default::default(),
        expiring: Default::default(),
        values: Default::default(),
        statistics: Default::default(),
    };
    let range = KeyRange { lower: smallest, upper };
    TableUse { meta: Arc::new(meta), range, live_bytes: 9_000 + id, values: Default::default() }
}

/// Value file 31 or 32 of [`life`].
fn value_file(id: u64) -> Arc<ValueFileMeta> {
    let birth = BirthId(id.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let (id, file) = (ValueFileId(id), Default::default());
    Arc::new(ValueFileMeta { id, birth, file_bytes: 12_128, values: 50, file })
}

fn value_uses(counts: &[(u64, u64, u64)]) -> ValueUses {
    let of = |&(id, values, bytes): &(u64, u64, u64)| ValueUse { file: value_file(id), values, bytes };
    ValueUses::sum(counts.iter().map(of))
}

/// A use of the whole table that refers to values.
fn referring(table: TableUse, counts: &[(u64, u64, u64)]) -> TableUse {
    let values = value_uses(counts);
    table.meta.values.set(values.clone());
    TableUse { values, ..table }
}

pub(super) fn add(level: u32, run: u64, table: TableUse) -> Change {
    Change::Add { level, run: RunId(run), age: Age(run), table }
}

pub(super) fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// The edits of a short life: a new database, two flushes, a compaction, a keyspace that is created
/// and dropped.
pub(super) fn life() -> Vec<ManifestEdit> {
    let on = |keyspace, changes| VersionEdit { keyspace: KeyspaceId(keyspace), changes };
    vec![
        ManifestEdit {
            settings: pairs(&[("digest", "xxh3"), ("seed", "7")]),
            keyspaces_created: vec![(KeyspaceId(0), "default".to_owned(), pairs(&[("size_ratio", "10")]))],
            first_log: Some(LogNo(2)),
            next_id: Some(3),
            history: vec![opened(2, 0, 0, true)],
            ..ManifestEdit::default()
        },
        ManifestEdit {
            keyspaces_created: vec![(KeyspaceId(1), "users".to_owned(), Vec::new())],
            compaction_filters: vec![
                (KeyspaceId(0), Some("aged".to_owned())),
                (KeyspaceId(1), Some("temporary".to_owned())),
            ],
            value_files: vec![value_file(31)],
            versions: vec![on(0, vec![add(0, 9, referring(table(5, "a", Some("m")), &[(31, 12, 4_000)]))])],
            flushed: vec![(KeyspaceId(0), SeqNo(405))],
            first_log: Some(LogNo(4)),
            log_promise: Some((LogNo(2), 700)),
            last_seq: Some(SeqNo(405)),
            next_id: Some(10),
            ..ManifestEdit::default()
        },
        ManifestEdit {
            settings: pairs(&[("write_buffer", "1024")]),
            keyspace_settings: vec![(KeyspaceId(1), pairs(&[("size_ratio", "4")]))],
            history: vec![
                opened(7, 4, 420, false),
                HistoryEntry::Ingested {
                    seq: SeqNo(421),
                    keyspace: KeyspaceId(1),
                    entries: 300,
                    first: Bytes::from_static(b"a"),
                    last: Bytes::from_static(b"q"),
                },
                HistoryEntry::Created { seq: SeqNo(422), keyspace: KeyspaceId(8), name: "tags".to_owned() },
                HistoryEntry::Obsolete {
                    below: LogNo(7),
                    last: LogNo(4),
                    seq: SeqNo(420),
                    unix_ms: 1_700_000_000_000,
                },
            ],
            compaction_filters: vec![(KeyspaceId(0), None)],
            value_files: vec![value_file(32)],
            versions: vec![
                on(0, vec![add(0, 11, referring(table(12, "b", None), &[(31, 5, 900), (32, 20, 8_000)]))]),
                on(1, vec![add(0, 13, table(14, "", Some("q"))), add(0, 13, table(15, "q", Some("r")))]),
            ],
            next_id: Some(16),
            ..ManifestEdit::default()
        },
        ManifestEdit {
            keyspaces_dropped: vec![KeyspaceId(1)],
            history: vec![HistoryEntry::Dropped {
                seq: SeqNo(423),
                keyspace: KeyspaceId(1),
                name: "users".to_owned(),
            }],
            versions: vec![on(
                0,
                vec![
                    add(1, 17, referring(table(18, "a", Some("k")), &[(31, 17, 4_900)])),
                    Change::Remove { level: 0, run: RunId(9), table: TableId(5) },
                    Change::Narrow {
                        level: 0,
                        run: RunId(11),
                        table: TableId(12),
                        range: KeyRange { lower: Bytes::from_static(b"k"), upper: None },
                        live_bytes: 4_000,
                        values: value_uses(&[(32, 20, 8_000)]),
                    },
                ],
            )],
            next_id: Some(19),
            ..ManifestEdit::default()
        },
    ]
}

fn opened(log: u64, after: u64, seq: u64, is_epoch: bool) -> HistoryEntry {
    HistoryEntry::Opened { log: LogNo(log), after: LogNo(after), seq: SeqNo(seq), is_epoch }
}

/// The states after each edit.
pub(super) fn states(edits: &[ManifestEdit]) -> Vec<ManifestState> {
    let mut state = ManifestState::default();
    let mut states = Vec::new();
    for edit in edits {
        state.apply(edit).expect("it fits");
        states.push(state.clone());
    }
    states
}

/// Text of a whole state, for comparisons.
pub(super) fn text(state: &ManifestState) -> String {
    format!("{:?}", state.snapshot_edit())
}

/// Writes a manifest, number 3 and current, whose snapshot is the first state and whose edits are
/// the remaining ones.
pub(super) fn written(env: &Env, edits: &[ManifestEdit]) -> ManifestWriter {
    let first = &states(edits)[0];
    let mut writer = ManifestWriter::create(env, Path::new(DIR), 3, first).expect("created");
    for edit in &edits[1..] {
        writer.append(edit).expect("appended");
    }
    writer
}

pub(super) fn put_file(env: &Env, path: &Path, bytes: &[u8]) {
    let mut file = env.vfs.create(path).expect("a file");
    append_all(file.as_mut(), bytes).expect("written");
}

pub(super) fn load(env: &Env) -> crate::version::Result<Option<Loaded>> {
    ManifestReader::load(env, Path::new(DIR))
}

pub(super) fn bytes_of(env: &Env, name: &str) -> Vec<u8> {
    read_file(env.vfs.as_ref(), &Path::new(DIR).join(name)).expect("a file")
}
