//! Tests of the index in memory against a linear search over its separators.

use shamba_key::EntryKind;

use super::top::TopBuilder;
use super::*;
use crate::block::BlockBuilder;
use shamba_key::internal_cmp;

/// An index over `separators`, all in memory, in partitions of `sizes` blocks, used cyclically.
fn index(separators: &[(Vec<u8>, u64)], sizes: &[usize]) -> Index {
    let ledger = Arc::new(Ledger::new());
    let mut top = TopBuilder::new(0, u64::MAX);
    let mut partitions = Vec::new();
    let (mut rest, mut turn, mut number) = (separators, 0, 0);
    while !rest.is_empty() {
        let (part, after) = rest.split_at(sizes[turn % sizes.len()].min(rest.len()));
        let mut block = BlockBuilder::new();
        for (key, seq) in part {
            let handle = Handle { offset: number * 10, bytes: 10, entries: 1 };
            block.push(key, SeqNo(*seq), EntryKind::Put, &handle.encode());
            number += 1;
        }
        let payload = block.finish();
        let last = part.last().map(|(key, seq)| (key.as_slice(), SeqNo(*seq))).expect("one");
        let bounds = top.bounds(part.len() as u32, last, None);
        let stored = StoredPartition::view(&payload, part.len() as u32).expect("a partition");
        let checked = stored.check(&bounds).expect("in order");
        partitions.push(stored.decode(&bounds, &ledger).expect("in order"));
        let handle = Handle { offset: 0, bytes: payload.len() as u32, entries: part.len() as u32 };
        top.push(handle, last, checked.summary.blocks_end).expect("in order");
        (rest, turn) = (after, turn + 1);
    }
    let index = Index::of(top.finish(), Residency::Pinned, partitions, &[]);
    let held: usize = (0..index.partitions()).map(|number| index.partition_bytes(number) as usize).sum();
    assert_eq!(ledger.total() as usize, held);
    index
}

fn find(index: &Index, key: &[u8], seq: SeqNo) -> Option<Located> {
    match index.find(key, seq) {
        Find::At(located) => Some(located),
        Find::Beyond => None,
        Find::Absent(partition) => panic!("{partition:?} is pinned"),
    }
}

/// All blocks, partition by partition, as lookups and iterators see them.
fn blocks(index: &Index) -> Vec<(BlockNo, Handle)> {
    let mut found = Vec::new();
    for number in 0..index.partitions() {
        let first = index.first(number).expect("a block");
        index.with_resident(number, |partition| {
            let listed = Listed::Decoded(partition);
            for within in 0..listed.len() {
                assert_eq!(listed.separator(within), Ok(None), "only what searches need");
                let block = first.plus(within);
                assert_eq!(index.partition_of(block), Some((number, within)));
                found.push((block, listed.handle(within).expect("a handle")));
            }
        });
    }
    found
}

fn separators() -> Vec<(Vec<u8>, u64)> {
    let mut separators: Vec<(Vec<u8>, u64)> = vec![(b"".to_vec(), 3), (b"a".to_vec(), 9)];
    separators.extend((0..20u8).map(|i| ([b"a long common prefix ".as_slice(), &[i]].concat(), 0)));
    separators.extend((1..200u64).rev().map(|seq| (b"k".to_vec(), seq * 10)));
    separators.extend(
        (0..300u32).map(|i| (i.to_be_bytes().to_vec(), 0)).map(|(k, s)| ([b"r".to_vec(), k].concat(), s)),
    );
    separators
}

#[test]
fn find_agrees_with_a_walk_however_the_partitions_are_cut() {
    let separators = separators();
    let keys = separators.iter().map(|(key, _)| key.clone());
    let others = [&b"a long common prefix "[..], b"zz", b"b", b"k\0", b"r", b"r\0\0\0\x05\0"];
    let asked: Vec<Vec<u8>> = keys.chain(others.map(<[u8]>::to_vec)).collect();
    for sizes in [&[1][..], &[7], &[1, 150, 2], &[100_000]] {
        let index = index(&separators, sizes);
        for key in &asked {
            for seq in [0u64, 2, 3, 9, 10, 11, 1_005, 1_990, 1_991] {
                let expected = separators
                    .iter()
                    .position(|(k, s)| internal_cmp(k, SeqNo(*s), key, SeqNo(seq)).is_ge())
                    .map(|place| BlockNo(place as u32));
                let found = find(&index, key, SeqNo(seq));
                assert_eq!(found.map(|at| at.number), expected, "{sizes:?} {key:?} {seq}");
                if let (Some(at), Some(number)) = (found, expected) {
                    let (separator, separator_seq) = &separators[number.0 as usize];
                    assert_eq!(at.goes_on, separator == key && *separator_seq > 0);
                    assert_eq!(index.partition_of(number).map(|(at, _)| at), Some(at.partition()));
                    assert_eq!(index.partition_for(key, SeqNo(seq)), Some(at.partition()));
                }
            }
        }
    }
}

#[test]
fn every_block_has_its_own_handle_slot_and_separator() {
    let separators = separators();
    for sizes in [&[1][..], &[64], &[1, 150, 2]] {
        let index = index(&separators, sizes);
        assert_eq!(index.len(), separators.len());
        assert_eq!(index.last(), Some(BlockNo(separators.len() as u32 - 1)));
        let found = blocks(&index);
        assert_eq!(found.len(), separators.len());
        for ((number, handle), (key, seq)) in found.into_iter().zip(&separators) {
            assert_eq!(handle.offset, u64::from(number.0) * 10);
            let (at, within) = index.partition_of(number).expect("a partition");
            for (asked, expected) in [(key.as_slice(), *seq > 0), (b"another", false)] {
                let goes_on = index.with_resident(at, |held| Listed::Decoded(held).goes_on(within, asked));
                assert_eq!(goes_on, Some(Ok(expected)), "{number:?}");
            }
            let slot = index.slot(number).expect("a slot");
            let slot = slot.get().expect("a slot");
            assert_eq!(slot.frame(), None, "another block's slot");
            slot.point_to(number.0);
            assert_eq!(slot.frame(), Some(number.0));
        }
        let beyond = BlockNo(separators.len() as u32);
        assert!(index.partition_of(beyond).is_none() && index.slot(beyond).is_none());
        assert!(index.partition_of(BlockNo(u32::MAX)).is_none());
    }
    let none = index(&[], &[1]);
    assert!(
        find(&none, b"k", SeqNo::MAX).is_none()
            && none.last().is_none()
            && none.partition_of(BlockNo::FIRST).is_none()
    );
}

/// Result of the check of a partition with these separators and handles.
fn checked(listed: &[(&[u8], u64, Handle)], bounds: &Bounds<'_>) -> std::result::Result<u64, String> {
    let mut block = BlockBuilder::new();
    for (key, seq, handle) in listed {
        block.push(key, SeqNo(*seq), EntryKind::Put, &handle.encode());
    }
    let payload = block.finish();
    let stored = StoredPartition::view(&payload, bounds.separators)?;
    stored.check(bounds).map(|checked| checked.entries)
}

#[test]
fn a_partition_is_what_the_top_level_says_or_refused() {
    let at = |offset, bytes| Handle { offset, bytes, entries: 2 };
    let bounds = Bounds {
        separators: 2,
        start: 100,
        end: 300,
        is_end_known: true,
        after: Some((b"c", SeqNo(5))),
        last: (b"k", SeqNo(2)),
    };
    let good: [(&[u8], u64, Handle); 2] = [(b"c", 4, at(100, 90)), (b"k", 2, at(200, 100))];
    assert_eq!(checked(&good, &bounds), Ok(4));
    for (changed, said) in [
        ([(&b"c"[..], 5, at(100, 90)), good[1]], "out of order"),
        ([(b"a", 9, at(100, 90)), good[1]], "out of order"),
        ([(b"k", 2, at(100, 90)), good[1]], "out of order"),
        ([(b"k", 1, at(100, 90)), good[1]], "out of order"),
        ([good[0], (b"k", 1, at(200, 100))], "not that of the top level"),
        ([good[0], (b"l", 2, at(200, 100))], "not that of the top level"),
        ([good[0], (b"k", 2, at(180, 120))], "expected between 190"),
        ([good[0], (b"k", 2, at(200, 101))], "expected between 100 and 300"),
        ([good[0], (b"k", 2, at(200, 99))], "blocks end at 299"),
        ([(b"c", 4, at(99, 1)), good[1]], "expected between 100"),
        ([(b"c", 4, Handle { entries: 0, ..at(100, 90) }), good[1]], "expected between 100"),
    ] {
        let found = checked(&changed, &bounds).expect_err(said);
        assert!(found.contains(said), "{found}, not {said}");
    }
    let more = Bounds { separators: 3, ..bounds };
    assert!(checked(&good, &more).expect_err("too few").contains("2 separators, expected 3"));
    assert!(checked(&[], &Bounds { separators: 0, ..bounds }).is_err());
    // While the top level is built, the end is not known; there is only an upper bound.
    let open = Bounds { end: 1_000, is_end_known: false, ..bounds };
    assert_eq!(checked(&good, &open), Ok(4));
}

#[test]
fn memory_for_a_block_is_what_the_page_says() {
    let mut state = 1u64;
    let mut separators: Vec<(Vec<u8>, u64)> = (0..10_000)
        .map(|_| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            ((state >> 16).to_be_bytes()[2..6].to_vec(), 0)
        })
        .collect();
    separators.sort();
    separators.dedup();
    let index = index(&separators, &[128]);
    let held: u64 = (0..index.partitions()).map(|number| index.partition_bytes(number)).sum();
    let each = (index.base_bytes() as u64 + held) as f64 / separators.len() as f64;
    // Head 8, handle 8, slot 4; partitions and hints take little.
    assert!((20.0..23.0).contains(&each), "{each} bytes a block");
}
