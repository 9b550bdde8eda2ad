//! Tests of values that are read later: which ones, how many at once, and where an error ends them.

use shamba_table::Compression;

use super::*;
use crate::lookup::value_reads::testing::{ValueRig, payload};

#[test]
fn the_limit_doubles_up_to_that_of_the_reader() {
    let limits = |walk: Walk| {
        let mut limits = vec![grown(None, walk)];
        for _ in 0..6 {
            limits.push(grown(limits.last().copied(), walk));
        }
        limits.iter().map(|bytes| bytes >> 10).collect::<Vec<_>>()
    };
    let parts = |ahead_bytes| Walk::Parts { fill_cache: true, ahead_bytes };
    assert_eq!(limits(parts(256 << 10)), [16, 32, 64, 128, 256, 256, 256]);
    assert_eq!(limits(parts(8 << 10)), [8; 7]);
    assert_eq!(limits(parts(0)), [0; 7]);
    assert_eq!(limits(Walk::Whole { bytes: 40 << 10 }), [16, 32, 40, 40, 40, 40, 40]);
}

#[test]
fn values_are_counted_before_they_are_read_and_come_without_their_expiry() {
    let mut rig = ValueRig::new();
    let payloads: Vec<_> = (0..5).map(|salt| payload(10_000, salt)).collect();
    // They take little space in the file, but not in memory.
    let values = rig.write(&payloads, Compression::Lz4);
    let stored_bytes: u32 = values.iter().map(|value| value.reference.stored_bytes).sum();
    assert!(stored_bytes < 40_000, "they are compressed: {stored_bytes}");
    let mut later = Later::default();
    for limit_bytes in [0, 1, 10_000, 10_001, 45_000] {
        later.begin(limit_bytes);
        assert!(later.is_empty());
        let mut pushed = 0;
        while pushed < values.len() && (pushed == 0 || !later.is_full()) {
            let WantedValue { file, reference } = values[pushed].clone();
            later.push(file, reference, if pushed == 1 { 8 } else { 0 });
            pushed += 1;
        }
        assert_eq!(pushed as u64, limit_bytes.div_ceil(10_000).max(1), "up to {limit_bytes} bytes");
        assert!(later.memory_bytes() >= pushed * 10_000);
        let found = later.read(None);
        assert!(found.error.is_none() && later.is_empty());
        assert_eq!((found.cost.values, found.cost.reads.count), (pushed as u64, 1));
        assert_eq!(found.held_bytes, pushed * 10_000);
        for (number, value) in found.values.iter().enumerate() {
            let skipped = if number == 1 { 8 } else { 0 };
            assert_eq!(value.bytes()[..], payloads[number][skipped..]);
        }
        assert_eq!(found.values.len(), pushed);
    }
}

#[test]
fn a_value_that_cannot_be_read_ends_them_before_it() {
    let mut rig = ValueRig::new();
    let payloads: Vec<_> = (0..6).map(|salt| payload(500, salt)).collect();
    let mut values = rig.write(&payloads, Compression::None);
    rig.damage(&values[1]);
    rig.damage(&values[4]);
    // In another order than in the file: the first entry in the order of the scan counts.
    values.swap(1, 3);
    let mut later = Later::default();
    later.begin(1 << 20);
    for WantedValue { file, reference } in values.iter().cloned() {
        later.push(file, reference, 0);
    }
    later.push(Arc::clone(&values[0].file), values[0].reference, 0);
    later.pop();
    let found = later.read(None);
    assert_eq!(found.values.len(), 3);
    let offset = values[3].reference.offset.to_string();
    assert!(found.error.expect("a damaged value").to_string().contains(&offset));
    assert!(later.is_empty(), "nothing is left of the others");
}
