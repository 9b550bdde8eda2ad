//! Tests of edits: their encoding, and their effect on the state.

use super::*;
use crate::version::manifest::codec::{self, EditFault, encode_edit};
use crate::version::manifest::pieces::Pieces;
use shamba_env::{Rng, SeededRng};
use shamba_key::MAX_KEY_BYTES;
use shamba_log::framing::codec::{put_prefixed, put_varint};

/// Decodes an edit before which the value files of `life` are known.
fn decode_edit(bytes: &[u8]) -> Result<ManifestEdit, EditFault> {
    let mut known = ValueFiles::default();
    for id in [31, 32] {
        known.add(Arc::into_inner(value_file(id)).expect("the only one")).expect("a new one");
    }
    codec::decode_edit(bytes, &mut known)
}

#[test]
fn edits_round_trip() {
    for edit in life() {
        let decoded = decode_edit(&encode_edit(&edit)).expect("valid");
        assert_eq!(format!("{decoded:?}"), format!("{edit:?}"));
    }
    assert!(encode_edit(&ManifestEdit::default()).is_empty());
}

/// As `docs/formats/manifest.md` has it.
#[test]
fn a_compaction_filter_is_named_and_removed() {
    let of = |name: Option<&str>| ManifestEdit {
        compaction_filters: vec![(KeyspaceId(1), name.map(str::to_owned))],
        ..ManifestEdit::default()
    };
    assert_eq!(encode_edit(&of(Some("aged"))), b"\x8d\x06\x01\x04aged");
    assert_eq!(encode_edit(&of(None)), b"\x8d\x02\x01\x00");
    let mut state = states(&life())[1].clone();
    let named = |state: &ManifestState| state.keyspaces[&KeyspaceId(1)].compaction_filter.clone();
    assert_eq!(named(&state).as_deref(), Some("temporary"));
    state.apply(&of(None)).expect("it fits");
    assert_eq!(named(&state), None);
    let recorded = decode_edit(&encode_edit(&state.snapshot_edit())).expect("valid").compaction_filters;
    assert_eq!(recorded, [(KeyspaceId(0), Some("aged".to_owned()))], "a removed one is written again");
}

#[test]
fn states_differ_in_what_an_open_depends_on() {
    let (life, states) = (life(), states(&life()));
    let mut differences = 0;
    for (edit, (before, after)) in life.iter().skip(1).zip(states.iter().zip(&states[1..])) {
        let of_trees = !edit.versions.is_empty() || !edit.flushed.is_empty() || edit.first_log.is_some();
        let of_rules = !edit.merge_operators.is_empty() || !edit.compaction_filters.is_empty();
        let of_keyspaces = !edit.keyspaces_created.is_empty()
            || !edit.keyspaces_dropped.is_empty()
            || !edit.keyspace_settings.is_empty();
        let is_other = of_trees || of_rules || of_keyspaces || !edit.settings.is_empty();
        assert_eq!(before.difference(after).is_some(), is_other, "{edit:?}");
        assert_eq!(after.difference(before).is_some(), is_other, "{edit:?}");
        assert_eq!(after.difference(after), None);
        differences += usize::from(is_other);
    }
    assert!(differences >= 3, "{differences} differences");
}

#[test]
fn a_snapshot_makes_the_same_state() {
    for state in states(&life()) {
        let mut again = ManifestState::default();
        let (snapshot, mut files) = (encode_edit(&state.snapshot_edit()), ValueFiles::default());
        again.apply(&codec::decode_edit(&snapshot, &mut files).expect("valid")).expect("it fits");
        assert_eq!(text(&again), text(&state));
    }
}

#[test]
fn the_time_of_the_oldest_tombstone_goes_with_its_table() {
    let (known, unknown) = (table(5, "a", Some("m")), table(6, "n", None));
    known.meta.oldest_tombstone.lower(1_700_000_000_000);
    let changes = vec![add(0, 9, known), add(0, 9, unknown)];
    let edit = ManifestEdit {
        versions: vec![VersionEdit { keyspace: KeyspaceId(0), changes }],
        ..ManifestEdit::default()
    };
    let mut state = states(&life())[0].clone();
    state.apply(&decode_edit(&encode_edit(&edit)).expect("valid")).expect("it fits");
    let snapshot = encode_edit(&state.snapshot_edit());
    let mut again = ManifestState::default();
    again.apply(&decode_edit(&snapshot).expect("valid")).expect("it fits");
    let tables = again.keyspaces[&KeyspaceId(0)].version.tables();
    let times: Vec<_> =
        tables.map(|(_, _, table)| (table.meta.id.0, table.meta.oldest_tombstone.unix_ms())).collect();
    assert_eq!(times, [(5, Some(1_700_000_000_000)), (6, None)]);
    // A time of a table that the edit does not add has no effect, and half a field is malformed.
    let mut bytes = snapshot.clone();
    bytes.push(0x01);
    put_prefixed(&mut bytes, &[99, 7]);
    assert!(decode_edit(&bytes).is_ok());
    bytes.push(0x01);
    put_prefixed(&mut bytes, &[99]);
    assert!(matches!(decode_edit(&bytes), Err(EditFault::Malformed(_))));
}

#[test]
fn unknown_fields_are_skipped_or_refused_by_their_tag() {
    let mut bytes = encode_edit(&life()[0]);
    bytes.push(0x7f);
    put_prefixed(&mut bytes, b"from the future");
    let decoded = decode_edit(&bytes).expect("the field may be skipped");
    assert_eq!(format!("{decoded:?}"), format!("{:?}", life()[0]));
    bytes.push(0xff);
    put_prefixed(&mut bytes, b"and this may not be");
    assert!(matches!(decode_edit(&bytes), Err(EditFault::Unsupported(_))));
}

#[test]
fn counts_that_no_table_can_have_are_malformed() {
    let with = |live_bytes| TableUse { live_bytes, ..table(5, "a", Some("m")) };
    assert!(decoded(with(1 << 44)).is_ok());
    let Err(EditFault::Malformed(detail)) = decoded(with((1 << 44) + 1)) else { panic!("it is taken") };
    assert!(detail.contains("17592186044417 bytes in use"), "{detail}");
}

#[test]
fn false_counts_and_lengths_cost_nothing() {
    let mut body = vec![0, 1, b'n'];
    put_varint(&mut body, u64::MAX);
    let mut bytes = vec![0x82];
    put_prefixed(&mut bytes, &body);
    assert!(matches!(decode_edit(&bytes), Err(EditFault::Malformed(_))));
    let mut bytes = vec![0x85];
    put_varint(&mut bytes, u64::MAX);
    assert!(matches!(decode_edit(&bytes), Err(EditFault::Malformed(_))));
}

#[test]
fn hostile_edits_never_panic_nor_do_states_that_take_them() {
    let rng = SeededRng::new(77);
    let good: Vec<Vec<u8>> = life().iter().map(encode_edit).collect();
    let before = states(&life())[2].clone();
    for _ in 0..60_000 {
        let mut bytes = good[(rng.next_u64() % 4) as usize].clone();
        for _ in 0..1 + rng.next_u64() % 4 {
            let at = (rng.next_u64() % bytes.len().max(1) as u64) as usize;
            match rng.next_u64() % 4 {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, rng.next_u64() as u8),
                _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = rng.next_u64() as u8),
            }
        }
        if let Ok(edit) = decode_edit(&bytes) {
            let mut state = before.clone();
            if state.apply(&edit).is_err() {
                assert_eq!(text(&state), text(&before), "a refused edit left a trace");
            }
            assert_eq!(
                format!("{:?}", decode_edit(&encode_edit(&edit)).expect("valid")),
                format!("{edit:?}")
            );
        }
    }
}

#[test]
fn an_edit_that_does_not_fit_changes_nothing() {
    let state = states(&life())[1].clone();
    let unfit = [
        ManifestEdit { keyspaces_dropped: vec![KeyspaceId(8)], ..ManifestEdit::default() },
        ManifestEdit { keyspace_settings: vec![(KeyspaceId(8), Vec::new())], ..ManifestEdit::default() },
        ManifestEdit { flushed: vec![(KeyspaceId(8), SeqNo(1))], ..ManifestEdit::default() },
        ManifestEdit {
            keyspaces_created: vec![(KeyspaceId(1), "other".to_owned(), Vec::new())],
            ..ManifestEdit::default()
        },
        ManifestEdit {
            keyspaces_created: vec![(KeyspaceId(5), "users".to_owned(), Vec::new())],
            ..ManifestEdit::default()
        },
        ManifestEdit {
            next_id: Some(1_000),
            versions: vec![VersionEdit {
                keyspace: KeyspaceId(0),
                changes: vec![Change::Remove { level: 0, run: RunId(1), table: TableId(1) }],
            }],
            ..ManifestEdit::default()
        },
    ];
    for edit in unfit {
        let mut after = state.clone();
        after.apply(&edit).expect_err("it does not fit");
        assert_eq!(text(&after), text(&state));
    }
}

#[test]
fn counters_only_rise() {
    let mut state = states(&life())[1].clone();
    let late = ManifestEdit {
        first_log: Some(LogNo(1)),
        log_promise: Some((LogNo(1), 9_999)),
        last_seq: Some(SeqNo(2)),
        next_id: Some(2),
        flushed: vec![(KeyspaceId(0), SeqNo(1))],
        ..ManifestEdit::default()
    };
    let before = text(&state);
    state.apply(&late).expect("it fits");
    assert_eq!(text(&state), before);
}

/// Decodes the encoding of an edit that adds the table to the only keyspace, and returns the table.
fn decoded(table: TableUse) -> Result<TableUse, EditFault> {
    let versions = vec![VersionEdit { keyspace: KeyspaceId(0), changes: vec![add(0, 9, table)] }];
    let mut edit = decode_edit(&encode_edit(&ManifestEdit { versions, ..ManifestEdit::default() }))?;
    match edit.versions.remove(0).changes.remove(0) {
        Change::Add { table, .. } => Ok(table),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_part_keeps_its_bounds_and_shares_those_of_its_table() {
    for (lower, upper) in [("a", "m"), ("a", "k"), ("b", "m"), ("b", "k")] {
        let range = KeyRange { lower: lower.into(), upper: Some(upper.into()) };
        let part = TableUse { range: range.clone(), ..table(5, "a", Some("m")) };
        let TableUse { range: read, meta, .. } = decoded(part).expect("valid");
        assert_eq!(read, range);
        assert_eq!(meta.key_range(), KeyRange { lower: "a".into(), upper: Some("m".into()) });
        let (of_part, of_table) = (read.upper.expect("a bound"), meta.upper.clone().expect("a bound"));
        assert_eq!(read.lower.as_ptr() == meta.smallest.as_ptr(), lower == "a", "{lower}");
        assert_eq!(of_part.as_ptr() == of_table.as_ptr(), upper == "m", "{upper}");
    }
}

#[test]
fn numbers_that_could_not_be_counted_on_from_are_refused() {
    let decoded = |edit: ManifestEdit| decode_edit(&encode_edit(&edit)).map(|_| ());
    let next_id = |next_id| ManifestEdit { next_id: Some(next_id), ..ManifestEdit::default() };
    assert_eq!(decoded(next_id(u64::MAX / 4)), Ok(()));
    assert!(decoded(next_id(u64::MAX / 4 + 1)).is_err());
    let last_seq = |seq| ManifestEdit { last_seq: Some(SeqNo(seq)), ..ManifestEdit::default() };
    let flushed =
        |seq| ManifestEdit { flushed: vec![(KeyspaceId(1), SeqNo(seq))], ..ManifestEdit::default() };
    for of in [last_seq, flushed] {
        assert_eq!(decoded(of(SeqNo::MAX.0)), Ok(()));
        let refused = decoded(of(SeqNo::MAX.0 + 1)).expect_err("no log could have it");
        assert!(matches!(&refused, EditFault::Malformed(why) if why.contains("too large")), "{refused:?}");
    }
}

#[test]
fn numbers_of_a_table_that_cannot_be_are_refused() {
    let decoded = |bits_per_key: f64, smallest: u64, largest: u64| {
        let meta = Arc::into_inner(table(5, "a", Some("m")).meta).expect("the only one");
        let (smallest_seq, largest_seq) = (SeqNo(smallest), SeqNo(largest));
        let meta = Arc::new(TableMeta { bits_per_key, smallest_seq, largest_seq, ..meta });
        decoded(TableUse { meta, ..table(5, "a", Some("m")) }).map(|table| table.meta.bits_per_key)
    };
    let max = SeqNo::MAX.0;
    for (bits, smallest, largest) in [(0.0, 0, 0), (10.5, 7, 7), (0.25, 7, 8), (10.5, max, max)] {
        assert_eq!(decoded(bits, smallest, largest), Ok(bits));
    }
    for (bits, smallest, largest, why) in [
        (f64::NAN, 7, 8, "NaN filter bits per key"),
        (f64::INFINITY, 7, 8, "inf filter bits per key"),
        (-0.5, 7, 8, "-0.5 filter bits per key"),
        (10.5, 8, 7, "sequence numbers 8 to 7"),
        (10.5, 8, max + 1, "sequence numbers 8 to 72057594037927936"),
        (10.5, 8, max + 2, "sequence numbers 8 to 72057594037927937"),
    ] {
        let why = format!("field 0x85: {why}");
        assert_eq!(decoded(bits, smallest, largest), Err(EditFault::Malformed(why)));
    }
}

#[test]
fn a_key_in_the_history_has_at_most_the_maximum_length() {
    let decoded = |bytes: usize| {
        let entry = HistoryEntry::Ingested {
            seq: SeqNo(9),
            keyspace: KeyspaceId(0),
            entries: 1,
            first: Bytes::from_static(b"a"),
            last: Bytes::from(vec![b'k'; bytes]),
        };
        let edit = ManifestEdit { history: vec![entry.clone()], ..ManifestEdit::default() };
        decode_edit(&encode_edit(&edit)).map(|edit| edit.history == [entry])
    };
    for bytes in [0, 300, MAX_KEY_BYTES] {
        assert_eq!(decoded(bytes), Ok(true), "{bytes}");
    }
    for bytes in [MAX_KEY_BYTES + 1, MAX_KEY_BYTES + 2] {
        let why = format!("field 0x03: a key of {bytes} bytes");
        assert_eq!(decoded(bytes), Err(EditFault::Malformed(why)));
    }
}

#[test]
fn a_record_copies_short_keys_and_shares_long_ones() {
    for bytes in [1, 255, 256, 257, MAX_KEY_BYTES] {
        let key = Bytes::from(vec![b'k'; bytes]);
        let mut record = Pieces::default();
        record.put_key(&key);
        let parts = record.parts();
        let is_shared = parts.iter().any(|part| part.as_ptr() == key.as_ptr());
        assert_eq!(is_shared, bytes >= 256, "{bytes}");
        let mut whole = Vec::new();
        put_prefixed(&mut whole, &key);
        assert_eq!(parts.concat(), whole, "{bytes}");
    }
}

#[test]
fn a_snapshot_leaves_out_nothing_of_the_state() {
    let mut state = states(&life())[1].clone();
    let last = ManifestEdit {
        merge_operators: vec![(KeyspaceId(1), "shamba.add-u64".to_owned())],
        time_ms: Some(1_700_000_000_000),
        ..ManifestEdit::default()
    };
    state.apply(&last).expect("it fits");
    let mut again = ManifestState::default();
    again.apply(&decode_edit(&encode_edit(&state.snapshot_edit())).expect("valid")).expect("it fits");
    assert_eq!(again.keyspaces.len(), 2);
    for ((id, found), (expected_id, expected)) in again.keyspaces.iter().zip(&state.keyspaces) {
        assert_eq!((id, &found.name, &found.settings), (expected_id, &expected.name, &expected.settings));
        assert_eq!(found.merge_operator, expected.merge_operator);
        assert_eq!(found.compaction_filter, expected.compaction_filter);
        assert_eq!(
            (found.flushed, found.version.to_string()),
            (expected.flushed, expected.version.to_string())
        );
    }
    assert_eq!(again.keyspaces[&KeyspaceId(0)].flushed, SeqNo(405));
    assert_eq!((&again.settings, again.first_log), (&state.settings, state.first_log));
    assert_eq!((again.log_promise, again.last_seq), (state.log_promise, state.last_seq));
    assert_eq!((again.next_id, again.time_ms), (state.next_id, Some(1_700_000_000_000)));
    assert_eq!(again.history, state.history);
}
