//! Properties of data blocks of every shape: both layouts and a plain list give the same answers,
//! the length is predicted exactly, and no damage makes any call panic.

use shamba_env::{Rng, SeededRng};
use shamba_key::{DigestFn, DigestKind};

use super::*;
use shamba_key::internal_cmp;

/// One entry of the oracle.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Row {
    key: Vec<u8>,
    seq: u64,
    kind: EntryKind,
    value: Vec<u8>,
}

struct Dice(SeededRng);

impl Dice {
    fn below(&self, end: usize) -> usize {
        (self.0.next_u64() % end as u64) as usize
    }

    fn pick<'a>(&self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

/// Rows in internal order: random keys, paths, counters, one key many times, with sequence numbers
/// of any width.
fn random_rows(dice: &Dice) -> Vec<Row> {
    let shape = dice.below(6);
    let spread = SeqNo::MAX.0 >> (8 * dice.below(8));
    let count = [1, 2, 7, 8, 9, 40, 100, 101, 102, 300][dice.below(10)];
    let kinds: &[EntryKind] = [
        &[EntryKind::Put][..],
        &[EntryKind::Delete],
        &[EntryKind::Put, EntryKind::Put, EntryKind::Delete, EntryKind::Merge],
    ][dice.below(3)];
    let mut rows: Vec<Row> = Vec::new();
    for number in 0..count {
        let key = match shape {
            0 => (0..16).map(|_| dice.below(256) as u8).collect(),
            1 => (0..dice.below(6)).map(|_| b"ab\x00\xff"[dice.below(4)]).collect(),
            2 => {
                let (a, b) = (dice.pick(&["share", "lib", "include"]), dice.pick(&["doc", "perl", "x86_64"]));
                format!("/usr/{a}/{b}/package-{}/file{}.txt", dice.below(9), dice.below(30)).into_bytes()
            }
            3 => format!("user:{number:08}").into_bytes(),
            4 => b"one key".to_vec(),
            _ => vec![b'k'; [0, 127, 128, 255, 256, 300, 65_535][dice.below(7)]],
        };
        let value_bytes = [0, 1, 8, 30, 100, 100, 300][dice.below(7)];
        let value = (0..value_bytes).map(|_| dice.below(256) as u8).collect();
        let seq = dice.0.next_u64() % spread.max(2_000);
        rows.push(Row { key, seq, kind: kinds[dice.below(kinds.len())], value });
    }
    rows.sort_by(|a, b| internal_cmp(&a.key, SeqNo(a.seq), &b.key, SeqNo(b.seq)));
    rows.dedup_by(|a, b| a.key == b.key && a.seq == b.seq);
    rows
}

fn plain(rows: &[Row]) -> Vec<u8> {
    let mut builder = BlockBuilder::new();
    rows.iter().for_each(|row| builder.push(&row.key, SeqNo(row.seq), row.kind, &row.value));
    builder.finish()
}

/// The row as an entry after one with key `last`.
fn entry_of<'a>(row: &'a Row, last: &[u8], tag: u16) -> NewEntry<'a> {
    NewEntry {
        key: &row.key,
        shared_bytes: shared_bytes(last, &row.key),
        seq: SeqNo(row.seq),
        kind: row.kind,
        value: &row.value,
        tag,
    }
}

fn tagged(builder: &mut DataBlockBuilder, rows: &[Row], digest: DigestFn) -> Vec<u8> {
    let mut out = b"before".to_vec();
    let mut last: &[u8] = &[];
    for row in rows {
        let tag = digest.digest(&row.key).block_tag();
        assert!(builder.push(&entry_of(row, last, tag), usize::MAX));
        last = &row.key;
    }
    let predicted = builder.payload_bytes();
    builder.finish_into(&mut out);
    assert!(builder.is_empty());
    let payload = out.split_off(6);
    assert_eq!(payload.len(), predicted);
    payload
}

/// Keys equal and close to those of the rows.
fn probes(rows: &[Row]) -> Vec<Vec<u8>> {
    let mut keys = vec![vec![], vec![0], vec![0xff; 20], b"/usr/share".to_vec()];
    for row in rows {
        keys.push(row.key.clone());
        keys.push([&row.key[..], &[0]].concat());
        keys.push(row.key[..row.key.len().saturating_sub(1)].to_vec());
        let mut other = row.key.clone();
        if let Some(byte) = other.last_mut() {
            *byte ^= 1;
        }
        keys.push(other);
    }
    keys.sort();
    keys.dedup();
    keys
}

/// Walks a cursor over a block, in both directions and in jumps from one entry to any other.
fn check_walks(cursor: &mut EntryCursor, payload: &[u8], rows: &[Row]) {
    cursor.enter(payload).expect("a block");
    assert!(!cursor.is_valid(), "a cursor that has entered a block is at no entry");
    let count = rows.len();
    let jumps = (0..count).map(|step| step * 7 % count);
    for number in (0..count).chain((0..count).rev()).chain(jumps) {
        cursor.go_to(payload, number).expect("an entry");
        let (row, entry) = (&rows[number], cursor.view(payload));
        assert_eq!((entry.key, entry.seq.0), (&row.key[..], row.seq), "entry {number}");
        assert_eq!((entry.kind, entry.value), (row.kind, &row.value[..]), "entry {number}");
        assert_eq!((cursor.number(), cursor.is_valid()), (number, true));
        let (from, mut seen) = (number, number);
        // Stops at an entry, or walks to the end.
        let end = number + 1 + number % 5;
        let walked = cursor.walk(payload, |entry| {
            let row = &rows[seen];
            assert_eq!((entry.key, entry.seq.0), (&row.key[..], row.seq), "entry {seen} after {from}");
            assert_eq!((entry.kind, entry.value), (row.kind, &row.value[..]), "entry {seen} after {from}");
            seen += 1;
            seen < end
        });
        assert_eq!((walked, seen), (Ok(end <= count), end.min(count)), "a walk from {from} to {end}");
        assert_eq!(cursor.is_valid(), end <= count, "a walk from {from} to {end}");
        if cursor.is_valid() {
            assert_eq!((cursor.number(), cursor.key()), (end - 1, &rows[end - 1].key[..]));
            assert_eq!(cursor.view(payload).value, &rows[end - 1].value[..]);
        }
        let before = |other: &Row| {
            internal_cmp(&other.key, SeqNo(other.seq), &row.key, SeqNo(row.seq)) == std::cmp::Ordering::Less
        };
        let bound = cursor.lower_bound(payload, &row.key, SeqNo(row.seq));
        assert_eq!(bound, Ok(rows.partition_point(before)), "entry {number}");
    }
}

fn check_answers(block: DataBlock<'_>, rows: &[Row], digest: DigestFn) {
    assert_eq!(block.len(), rows.len());
    assert_eq!(block.check(), Ok(()));
    let mut key = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let parts = block.entry(number, &mut key).expect("an entry");
        assert_eq!((parts.seq.0, parts.kind, parts.value), (row.seq, row.kind, &row.value[..]));
        assert_eq!(key, row.key, "entry {number}");
        assert!(block.tag_agrees(number, digest.digest(&key).block_tag()));
    }
    let mut seqs = vec![SeqNo::ZERO, SeqNo(1_000), SeqNo::MAX];
    seqs.extend(rows.first().map(|row| SeqNo(row.seq)));
    for probe in probes(rows) {
        let tag = digest.digest(&probe).block_tag();
        for seq in seqs.iter().copied().chain(rows.get(rows.len() / 2).map(|row| SeqNo(row.seq))) {
            let found = block.find(&probe, seq, tag).expect("a search");
            let wanted = rows.iter().find(|row| row.key == probe && row.seq <= seq.0);
            let found = found.map(|found| (found.seq.0, found.kind, found.value));
            let wanted = wanted.map(|row| (row.seq, row.kind, &row.value[..]));
            assert_eq!(found, wanted, "find {} at {seq}", probe.escape_ascii());
            let before =
                |row: &Row| internal_cmp(&row.key, SeqNo(row.seq), &probe, seq) == std::cmp::Ordering::Less;
            let bound = block.lower_bound(&probe, seq);
            assert_eq!(bound, Ok(rows.partition_point(before)), "{} at {seq}", probe.escape_ascii());
        }
    }
}

#[test]
fn both_layouts_answer_as_a_plain_list_does() {
    let mut builders = [DataBlockBuilder::new(true), DataBlockBuilder::new(false)];
    // One cursor for all blocks, as an iterator has.
    let mut cursor = EntryCursor::default();
    for seed in 0..400u64 {
        let dice = Dice(SeededRng::new(seed));
        let rows = random_rows(&dice);
        println!("seed {seed} rows {}", rows.len());
        // A digest with few values makes tags equal, so that keys must decide.
        let kind = if dice.below(3) == 0 { DigestKind::TestFourBit } else { DigestKind::Xxh3 };
        let digest = DigestFn::new(kind, seed);
        check_answers(DataBlock::view(&plain(&rows)).expect("a plain block"), &rows, digest);
        check_walks(&mut cursor, &plain(&rows), &rows);
        for builder in &mut builders {
            let payload = tagged(builder, &rows, digest);
            check_walks(&mut cursor, &payload, &rows);
            check_answers(DataBlock::view(&payload).expect("a tagged block"), &rows, digest);
        }
    }
}

#[test]
fn offsets_and_deltas_take_every_width() {
    let digest = DigestFn::new(DigestKind::Xxh3, 1);
    let mut builder = DataBlockBuilder::new(true);
    for width in 0..=7u32 {
        let largest = if width == 0 { 5 } else { 5 + (1u64 << (8 * width - 1)) };
        let row = |key: &str, seq| Row { key: key.into(), seq, kind: EntryKind::Put, value: vec![7; 40] };
        let rows = [row("a", largest), row("a key", 5), row("b", 5)];
        let payload = tagged(&mut builder, &rows[..], digest);
        assert_eq!(payload[2] & 0xf, width as u8);
        check_answers(DataBlock::view(&payload).expect("a block"), &rows, digest);
    }
    let value = vec![3; 40_000];
    let rows: Vec<Row> = (0..3)
        .map(|number| Row { key: vec![b'a' + number], seq: 9, kind: EntryKind::Put, value: value.clone() })
        .collect();
    let payload = tagged(&mut builder, &rows, digest);
    assert_eq!(payload[1] & 1, 1, "offsets are wide");
    check_answers(DataBlock::view(&payload).expect("a block"), &rows, digest);
    assert!(builder.memory_bytes() < 1 << 20, "a large block's buffers are given back");
}

#[test]
fn a_block_takes_what_fits_and_not_a_byte_more() {
    for seed in 0..200u64 {
        let dice = Dice(SeededRng::new(seed));
        let rows = random_rows(&dice);
        let digest = DigestFn::new(DigestKind::Xxh3, seed);
        let limit_bytes = 64 + dice.below(4_096);
        let (mut builder, mut whole) = (DataBlockBuilder::new(true), DataBlockBuilder::new(true));
        let mut start = 0;
        let mut last: &[u8] = &[];
        for (number, row) in rows.iter().enumerate() {
            let entry = entry_of(row, last, 0);
            last = &row.key;
            if builder.push(&entry, limit_bytes) {
                continue;
            }
            // With one more entry it would have been too long; the predicted length is the actual
            // one.
            assert!(tagged(&mut whole, &rows[start..=number], digest).len() > limit_bytes, "seed {seed}");
            assert_eq!(builder.len(), number - start);
            let mut out = Vec::new();
            builder.finish_into(&mut out);
            assert!(out.len() <= limit_bytes || number - start == 1, "seed {seed}");
            start = number;
            assert!(builder.push(&entry, limit_bytes));
        }
    }
}

/// Calls every method on a payload with any damage.
fn ask_everything(payload: &[u8], rows: &[Row], digest: DigestFn) {
    let Ok(block) = DataBlock::view(payload) else {
        return;
    };
    let _ = (block.check(), block.layout());
    let mut key = Vec::new();
    for number in 0..block.len().min(400) {
        if let Ok(parts) = block.entry(number, &mut key) {
            let end = parts.value_start + parts.value.len();
            assert_eq!(&payload[parts.value_start..end], parts.value);
        }
        let _ = block.tag_agrees(number, 7);
    }
    let mut cursor = EntryCursor::default();
    if cursor.enter(payload).is_ok() {
        for number in (0..block.len().min(400)).flat_map(|number| [number, number / 2]) {
            if cursor.go_to(payload, number).is_ok() {
                assert_eq!(cursor.view(payload).value, &payload[cursor.value()]);
                let mut left = 3;
                let walked = cursor.walk(payload, |_| {
                    left -= 1;
                    left > 0
                });
                assert_eq!(walked == Ok(true), cursor.is_valid(), "a walk from entry {number}");
                let _ = cursor.go_to(payload, number);
            }
            assert_eq!(
                cursor.is_valid(),
                block.entry(number, &mut key).is_ok(),
                "entry {number} of a damaged block is read by one of both ways"
            );
        }
        for row in rows {
            let _ = cursor.lower_bound(payload, &row.key, SeqNo(row.seq));
        }
    }
    let _ = block.entry(block.len(), &mut key);
    for row in rows {
        let _ = block.find(&row.key, SeqNo(row.seq), digest.digest(&row.key).block_tag());
        let _ = block.lower_bound(&row.key, SeqNo(row.seq));
    }
}

#[test]
fn no_byte_and_no_length_makes_any_call_panic() {
    let digest = DigestFn::new(DigestKind::Xxh3, 5);
    for seed in 0..60u64 {
        let dice = Dice(SeededRng::new(seed));
        let mut rows = random_rows(&dice);
        rows.retain(|row| row.key.len() < 400);
        rows.truncate(30);
        println!("seed {seed}");
        let mut wide = rows.clone();
        wide.iter_mut().take(3).for_each(|row| row.value = vec![9; 30_000]);
        let mut builder = DataBlockBuilder::new(dice.below(3) > 0);
        let payloads =
            [plain(&rows), tagged(&mut builder, &rows, digest), tagged(&mut builder, &wide, digest)];
        for payload in &payloads[..if seed < 2 { 3 } else { 2 }] {
            let bytes = payload.len().min(700);
            let rows = &rows[..rows.len().min(3)];
            for length in 0..bytes {
                ask_everything(&payload[..length], rows, digest);
            }
            let mut damaged = payload.clone();
            for at in 0..bytes {
                for mask in [0x01, 0x04, 0x80, 0xff] {
                    damaged[at] ^= mask;
                    ask_everything(&damaged, rows, digest);
                    damaged[at] ^= mask;
                }
            }
        }
    }
    for noise in 0..3_000u64 {
        let rng = SeededRng::new(noise);
        let mut payload: Vec<u8> = (0..rng.next_u64() % 90).map(|_| rng.next_u64() as u8).collect();
        if let Some(layout) = payload.first_mut() {
            *layout = 2;
        }
        // Small widths and counts, so that many headers are accepted.
        for (at, bits) in [(1, 0x1f), (2, 0x1f), (3, 3), (4, 7), (5, 0), (6, 7), (7, 0)] {
            if let Some(byte) = payload.get_mut(at) {
                *byte &= bits;
            }
        }
        ask_everything(&payload, &[], digest);
    }
}

#[test]
fn tags_and_prefixes_are_what_the_header_says() {
    let digest = DigestFn::new(DigestKind::Xxh3, 1);
    let rows = |count: usize| -> Vec<Row> {
        let key = |number| format!("/usr/share/doc/{}/copyright-of-{number:05}", number / 8);
        (0..count)
            .map(|number| Row { key: key(number).into(), seq: 1, kind: EntryKind::Put, value: vec![] })
            .collect()
    };
    for (tags, count, width) in [(true, 100, 1), (true, 101, 2), (false, 50, 0)] {
        let payload = tagged(&mut DataBlockBuilder::new(tags), &rows(count), digest);
        assert_eq!(payload[1] >> 1 & 3, width, "{count} entries");
        let block = DataBlock::view(&payload).expect("a block");
        assert_eq!(block.tag_agrees(0, digest.digest(b"another").block_tag()), width == 0);
        // Groups pay off here: every key shares much more with its neighbours than with all keys.
        assert_eq!(payload[3], 3);
        assert!(payload.len() < count * 12 + 100, "{} bytes", payload.len());
    }
    let random = |count: u64| -> Vec<Row> {
        let key = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes().to_vec();
        let mut rows: Vec<Row> = (0..count)
            .map(|number| Row { key: key(number), seq: 1, kind: EntryKind::Put, value: vec![] })
            .collect();
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        rows
    };
    let payload = tagged(&mut DataBlockBuilder::new(true), &random(40), digest);
    // Header, and for each entry a tag, an offset and the eight bytes of its key: no group, no
    // length.
    assert_eq!((payload[3], payload.len()), (0, 16 + 40 * (1 + 2 + 8)));
}
