//! Lives that bytes encode, and every crash of them.
//!
//! The first byte selects the options, the second one the kind of life; three bytes each are an
//! operation. The kinds:
//! - *committed*: every operation of a caller; a crash leaves the state of one commit
//!   ([`crate::crash`]);
//! - *followed*: the same with logs that are kept. A replica follows the life, and after each
//!   recovery the stream from the oldest position makes the recovered state;
//! - *ruled*: a compaction filter and a FIFO keyspace, with time that passes and snapshots that are
//!   held ([`crate::rules`]).

use std::ops::Bound;

use crate::crash::{Effort, Explorer, Recording};
use crate::ops::Op;
use crate::oracle::Change;
use crate::rules;
use crate::vectors::Vector;

/// Maximum number of operations of a life.
const OPS_MAX: usize = 24;
/// The same for a ruled one, whose operations are cheaper.
const RULED_OPS_MAX: usize = 48;
/// Approximate number of crashes of a ruled life.
const RULED_IMAGES: usize = 60;

/// The life that the bytes encode, and every crash of it under a sample of policies.
pub(super) fn operations(bytes: &[u8]) {
    let [options, seed, rest @ ..] = bytes else { return };
    let (options, seed) = (usize::from(*options), *seed);
    // Inputs that are older than the other kinds are committed lives, nearly all of them.
    match seed >> 6 {
        0 | 1 => committed(options, seed, rest, None),
        2 => committed(options, seed, rest, Some(seed & 0x20 != 0)),
        _ => ruled(options, seed, rest),
    }
}

fn committed(options: usize, seed: u8, rest: &[u8], follows_unsynced: Option<bool>) {
    let mut vector = Vector::numbered(u64::from(seed % 16), options);
    // A replica may have what another life loses.
    vector.follows_unsynced = follows_unsynced.filter(|_| vector.survives_kill());
    let ops: Vec<Op> = rest.chunks(3).take(OPS_MAX).map(operation).collect();
    let recording = match Recording::record(&vector, u64::from(seed), &ops) {
        Ok(recording) => recording,
        Err(error) => panic!("{ops:?}: {error}"),
    };
    let effort = Effort { policies_per_point: 1, points_step: 1, nested_one_in: 256, depth: 2 };
    if let Err(error) = Explorer::default().explore(&recording, effort, u64::from(seed)) {
        panic!("{ops:?}: {error}");
    }
}

/// Decodes three bytes as one operation.
fn operation(bytes: &[u8]) -> Op {
    let at = |index: usize| bytes.get(index).copied().unwrap_or(0);
    let space = usize::from(at(0) >> 7);
    let key = |byte: u8| format!("k/{:02}", byte % 16).into_bytes();
    let put = || Change::Put { space, key: key(at(1)), value: vec![at(2); usize::from(at(2)) * 3] };
    match at(0) % 16 {
        0..5 => Op::Write(put()),
        5..7 => Op::Write(Change::Delete { space, key: key(at(1)) }),
        7 => {
            let span = (Bound::Included(key(at(1))), Bound::Excluded(key(at(2))));
            Op::Write(Change::DeleteRange { space, span })
        }
        8..10 => {
            let changes = vec![put(), Change::Delete { space: 0, key: key(at(2)) }];
            Op::Batch { changes, sync: at(2) % 2 == 0 }
        }
        10 => Op::Flush,
        11 => Op::Compact,
        12 => Op::Sync,
        13 => Op::Reopen { clean: at(1) % 2 == 0, change_options: false },
        // Inputs that are older than merges had a snapshot here, which one in four still has.
        14 if at(1) >= 0x40 => {
            Op::Write(Change::Merge { space, key: key(at(1)), operand: vec![at(2); usize::from(at(2) % 32)] })
        }
        14 => Op::SnapshotTake,
        _ => Op::Checkpoint,
    }
}

/// A life with rules, and some of its crashes.
fn ruled(options: usize, seed: u8, rest: &[u8]) {
    let mut values = 0;
    let ops: Vec<rules::Op> =
        rest.chunks(3).take(RULED_OPS_MAX).map(|bytes| ruled_operation(bytes, &mut values)).collect();
    let plan = rules::Plan { seed: u64::from(seed), index: options, ops: ops.len() };
    let explored = rules::Life::record_ops(plan, &ops, None).and_then(|life| life.explore(RULED_IMAGES));
    if let Err(error) = explored {
        panic!("{ops:?}: {error}");
    }
}

/// Decodes three bytes as one operation of a ruled life; `values` is the number of values so far.
fn ruled_operation(bytes: &[u8], values: &mut u64) -> rules::Op {
    let at = |index: usize| bytes.get(index).copied().unwrap_or(0);
    let mut change = |is_log: bool, key: u8| {
        *values += 1;
        let bytes = usize::from(at(2)) * if is_log { 3 } else { 1 };
        let change = rules::Change::new(is_log, u32::from(key), *values, (usize::from(at(2)), bytes));
        if at(1) < 0x20 { rules::Change { value: None, ..change } } else { change }
    };
    match at(0) % 16 {
        0..9 => {
            let is_log = at(0) >= 0x80;
            let mut changes = vec![change(is_log, at(1))];
            if at(0) & 0x10 != 0 {
                changes.push(change(!is_log, at(2)));
            }
            rules::Op::Write { changes, sync: at(0) & 0x60 == 0x60 }
        }
        9 | 10 => rules::Op::Flush,
        11 => rules::Op::Compact,
        12 => rules::Op::Reopen { clean: at(1) % 2 == 0 },
        13 => rules::Op::Pass { ticks: 1 + u64::from(at(1)) % rules::TICKS_MAX },
        14 => rules::Op::Hold,
        _ if at(1) % 2 == 0 => rules::Op::Release,
        _ => rules::Op::Sync,
    }
}

/// Starting points of mutations: some of each kind.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let life = |number: u8, bytes: u8| {
        (0..bytes).map(move |at| at.wrapping_mul(37).wrapping_add(number * 11)).collect::<Vec<u8>>()
    };
    let of_kind = |number: u8, bits: u8, bytes: u8| {
        let mut life = life(number, bytes);
        life[1] = bits | number;
        life
    };
    let committed = (0..8).map(|number| life(number, 48));
    let followed = (0..4).map(|number| of_kind(number, 0x80 | (number & 1) << 5, 48));
    let ruled = (0..8).map(|number| of_kind(number, 0xc0, 122));
    committed.chain(followed).chain(ruled).collect()
}
