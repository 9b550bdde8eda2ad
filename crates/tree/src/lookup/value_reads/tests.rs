//! Tests of reading many values: what comes back, in how many reads, and what an error spoils.

use shamba_env::{Env, ThreadSpawner};
use shamba_table::Compression;
use shamba_testkit::{Dice, memory_env};

use super::testing::{ValueRig, payload};
use super::*;

/// A pool with threads, and a clock at which each piece of work takes as long as `read_ns`.
fn pool(read_ns: u64) -> ReadPool {
    let env = memory_env(1);
    let clock = Arc::new(super::super::pool::testing::Ticking::new(read_ns));
    ReadPool::new(&Env { spawner: Arc::new(ThreadSpawner::new()), clock, ..env })
}

fn of(payloads: Vec<Result<Payload>>) -> Vec<Vec<u8>> {
    payloads.into_iter().map(|payload| payload.expect("readable").into_value().into_vec()).collect()
}

#[test]
fn random_values_come_back_in_the_order_in_which_they_were_wanted() {
    let pools = [None, Some(pool(0)), Some(pool(1_000_000))];
    for seed in 0..60 {
        println!("seed {seed}");
        let dice = Dice::new(seed);
        let mut rig = ValueRig::new();
        let mut values: Vec<(WantedValue, Vec<u8>)> = Vec::new();
        for _ in 0..1 + dice.below(3) {
            let length = || [1, 60, 1_000, 5_000, 70_000, 300_000][dice.below(6)] + dice.below(30);
            let payloads: Vec<_> = (0..1 + dice.below(40)).map(|salt| payload(length(), salt)).collect();
            let compression = [Compression::None, Compression::Lz4][dice.below(2)];
            values.extend(rig.write(&payloads, compression).into_iter().zip(payloads));
        }
        for pool in &pools {
            // Also the same value several times.
            let chosen: Vec<_> = (0..dice.below(60)).map(|_| &values[dice.below(values.len())]).collect();
            let wanted = chosen.iter().map(|(value, _)| value.clone()).collect();
            let ReadValues { payloads, cost, held_bytes } = read_values(wanted, pool.as_ref());
            let bytes = payloads.iter().flatten().map(|payload| payload.bytes().len()).sum::<usize>();
            let expected: Vec<_> = chosen.iter().map(|(_, payload)| payload.clone()).collect();
            assert_eq!(of(payloads), expected);
            assert_eq!(cost.count == 0, chosen.is_empty());
            // Duplicates share their bytes, and a read has gaps.
            assert!(held_bytes > 0 || bytes == 0, "{held_bytes} bytes for {bytes}");
        }
    }
}

/// Numbers of reads for values of these lengths, of which every `step`th is wanted.
fn reads(lengths: &[usize], step: usize) -> u64 {
    let mut rig = ValueRig::new();
    let payloads: Vec<_> = lengths.iter().map(|bytes| payload(*bytes, 1)).collect();
    let values = rig.write(&payloads, Compression::None);
    let mut wanted: Vec<_> = values.into_iter().step_by(step).collect();
    wanted.reverse(); // The order in which they are wanted does not matter.
    read_values(wanted, None).cost.count
}

#[test]
fn adjacent_values_take_one_read_unless_it_would_be_long() {
    assert_eq!(reads(&[100; 64], 1), 1);
    assert_eq!(reads(&[4_000; 64], 1), 1);
    // 256 KiB have 65 of them, with 9 bytes around each.
    assert_eq!(reads(&[4_000; 66], 1), 2);
    assert_eq!(reads(&[60_000; 8], 1), 2);
    // Values between them, of up to 4 KiB, are read in vain.
    assert_eq!((reads(&[100; 64], 38), reads(&[100; 64], 39)), (1, 2));
    assert_eq!(reads(&[100, 4_087, 100], 2), 1);
    assert_eq!(reads(&[100, 4_088, 100], 2), 2);
    // A value beyond the limit is read by itself, in pieces.
    assert_eq!(reads(&[100, 300_000, 100], 1), 2 + 5);
}

#[test]
fn values_of_different_files_take_reads_of_their_own() {
    let mut rig = ValueRig::new();
    let mut wanted = Vec::new();
    for salt in 0..3 {
        wanted.push(rig.write(&[payload(100, salt), payload(200, salt)], Compression::None));
    }
    // In turn, as a scan over three runs finds them.
    let in_turn = (0..2).flat_map(|number| wanted.iter().map(move |values| values[number].clone())).collect();
    let found = read_values(in_turn, None);
    assert_eq!(found.cost.count, 3);
    let expected: Vec<_> =
        [100, 200].iter().flat_map(|&bytes| (0..3).map(move |salt| payload(bytes, salt))).collect();
    assert_eq!(of(found.payloads), expected);
}

#[test]
fn a_damaged_value_spoils_no_other_of_its_read() {
    for compression in [Compression::None, Compression::Lz4] {
        let mut rig = ValueRig::new();
        let payloads: Vec<_> = (0..20).map(|salt| payload(500, salt)).collect();
        let values = rig.write(&payloads, compression);
        rig.damage(&values[7]);
        let found = read_values(values.clone(), None);
        assert_eq!(found.cost.count, 1);
        for (number, found) in found.payloads.into_iter().enumerate() {
            match found {
                Ok(found) => assert_eq!(found.bytes()[..], payloads[number][..]),
                Err(error) => {
                    assert_eq!(number, 7, "{error}");
                    assert!(error.to_string().contains("000001.values"), "{error}");
                }
            }
        }
        // The read of all of them fails.
        rig.cut_in(&values[15]);
        let found = read_values(values, None);
        let failed: Vec<_> = (0..20).filter(|number| found.payloads[*number].is_err()).collect();
        assert_eq!(failed, [7, 15, 16, 17, 18, 19]);
    }
}

#[test]
fn a_reference_that_cannot_be_of_its_file_reads_nothing() {
    let mut rig = ValueRig::new();
    let values = rig.write(&[payload(500, 0), payload(500, 1)], Compression::None);
    let mut wanted = values.clone();
    wanted[0].reference.offset = u64::MAX / 2;
    let found = read_values(wanted, None);
    assert!(matches!(found.payloads[0], Err(Error::Corruption { .. })), "{:?}", found.payloads[0]);
    assert_eq!((found.payloads[1].is_ok(), found.cost.count), (true, 1));
}

/// A caller that keeps one of many values must not keep all of them.
#[test]
fn a_kept_value_keeps_no_buffer_of_many_times_its_length() {
    let mut rig = ValueRig::new();
    let lengths = [2_000, 2_000, 2_000, 2_000, 9_000];
    let payloads: Vec<_> = lengths.iter().map(|bytes| payload(*bytes, 3)).collect();
    let found = read_values(rig.write(&payloads, Compression::None), None);
    let buffer_bytes = 17_000 + 5 * 9;
    assert_eq!((found.cost.count, found.held_bytes), (1, buffer_bytes));
    for (payload, bytes) in found.payloads.into_iter().zip(lengths) {
        let payload = payload.expect("readable");
        let lent = payload.bytes().as_ptr();
        let kept = payload.clone().into_value();
        assert_eq!(kept[..], payload.bytes()[..]);
        assert_eq!(kept.as_ptr() == lent, bytes > buffer_bytes / 4, "{bytes}");
        assert_eq!(payload.without_start(8).into_value()[..], kept[8..]);
    }
    // Alone it has a buffer of its own.
    let alone = read_values(rig.write(&payloads[..1], Compression::None), None);
    let payload = alone.payloads.into_iter().next().expect("one").expect("readable");
    assert_eq!(payload.clone().into_value().as_ptr(), payload.bytes().as_ptr());
    assert_eq!(payload.without_start(5_000).bytes().len(), 0);
}
