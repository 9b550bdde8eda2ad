//! Tests of the fields that concern value files.

use super::*;
use crate::version::Version;
use crate::version::manifest::codec::{EditFault, decode_edit, encode_edit};
use shamba_log::framing::codec::{put_prefixed, put_varint};

fn edit(value_files: Vec<Arc<ValueFileMeta>>, changes: Vec<Change>) -> ManifestEdit {
    let versions = vec![VersionEdit { keyspace: KeyspaceId(0), changes }];
    ManifestEdit { value_files, versions, ..ManifestEdit::default() }
}

/// The state of a database with one keyspace and no table.
fn empty() -> ManifestState {
    states(&life())[0].clone()
}

fn reread(state: &ManifestState) -> Version {
    let mut again = ManifestState::default();
    let snapshot = encode_edit(&state.snapshot_edit());
    again.apply(&decode_edit(&snapshot, &mut ValueFiles::default()).expect("valid")).expect("it fits");
    again.keyspaces[&KeyspaceId(0)].version.clone()
}

/// As `docs/formats/manifest.md` has it.
#[test]
fn a_value_file_and_the_references_to_it() {
    let (id, birth, file) = (ValueFileId(31), BirthId(0x0807_0605_0403_0201), Default::default());
    let file = ValueFileMeta { id, birth, file_bytes: 12_128, values: 50, file };
    let only = ManifestEdit { value_files: vec![Arc::new(file)], ..ManifestEdit::default() };
    assert_eq!(encode_edit(&only), b"\x8e\x0c\x1f\x01\x02\x03\x04\x05\x06\x07\x08\xe0\x5e\x32");
    let table = referring(table(5, "a", Some("m")), &[(31, 12, 4_000)]);
    let part = TableUse { values: value_uses(&[(31, 7, 2_000)]), ..table };
    let bytes = encode_edit(&edit(Vec::new(), vec![add(0, 6, part)]));
    let fields = b"\x8f\x06\x05\x01\x1f\x0c\xa0\x1f\x90\x07\x06\x05\x01\x1f\x07\xd0\x0f";
    assert!(bytes.ends_with(fields), "{bytes:x?}");
}

#[test]
fn a_database_without_value_files_has_no_field_of_them() {
    let none = ManifestEdit {
        value_files: Vec::new(),
        versions: vec![VersionEdit {
            keyspace: KeyspaceId(0),
            changes: vec![
                add(0, 6, table(5, "a", Some("m"))),
                Change::Narrow {
                    level: 0,
                    run: RunId(6),
                    table: TableId(5),
                    range: KeyRange {
                        lower: Bytes::from_static(b"k"),
                        upper: Some(Bytes::from_static(b"m")),
                    },
                    live_bytes: 4_000,
                    values: ValueUses::default(),
                },
            ],
        }],
        ..ManifestEdit::default()
    };
    let bytes = encode_edit(&none);
    let mut fields = shamba_log::framing::codec::Decoder::new(&bytes);
    let mut tags = Vec::new();
    while !fields.is_empty() {
        tags.push(fields.u8().expect("a tag"));
        fields.prefixed().expect("a body");
    }
    assert_eq!(tags, [0x85]);
}

#[test]
fn parts_of_tables_keep_their_counts() {
    let mut state = empty();
    let whole = referring(table(5, "a", Some("m")), &[(31, 12, 4_000), (32, 3, 500)]);
    let range = KeyRange { lower: Bytes::from_static(b"b"), upper: Some(Bytes::from_static(b"m")) };
    let part = TableUse { values: value_uses(&[(31, 7, 2_000)]), range: range.clone(), ..whole };
    state.apply(&edit(vec![value_file(31), value_file(32)], vec![add(0, 6, part)])).expect("it fits");
    let shown = "L0: r6@6[000005:b..m of a..m 9005 of 10005 n=300 del=20 rdel=1 seq=5-405 \
                 val=31:7:2000 of 12:4000 val=32:0:0 of 3:500]\nV: 000031 12128 n=50, 000032 12128 n=50\n";
    assert_eq!(reread(&state).to_string(), shown);
    // None at all are stated, too: an added use has those of the table otherwise.
    let narrow = |values| Change::Narrow {
        level: 0,
        run: RunId(6),
        table: TableId(5),
        range: range.clone(),
        live_bytes: 9_005,
        values,
    };
    let bytes = encode_edit(&edit(Vec::new(), vec![narrow(ValueUses::default())]));
    state.apply(&decode_edit(&bytes, &mut ValueFiles::default()).expect("valid")).expect("it fits");
    assert_eq!(reread(&state).to_string(), shown.replace("31:7:2000", "31:0:0"));
}

/// All tables of a manifest that name a file share one `Arc`: a file without owners is deleted.
#[test]
fn a_number_has_one_file_in_all_edits_of_a_manifest() {
    let mut files = ValueFiles::default();
    let mut state = empty();
    let first = referring(table(5, "a", Some("m")), &[(31, 12, 4_000)]);
    let second = referring(table(6, "n", None), &[(31, 3, 400)]);
    for edit in
        [edit(vec![value_file(31)], vec![add(0, 6, first)]), edit(Vec::new(), vec![add(0, 7, second)])]
    {
        state.apply(&decode_edit(&encode_edit(&edit), &mut files).expect("valid")).expect("it fits");
    }
    drop(files);
    let version = &state.keyspaces[&KeyspaceId(0)].version;
    let owned: Vec<_> = version.tables().map(|(_, _, table)| &table.values.files()[0].file).collect();
    assert!(Arc::ptr_eq(owned[0], owned[1]));
    assert_eq!(Arc::strong_count(owned[0]), 2, "the lists of both tables, which their uses share");
}

#[test]
fn false_fields_are_refused() {
    let changes = || vec![add(0, 6, table(5, "a", Some("m")))];
    let refused = |field: &[u8], tag: u8| {
        let mut bytes = encode_edit(&edit(vec![value_file(31), value_file(32)], changes()));
        bytes.push(tag);
        put_prefixed(&mut bytes, field);
        match decode_edit(&bytes, &mut ValueFiles::default()) {
            Err(EditFault::Malformed(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    for (field, why) in [
        (&[5, 1, 33, 1, 1][..], "field 0x8f: table 000005: value file 000033 is not known"),
        (&[9, 1, 31, 1, 1], "field 0x8f: table 000009: the edit does not add it"),
        (&[5, 1, 31, 51, 60], "field 0x8f: table 000005: 51 values of 60 bytes in value file 000031"),
        (&[5, 1, 31, 0, 60], "field 0x8f: table 000005: 0 values of 60 bytes in value file 000031"),
        (&[5, 1, 31, 9, 8], "field 0x8f: table 000005: 9 values of 8 bytes in value file 000031"),
        (&[5, 2, 32, 1, 1, 31, 1, 1], "field 0x8f: value file 000031 is out of order"),
        (&[5, 2, 31, 1, 1, 31, 1, 1], "field 0x8f: value file 000031 is out of order"),
    ] {
        assert_eq!(refused(field, 0x8f), why);
    }
    for (field, why) in [
        (&[6, 9, 1, 31, 1, 1][..], "field 0x90: table 000009: the edit does not add or narrow it"),
        (&[7, 5, 1, 31, 1, 1], "field 0x90: table 000005: the edit does not add or narrow it"),
        (&[6, 5, 1, 31, 1, 1], "field 0x90: table 000005: it refers to more values than the table"),
    ] {
        assert_eq!(refused(field, 0x90), why);
    }
    let mut count = vec![5];
    put_varint(&mut count, u64::MAX);
    assert!(refused(&count, 0x8f).starts_with("field 0x8f: "), "a false count costs no memory");
    let mut file = vec![31];
    file.extend_from_slice(&BirthId(1).0.to_le_bytes());
    file.extend_from_slice(&[0xe0, 0x5e, 50]);
    assert_eq!(refused(&file, 0x8e), "field 0x8e: value file 000031 is there already, as another file");
    let at = file.len() - 1;
    file[at] = 0;
    assert_eq!(refused(&file, 0x8e), "field 0x8e: value file 000031 of 12128 bytes has 0 values");
    let referring = referring(table(5, "a", Some("m")), &[(31, 50, 4_000), (32, 50, 4_000)]);
    let meta = Arc::into_inner(referring.meta).expect("the only one");
    let few = TableMeta { entries: 119, ..meta };
    let bytes = encode_edit(&edit(
        vec![value_file(31), value_file(32)],
        vec![add(0, 6, TableUse { meta: Arc::new(few), ..table(5, "a", Some("m")) })],
    ));
    let why = "field 0x8f: table 000005: 100 values of 99 entries".to_owned();
    let decoded = decode_edit(&bytes, &mut ValueFiles::default()).map(|_| ());
    assert_eq!(decoded, Err(EditFault::Malformed(why)));
}

#[test]
fn a_value_file_has_no_more_values_than_bytes() {
    let decoded = |values: u64| {
        let (id, birth, file) = (ValueFileId(31), BirthId(1), Default::default());
        let file_bytes = shamba_table::VALUE_FILE_FIXED_BYTES + 10;
        let only = edit(vec![Arc::new(ValueFileMeta { id, birth, file_bytes, values, file })], Vec::new());
        let decoded = decode_edit(&encode_edit(&only), &mut ValueFiles::default());
        decoded.map(|edit| edit.value_files[0].values)
    };
    for values in [1, 9, 10] {
        assert_eq!(decoded(values), Ok(values));
    }
    for values in [0, 11, 12] {
        let why = match decoded(values) {
            Err(EditFault::Malformed(why)) => why,
            other => panic!("{other:?}"),
        };
        assert!(why.ends_with(&format!("bytes has {values} values")), "{why}");
    }
}
