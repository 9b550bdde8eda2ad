//! The index in memory against a walk over its separators.

use super::*;

/// An index over `separators` in partitions of `sizes` blocks, taken in turn.
fn index(separators: &[(Vec<u8>, u64)], sizes: &[usize]) -> Index {
    let mut index = Index::default();
    let (mut rest, mut turn, mut number) = (separators, 0, 0);
    while !rest.is_empty() {
        let (part, after) = rest.split_at(sizes[turn % sizes.len()].min(rest.len()));
        let mut partition = PartitionBuilder::default();
        for (key, seq) in part {
            assert!(partition.push(key, SeqNo(*seq), Handle { offset: number * 10, bytes: 10, entries: 1 }));
            number += 1;
        }
        index.push(partition.finish()).expect("in order");
        (rest, turn) = (after, turn + 1);
    }
    index.finish();
    index
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
                assert_eq!(index.find(key, SeqNo(seq)), expected, "{sizes:?} {key:?} {seq}");
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
        for ((number, handle), (key, seq)) in index.blocks().zip(&separators) {
            assert_eq!(handle.offset, u64::from(number.0) * 10);
            assert_eq!(index.separator(number), Some((key.as_slice(), SeqNo(*seq))));
            let slot = index.slot(number).expect("a slot");
            assert_eq!(slot.frame(), None, "another block's slot");
            slot.point_to(number.0);
            assert_eq!(slot.frame(), Some(number.0));
        }
        let beyond = BlockNo(separators.len() as u32);
        assert!(index.handle(beyond).is_none() && index.slot(beyond).is_none());
        assert!(index.separator(beyond).is_none() && index.handle(BlockNo(u32::MAX)).is_none());
    }
    let none = index(&[], &[1]);
    assert!(
        none.find(b"k", SeqNo::MAX).is_none()
            && none.last().is_none()
            && none.handle(BlockNo::FIRST).is_none()
    );
}

#[test]
fn separators_out_of_order_are_refused() {
    let handle = Handle { offset: 0, bytes: 1, entries: 1 };
    let mut one = PartitionBuilder::default();
    assert!(one.push(b"k", SeqNo(2), handle));
    assert!(
        !one.push(b"k", SeqNo(2), handle)
            && !one.push(b"k", SeqNo(3), handle)
            && !one.push(b"", SeqNo(0), handle)
    );
    assert!(one.push(b"k", SeqNo(1), handle));
    let mut index = Index::default();
    index.push(one.finish()).expect("the first");
    for (key, seq, fits) in [(b"k", 1, false), (b"a", 9, false), (b"k", 0, true)] {
        let mut next = PartitionBuilder::default();
        assert!(next.push(key, SeqNo(seq), handle));
        assert_eq!(index.push(next.finish()).is_ok(), fits, "{key:?} {seq}");
    }
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
    let each = index.resident_bytes() as f64 / separators.len() as f64;
    // Head 8, handle 8, slot 4, end 4, separator 4; partitions and hints take little.
    assert!((28.0..31.0).contains(&each), "{each} bytes a block");
}
