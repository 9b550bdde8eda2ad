//! Tests of the descriptions: classification of the end of a file.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use shamba_env::{append_all, read_file};
use shamba_key::{Expiry, Operand, SeqNo};

use super::*;
use shamba_key::{Age, KeyspaceId, LogNo, RunId};
use shamba_log::wal::{OpRef, WalWriter, encode_op, log_file_name};
use shamba_table::{BirthId, TableId};
use shamba_testkit::memory_env as new_env;
use shamba_tree::version::manifest::{ManifestState, ManifestWriter};
use shamba_tree::version::{
    Change, HistoryEntry, KeyRange, ManifestEdit, TableMeta, TableUse, ValueUse, ValueUses, Version,
    VersionEdit,
};

/// A log of three batches, of which the first two are synced, with or without an end marker.
fn log(finish: bool) -> Vec<u8> {
    let env = new_env(1);
    let mut wal = WalWriter::create(&env, Path::new("/"), LogNo(7), None, SeqNo::ZERO).expect("a log");
    for seq in 1..=3 {
        let mut ops = Vec::new();
        encode_op(&mut ops, true, KeyspaceId(0), OpRef::Put { key: b"\\\x00key", value: b"value" });
        wal.append_batch(SeqNo(seq), 1, &ops).expect("appended");
        if seq == 2 {
            wal.sync().expect("synced");
        }
    }
    wal.flush().expect("flushed");
    if finish {
        wal.finish_clean().expect("closed");
    }
    read_file(env.vfs.as_ref(), &Path::new("/").join(log_file_name(LogNo(7)))).expect("read")
}

fn described(bytes: &[u8]) -> Result<LogDescription> {
    let env = new_env(2);
    let path = Path::new("/copy-under-another-name");
    append_all(env.vfs.create(path).expect("a file").as_mut(), bytes).expect("written");
    wal_file(&env, path)
}

#[test]
fn the_end_is_judged_by_the_promises_in_the_file() {
    let open = described(&log(false)).expect("described");
    assert_eq!(open.ending, Ending::Open);
    let kinds: Vec<&str> = open.records.iter().map(|record| record.kind).collect();
    assert_eq!(kinds, ["head", "batches", "promise", "batches"]);
    let put = |seq| ("put", format!("@{seq} [0] \\\\\\x00key (5 bytes)"));
    let batch = || ("batch", "of 1".to_owned());
    assert_eq!(open.records[1].fields, [batch(), put(1), batch(), put(2)]);
    assert_eq!(described(&log(true)).expect("described").ending, Ending::Clean);

    let mut torn = log(false);
    let last = torn.len() - 1;
    torn[last] ^= 1;
    let torn = described(&torn).expect("described");
    assert!(matches!(torn.ending, Ending::Torn { .. }) && !torn.is_corrupt());
    assert_eq!(torn.records.len(), 3);

    let mut corrupt = log(false);
    corrupt[120] ^= 1;
    let corrupt = described(&corrupt).expect("described");
    assert!(corrupt.is_corrupt(), "{:?}", corrupt.ending);
    assert!(corrupt.to_string().contains("CORRUPT at offset"));
}

#[test]
fn damaged_and_foreign_headers_are_errors() {
    for (at, kind) in [(0, ErrorKind::Corruption), (9, ErrorKind::Unsupported), (30, ErrorKind::Corruption)] {
        let mut bytes = log(true);
        bytes[at] ^= 0x80;
        assert_eq!(described(&bytes).expect_err("damaged").kind(), kind);
    }
    assert_eq!(described(b"").expect_err("empty").kind(), ErrorKind::Corruption);
    let nothing = manifest_file(&new_env(1), Path::new("/nothing")).expect_err("no such file");
    assert_eq!(nothing.kind(), ErrorKind::Io);
    assert_eq!(
        manifest_file(&new_env(1), Path::new("/")).expect_err("no database").kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn a_batch_too_long_to_be_held_is_described_like_any_other() {
    let env = new_env(1);
    let mut wal = WalWriter::create(&env, Path::new("/"), LogNo(7), None, SeqNo(4)).expect("a log");
    let value = vec![7; 200_000];
    let mut ops = Vec::new();
    encode_op(&mut ops, true, KeyspaceId(3), OpRef::Put { key: b"long", value: &value });
    encode_op(&mut ops, false, KeyspaceId(0), OpRef::Delete { key: b"gone" });
    encode_op(&mut ops, false, KeyspaceId(0), OpRef::RangeDelete { start: b"a", end: Some(b"b") });
    encode_op(&mut ops, false, KeyspaceId(0), OpRef::RangeDelete { start: b"c", end: None });
    let operand = Operand::single(b"+1").encode();
    encode_op(&mut ops, false, KeyspaceId(2), OpRef::Merge { key: b"n", operand: &operand });
    wal.append_batch(SeqNo(5), 5, &ops).expect("appended");
    wal.append_op(SeqNo(10), KeyspaceId(0), OpRef::Put { key: b"next", value: b"v" }).expect("appended");
    wal.flush().expect("flushed");
    let described = wal_file(&env, &Path::new("/").join(log_file_name(LogNo(7)))).expect("described");
    assert_eq!((&described.ending, described.records[1].frames), (&Ending::Open, 4));
    let texts = |record: usize| {
        let fields = described.records[record].fields.iter();
        fields.map(|(name, text)| format!("{name} {text}")).collect::<Vec<_>>()
    };
    assert_eq!(
        texts(1),
        [
            "batch of 5",
            "put @5 [3] long (200000 bytes)",
            "delete @6 [0] gone",
            "range_delete @7 [0] a..b",
            "range_delete @8 [0] c..",
            "merge @9 [2] n (2 bytes)",
        ]
    );
    assert_eq!(texts(2), ["batch of 1", "put @10 [0] next (1 bytes)"]);
}

#[test]
fn the_description_of_the_format_page_is_what_a_log_prints() {
    let env = new_env(1);
    env.vfs.create_dir_all(Path::new("/db")).expect("a directory");
    let mut wal = WalWriter::create(&env, Path::new("/db"), LogNo(7), None, SeqNo(40)).expect("a log");
    let mut ops = Vec::new();
    encode_op(&mut ops, true, KeyspaceId(0), OpRef::Put { key: b"apple", value: b"red" });
    encode_op(&mut ops, false, KeyspaceId(0), OpRef::Delete { key: b"pear" });
    encode_op(&mut ops, false, KeyspaceId(3), OpRef::RangeDelete { start: b"a", end: Some(b"c") });
    let operand = Operand::single(b"+1").encode();
    encode_op(&mut ops, false, KeyspaceId(3), OpRef::Merge { key: b"n", operand: &operand });
    let stored = Expiry(1_704_067_260_000).encode(b"asha");
    encode_op(&mut ops, false, KeyspaceId(0), OpRef::PutExpiring { key: b"sid", stored: &stored });
    wal.append_batch(SeqNo(41), 5, &ops).expect("appended");
    wal.append_op(SeqNo(46), KeyspaceId(0), OpRef::Put { key: b"fig", value: b"" }).expect("appended");
    wal.finish_clean().expect("closed");
    let described = wal_file(&env, &Path::new("/db").join(log_file_name(LogNo(7)))).expect("described");
    let page = include_str!("../../../../../docs/formats/wal.md");
    assert!(page.contains(&described.to_string()), "docs/formats/wal.md lacks this:\n{described}");
}

#[test]
fn the_description_of_the_format_page_is_what_a_manifest_prints() {
    let env = new_env(1);
    let dir = Path::new("/db");
    env.vfs.create_dir_all(dir).expect("a directory");
    let first = ManifestEdit {
        settings: vec![("digest".to_owned(), "xxh3".to_owned())],
        keyspaces_created: vec![(KeyspaceId(0), "default".to_owned(), Vec::new())],
        merge_operators: vec![(KeyspaceId(0), "shamba.add-u64".to_owned())],
        first_log: Some(LogNo(2)),
        next_id: Some(4),
        history: vec![HistoryEntry::Opened { log: LogNo(2), after: LogNo(0), seq: SeqNo(0), is_epoch: true }],
        ..ManifestEdit::default()
    };
    let mut state = ManifestState::default();
    state.apply(&first).expect("it fits");
    let mut writer = ManifestWriter::create(&env, dir, 3, &state).expect("created");
    let (lower, upper) = (Bytes::from("a"), Some(Bytes::from("m")));
    let meta = TableMeta {
        id: TableId(5),
        birth: BirthId(5u64.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        file_bytes: 10_005,
        entries: 300,
        deletes: 20,
        range_deletes: 1,
        smallest: lower.clone(),
        upper: upper.clone(),
        smallest_seq: SeqNo(5),
        largest_seq: SeqNo(405),
        bits_per_key: 10.5,
        reader: Default::default(),
        oldest_tombstone: Default::default(),
        older_versions: Default::default(),
        expiring: Default::default(),
        values: Default::default(),
        statistics: Default::default(),
    };
    let (range, values) = (KeyRange { lower, upper }, Default::default());
    let table = TableUse { meta: Arc::new(meta), range, live_bytes: 9_005, values };
    let change = Change::Add { level: 0, run: RunId(6), age: Age(6), table };
    let versions = vec![VersionEdit { keyspace: KeyspaceId(0), changes: vec![change] }];
    writer.append(&ManifestEdit { versions, ..ManifestEdit::default() }).expect("appended");
    let described = manifest_file(&env, dir).expect("described");
    let page = include_str!("../../../../../docs/formats/manifest.md");
    assert!(page.contains(&described.to_string()), "docs/formats/manifest.md lacks this:\n{described}");
}

#[test]
fn references_to_values_are_described() {
    let env = new_env(1);
    let dir = Path::new("/db");
    env.vfs.create_dir_all(dir).expect("a directory");
    let mut state = ManifestState::default();
    let keyspaces_created = vec![(KeyspaceId(0), "default".to_owned(), Vec::new())];
    state.apply(&ManifestEdit { keyspaces_created, ..ManifestEdit::default() }).expect("it fits");
    let mut writer = ManifestWriter::create(&env, dir, 3, &state).expect("created");
    let tree = "L0: r6@6[5:b..m of a..m 90 n=30 val=31:7:2000 of 12:4000]\nV: 31 12128 n=50\n";
    let version: Version = tree.parse().expect("notation");
    let table = version.level(0)[0].tables()[0].clone();
    let file = Arc::clone(&table.values.files()[0].file);
    let range = KeyRange { lower: Bytes::from("k"), upper: table.range.upper.clone() };
    let values = ValueUses::sum([ValueUse { file: Arc::clone(&file), values: 3, bytes: 700 }]);
    let (level, run, age, id) = (0, RunId(6), Age(6), TableId(5));
    let change = |change| vec![VersionEdit { keyspace: KeyspaceId(0), changes: vec![change] }];
    let versions = change(Change::Add { level, run, age, table });
    let edit = ManifestEdit { value_files: vec![file], versions, ..ManifestEdit::default() };
    writer.append(&edit).expect("appended");
    let versions = change(Change::Narrow { level, run, table: id, range, live_bytes: 40, values });
    writer.append(&ManifestEdit { versions, ..ManifestEdit::default() }).expect("appended");
    let described = manifest_file(&env, dir).expect("described").to_string();
    for line in [
        "value_file 000031 12128 bytes, 50 values, birth 0000000000000000",
        "add [0] L0 r6@6 000005 b..m 90 of 90 bytes, 30 entries, @0..=0, birth 0000000000000000, \
         values 12 of 4000 bytes in 000031, of these in use 7 of 2000 bytes in 000031",
        "narrow [0] L0 r6 000005 k..m 40 bytes, values 3 of 700 bytes in 000031",
    ] {
        assert!(described.contains(line), "no line {line}:\n{described}");
    }
}
