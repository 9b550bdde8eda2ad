//! Folding against readers: whatever is folded, every reader sees the same value as before, at its
//! sequence number, and nothing is written that a reader could do without twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use shamba_key::{DigestFn, DigestKind, MAX_OPERAND_BYTES};
use shamba_table::{FragmentedTombstones, RangeTombstone};
use shamba_testkit::{Dice, Row, Rows};

use super::*;
use crate::compaction::filter::{CompactionFilter, FilterEntry, Filtering};
use crate::merging::builtin::Append;
use crate::merging::{MergeOperator, MergeResult};
use crate::version::KeyRange;

/// Appends, and combines only if told to.
struct Listed {
    combines: bool,
    fails: bool,
}

impl MergeOperator for Listed {
    fn name(&self) -> &str {
        "listed"
    }

    fn merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> MergeResult<Vec<u8>> {
        if self.fails {
            return Err("as told".into());
        }
        Append::separated_by(",").merge(key, base, operands)
    }

    fn combine(&self, key: &[u8], operands: &[&[u8]]) -> MergeResult<Option<Vec<u8>>> {
        if !self.combines {
            return Ok(None);
        }
        Append::separated_by(",").combine(key, operands)
    }
}

/// The entries that were written.
#[derive(Default)]
struct Written(Vec<Row>);

impl FoldOutput for Written {
    type Error = shamba_table::Error;

    fn add(
        &mut self,
        key: &[u8],
        _digest: Option<KeyDigest>,
        seq: SeqNo,
        kind: EntryKind,
        value: &[u8],
    ) -> Result<(), Self::Error> {
        let row = Row { key: key.to_vec(), seq, kind, value: value.to_vec() };
        if let Some(last) = self.0.last() {
            let place = |row: &Row| (row.key.clone(), std::cmp::Reverse(row.seq));
            assert!(place(last) < place(&row), "{row:?} is written after {last:?}");
        }
        self.0.push(row);
        Ok(())
    }

    fn add_large(&mut self, _entries: &dyn EntryIter) -> Result<(), Self::Error> {
        panic!("no test has a large value");
    }
}

fn fold(
    rows: &[Row],
    merging: Option<&Merging>,
    (snapshots, tombstones): (&[SeqNo], &FragmentedTombstones),
    below: &[KeyRange],
) -> (Vec<Row>, u64) {
    let mut folding = Folding::new(Retention::new(snapshots, tombstones, below.to_vec()), merging);
    let output = written(rows, &mut folding);
    (output, folding.failed())
}

/// The rows that `folding` writes of `rows`.
fn written(rows: &[Row], folding: &mut Folding<'_>) -> Vec<Row> {
    let mut entries = Rows::new(rows.to_vec());
    let mut written = Written::default();
    entries.seek_to_first().expect("rows");
    while entries.valid() {
        folding.take(&entries, &mut written).expect("no input or output fails");
        entries.next().expect("rows");
    }
    folding.finish(&mut written).expect("no output fails");
    assert_eq!(folding.written(), written.0.len() as u64);
    written.0
}

/// The value that a reader at `seq` sees of a key: operands of `rows`, then of those `below`.
fn seen(
    rows: &[Row],
    below: &[Row],
    tombstones: &[(u64, Vec<u8>, Vec<u8>)],
    key: &[u8],
    seq: u64,
) -> Option<String> {
    let covers =
        |(at, start, end): &&(u64, Vec<u8>, Vec<u8>)| *at <= seq && &start[..] <= key && key < &end[..];
    let floor = tombstones.iter().filter(covers).map(|(at, ..)| *at).max().unwrap_or(0);
    let mut parts: Vec<String> = Vec::new();
    let mut reached = u64::MAX;
    let mut is_there = false;
    for row in rows.iter().chain(below).filter(|row| row.key == key && row.seq.0 <= seq) {
        if row.seq.0 <= floor {
            break;
        }
        if row.seq.0 >= reached {
            continue;
        }
        match row.kind {
            EntryKind::Merge => {
                let operand = Operand::decode(&row.value).expect("an operand");
                reached = row.seq.0 - operand.reach;
                parts.push(String::from_utf8_lossy(operand.bytes).into_owned());
                is_there = true;
            }
            EntryKind::Put => {
                parts.push(String::from_utf8_lossy(&row.value).into_owned());
                is_there = true;
                break;
            }
            _ => break,
        }
    }
    parts.reverse();
    is_there.then(|| parts.join(","))
}

fn operand(key: &[u8], seq: u64, bytes: &[u8]) -> Row {
    Row { kind: EntryKind::Merge, value: Operand::single(bytes).encode(), ..Row::put(key, seq) }
}

#[test]
fn every_reader_sees_the_same_before_and_after() {
    let (mut folded_chains, mut combined) = (0, 0);
    for seed in 0..3_000u64 {
        let dice = Dice::new(seed);
        let keys = [&b"a"[..], b"b", b"c"];
        let merging = match dice.below(4) {
            0 => None,
            1 => Some(Merging::with(Arc::new(Listed { combines: false, fails: false }))),
            2 => Some(Merging::with(Arc::new(Listed { combines: true, fails: dice.one_in(3) }))),
            _ => Some(Merging::with(Arc::new(Listed { combines: true, fails: false }))),
        };
        // The older half may lie below the output.
        let cut = dice.below(30) as u64;
        let has_below = dice.one_in(2);
        let mut rows = Vec::new();
        let mut tombstones = Vec::new();
        for seq in 1..=40u64 {
            let key = keys[dice.below(keys.len())];
            match dice.below(10) {
                0 => rows.push(Row { kind: EntryKind::Delete, value: Vec::new(), ..Row::put(key, seq) }),
                1 => rows.push(Row { value: format!("p{seq}").into_bytes(), ..Row::put(key, seq) }),
                2 if dice.one_in(2) => tombstones.push((seq, b"a".to_vec(), b"c".to_vec())),
                _ => rows.push(operand(key, seq, format!("o{seq}").as_bytes())),
            }
        }
        let is_below = |row: &&Row| has_below && row.seq.0 <= cut;
        let (mut input, mut below): (Vec<Row>, Vec<Row>) = (
            rows.iter().filter(|row| !is_below(row)).cloned().collect(),
            rows.iter().filter(is_below).cloned().collect(),
        );
        for list in [&mut input, &mut below] {
            list.sort_by_key(|row| (row.key.clone(), std::cmp::Reverse(row.seq)));
        }
        let mut snapshots: Vec<SeqNo> = (0..dice.below(4)).map(|_| SeqNo(dice.below(45) as u64)).collect();
        snapshots.sort_unstable();
        snapshots.dedup();
        let ranges = if has_below { vec![KeyRange::everything()] } else { Vec::new() };
        // Only the tombstones of the inputs are known.
        let known = tombstones.iter().filter(|(seq, ..)| !has_below || *seq > cut);
        let known = known.map(|(seq, start, end)| RangeTombstone {
            start: Bytes::copy_from_slice(start),
            end: Some(Bytes::copy_from_slice(end)),
            seq: SeqNo(*seq),
        });
        let fragments = FragmentedTombstones::new(known.collect());
        let (output, failed) = fold(&input, merging.as_ref(), (&snapshots, &fragments), &ranges);
        assert!(output.len() <= input.len(), "seed {seed}: {output:?}");
        for seq in snapshots.iter().map(|seq| seq.0).chain([100]) {
            for key in keys {
                let due = seen(&input, &below, &tombstones, key, seq);
                let got = seen(&output, &below, &tombstones, key, seq);
                assert_eq!(
                    got, due,
                    "seed {seed}, {key:?} at {seq}, snapshots {snapshots:?}\n{input:?}\n{output:?}"
                );
            }
        }
        let is_combined = |row: &Row| row.kind == EntryKind::Merge && row.value[0] == 1;
        combined += output.iter().filter(|row| is_combined(row)).count();
        folded_chains +=
            output.iter().filter(|row| row.value.starts_with(b"o") || row.value.contains(&b',')).count();
        if merging.is_none() {
            assert_eq!((failed, output.iter().any(is_combined)), (0, false), "seed {seed}");
        }
    }
    assert!(folded_chains > 1_000 && combined > 500, "{folded_chains} folded, {combined} combined");
}

#[test]
fn a_chain_over_nothing_becomes_a_put_and_one_over_the_unknown_an_operand() {
    let merging = Merging::with(Arc::new(Listed { combines: true, fails: false }));
    let rows = [operand(b"k", 9, b"c"), operand(b"k", 8, b"b"), operand(b"k", 5, b"a")];
    let none = FragmentedTombstones::default();
    let (output, _) = fold(&rows, Some(&merging), (&[], &none), &[]);
    let put = |seq, value: &[u8]| Row { value: value.to_vec(), ..Row::put(b"k", seq) };
    assert_eq!(output, [put(9, b"a,b,c")]);
    let (output, _) = fold(&rows, Some(&merging), (&[], &none), &[KeyRange::everything()]);
    let combined = Operand { reach: 4, bytes: b"a,b,c" };
    assert_eq!(output, [Row { value: combined.encode(), kind: EntryKind::Merge, ..put(9, b"") }]);
    // Nothing across a snapshot.
    let (output, _) = fold(&rows, Some(&merging), (&[SeqNo(8)], &none), &[]);
    assert_eq!(output, [operand(b"k", 9, b"c"), put(8, b"a,b")]);
    // A failing operator keeps all of it, with what it applies to.
    let fails = Merging::with(Arc::new(Listed { combines: true, fails: true }));
    let over: Vec<Row> = rows.iter().cloned().chain([put(2, b"base")]).collect();
    let (output, failed) = fold(&over, Some(&fails), (&[], &none), &[]);
    assert_eq!((output, failed), (over.clone(), 1));
    let (output, _) = fold(&over, Some(&merging), (&[], &none), &[]);
    assert_eq!(output, [put(9, b"base,a,b,c")]);
}

#[test]
fn a_long_chain_is_folded_in_bounded_memory() {
    let long = vec![b'x'; 1_000];
    let rows: Vec<Row> = (1..=2_000u64).rev().map(|seq| operand(b"k", seq, &long)).collect();
    let none = FragmentedTombstones::default();
    for combines in [false, true] {
        let merging = Merging::with(Arc::new(Listed { combines, fails: false }));
        let (output, _) = fold(&rows, Some(&merging), (&[], &none), &[KeyRange::everything()]);
        let mut lengths = BTreeMap::new();
        for row in &output {
            *lengths.entry(row.value.len()).or_insert(0) += 1;
            assert!(row.value.len() <= MAX_OPERAND_BYTES + 9, "{} bytes", row.value.len());
        }
        // What is longer than an operand may be stays apart.
        assert_eq!(seen(&output, &[], &[], b"k", 5_000), seen(&rows, &[], &[], b"k", 5_000), "{lengths:?}");
    }
    let counter = Merging::recorded("shamba.add-u64");
    let one = 1u64.to_le_bytes();
    let rows: Vec<Row> = (1..=50_000u64).rev().map(|seq| operand(b"k", seq, &one)).collect();
    let (output, _) = fold(&rows, Some(&counter), (&[], &none), &[KeyRange::everything()]);
    let sum = Operand { reach: 49_999, bytes: &50_000u64.to_le_bytes() };
    assert_eq!(output, [Row { value: sum.encode(), ..operand(b"k", 50_000, b"") }]);
    let _ = counter.combine(b"k", &[&one]).map(|sum| assert_eq!(sum, one));
    assert!(counter.is_given());
}

/// Removes values that begin with `r`, replaces those with `p`, and panics at others with `!`.
struct ByValue;

impl CompactionFilter for ByValue {
    fn name(&self) -> &str {
        "by value"
    }

    fn filter(&self, entry: &FilterEntry<'_>) -> Verdict {
        assert_eq!((entry.level(), entry.value_len()), (3, entry.value().expect("short").len() as u64));
        assert!(entry.sequence() > entry.sequence_floor(), "{entry:?}");
        match entry.value().expect("short").first() {
            Some(b'r') => Verdict::Remove,
            Some(b'p') => Verdict::Replace([b"x", entry.key()].concat()),
            Some(b'!') => panic!("as planned"),
            _ => Verdict::Keep,
        }
    }
}

fn filtered(
    rows: &[Row],
    merging: Option<&Merging>,
    (snapshots, tombstones): (&[SeqNo], &FragmentedTombstones),
    below: &[KeyRange],
) -> (Vec<Row>, FilterChanges) {
    let filtering = Filtering::with(Arc::new(ByValue));
    let digest = DigestFn::new(DigestKind::Xxh3, 0);
    let run = FilterRun::new(&filtering, digest, 3, snapshots);
    let folding = Folding::new(Retention::new(snapshots, tombstones, below.to_vec()), merging);
    let mut folding = folding.with_filter(run);
    let output = written(rows, &mut folding);
    (output, folding.into_filter_changes())
}

#[test]
fn a_filter_changes_what_no_snapshot_sees_and_only_the_newest_values() {
    let (mut removed, mut replaced, mut kept_for_a_snapshot) = (0, 0, 0);
    for seed in 0..3_000u64 {
        let dice = Dice::new(seed);
        let keys = [&b"a"[..], b"b", b"c", b"d"];
        let merging =
            dice.one_in(2).then(|| Merging::with(Arc::new(Listed { combines: true, fails: false })));
        let (cut, has_below) = (dice.below(20) as u64, dice.one_in(2));
        let mut rows = Vec::new();
        for seq in 1..=25u64 {
            let key = keys[dice.below(keys.len())];
            match dice.below(6) {
                0 => rows.push(Row { kind: EntryKind::Delete, value: Vec::new(), ..Row::put(key, seq) }),
                1 => rows.push(operand(key, seq, b"o")),
                letter => {
                    let letter = [b'r', b'p', b'k', b'q'][letter - 2];
                    rows.push(Row { value: vec![letter, b'0' + (seq % 10) as u8], ..Row::put(key, seq) });
                }
            }
        }
        let is_below = |row: &&Row| has_below && row.seq.0 <= cut;
        let mut input: Vec<Row> = rows.iter().filter(|row| !is_below(row)).cloned().collect();
        let mut below: Vec<Row> = rows.iter().filter(is_below).cloned().collect();
        for list in [&mut input, &mut below] {
            list.sort_by_key(|row| (row.key.clone(), std::cmp::Reverse(row.seq)));
        }
        let mut snapshots: Vec<SeqNo> = (0..dice.below(3)).map(|_| SeqNo(dice.below(30) as u64)).collect();
        snapshots.sort_unstable();
        snapshots.dedup();
        let ranges = if has_below { vec![KeyRange::everything()] } else { Vec::new() };
        let none = FragmentedTombstones::default();
        let (output, changes) = filtered(&input, merging.as_ref(), (&snapshots, &none), &ranges);
        let what = || format!("seed {seed}, snapshots {snapshots:?}\n{input:?}\n{output:?}");
        let (mut oldest, mut changed) = (None, 0);
        for key in keys {
            for seq in snapshots.iter().map(|seq| seq.0) {
                let due = seen(&input, &below, &[], key, seq);
                assert_eq!(seen(&output, &below, &[], key, seq), due, "{key:?} at {seq}, {}", what());
            }
            let newest = input.iter().find(|row| row.key == key);
            let is_seen = |row: &&Row| snapshots.last().is_some_and(|snapshot| *snapshot >= row.seq);
            let shown = newest.filter(|row| row.kind == EntryKind::Put && !is_seen(row));
            let (due, is_changed) = match shown.map(|row| row.value[0]) {
                Some(b'r') => (None, true),
                Some(b'p') => (Some(format!("x{}", key.escape_ascii())), true),
                _ => (seen(&input, &below, &[], key, 100), false),
            };
            assert_eq!(seen(&output, &below, &[], key, 100), due, "{key:?}, {}", what());
            if let Some(row) = shown.filter(|_| is_changed) {
                changed += 1;
                oldest = oldest.into_iter().chain([row.seq]).min();
            }
            kept_for_a_snapshot += usize::from(
                newest.is_some_and(|row| is_seen(&row) && matches!(row.value.first(), Some(b'r'))),
            );
        }
        assert_eq!(changes.oldest(), oldest, "{}", what());
        assert_eq!(changes.digests().map(<[_]>::len), Some(changed), "{}", what());
        assert_eq!((changes.removed + changes.replaced, changes.warning()), (changed as u64, None));
        // A tombstone is written only where it may hide something.
        if !has_below && snapshots.is_empty() {
            assert!(output.iter().all(|row| row.kind != EntryKind::Delete), "{}", what());
        }
        (removed, replaced) = (removed + changes.removed, replaced + changes.replaced);
    }
    assert!(removed > 1_000 && replaced > 1_000, "{removed} removed, {replaced} replaced");
    assert!(kept_for_a_snapshot > 300, "{kept_for_a_snapshot} kept");
}

#[test]
fn a_filter_that_panics_keeps_the_entry_and_is_named() {
    let none = FragmentedTombstones::default();
    let rows: Vec<Row> =
        (1..=3u8).map(|n| Row { value: b"!".to_vec(), ..Row::put(&[b'k', b'0' + n], 9) }).collect();
    let (output, changes) = filtered(&rows, None, (&[], &none), &[]);
    assert_eq!((output, changes.oldest()), (rows, None));
    let warning = changes.warning().expect("it failed");
    for part in ["\"by value\"", "\"k1\"", "as planned", "2 more"] {
        assert!(warning.contains(part), "{warning}");
    }
}
