//! Tests of plain blocks against a plain list, and with every one-byte damage.

use bytes::Bytes;

use super::*;
use shamba_key::internal_cmp;

fn block_of(entries: &[(Vec<u8>, u64, EntryKind, Vec<u8>)]) -> Vec<u8> {
    let mut builder = BlockBuilder::new();
    for (key, seq, kind, value) in entries {
        let predicted = builder.payload_bytes_with(key.len(), value.len());
        builder.push(key, SeqNo(*seq), *kind, value);
        assert_eq!(builder.payload_bytes(), predicted);
    }
    let predicted = builder.payload_bytes();
    let payload = builder.finish();
    assert_eq!(payload.len(), predicted);
    assert!(builder.is_empty());
    payload
}

fn sample() -> Vec<(Vec<u8>, u64, EntryKind, Vec<u8>)> {
    vec![
        (b"".to_vec(), 9, EntryKind::Put, b"".to_vec()),
        (b"apple".to_vec(), 7, EntryKind::Put, b"red".to_vec()),
        (b"apple".to_vec(), 3, EntryKind::Delete, b"".to_vec()),
        (vec![b'b'; 300], SeqNo::MAX.0, EntryKind::Put, vec![1; 20]),
        (vec![b'c'; 65_535], 1, EntryKind::Put, vec![2; 70_000]),
        (b"d".to_vec(), 2, EntryKind::Merge, b"x".to_vec()),
    ]
}

#[test]
fn entries_come_back_and_lower_bounds_are_right_with_narrow_and_wide_offsets() {
    for take in 1..=sample().len() {
        let entries = &sample()[..take];
        let block = Block::parse(Bytes::from(block_of(entries))).expect("a block");
        assert_eq!(block.len(), take);
        for (read, (key, seq, kind, value)) in block.entries().zip(entries) {
            assert_eq!((read.key, read.seq.0, read.kind, read.value), (&key[..], *seq, *kind, &value[..]));
        }
        for (key, seq) in [(&b""[..], 10), (b"", 9), (b"", 8), (b"apple", 8), (b"apple", 7), (b"apple", 5)]
            .into_iter()
            .chain([(&b"apple"[..], 3), (b"apple", 2), (b"b", 1), (b"zz", 1)])
        {
            let expected = entries
                .iter()
                .position(|entry| internal_cmp(&entry.0, SeqNo(entry.1), key, SeqNo(seq)).is_ge())
                .unwrap_or(take);
            assert_eq!(block.lower_bound(key, SeqNo(seq)), expected, "{key:?} {seq}");
        }
    }
    assert_eq!(Block::parse(Bytes::from(block_of(&[]))).expect("an empty block").len(), 0);
}

#[test]
fn no_byte_and_no_length_makes_parsing_panic() {
    let payload = block_of(&sample()[..4]);
    for length in 0..payload.len() {
        assert!(Block::parse(Bytes::copy_from_slice(&payload[..length])).is_err(), "cut to {length}");
    }
    for at in 0..payload.len() {
        for mask in [0x01, 0x80, 0xff] {
            let mut damaged = payload.clone();
            damaged[at] ^= mask;
            if let Ok(block) = Block::parse(Bytes::from(damaged)) {
                assert_eq!(block.entries().count(), block.len());
                block.lower_bound(b"apple", SeqNo(5));
            }
        }
    }
}
