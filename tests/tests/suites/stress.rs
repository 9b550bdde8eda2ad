//! Suite G, all operations concurrently on real threads ([`shamba_tests::stress`]): the part that
//! runs in CI.
//!
//! A hang fails the whole run, by the runner's time limit.

use shamba::env::Effect;
use shamba::{Durability, MergePolicy};
use shamba_tests::stress;
use shamba_tests::tally::Tally;
use shamba_tests::vectors::{THRESHOLD_BYTES, Vector};

const ROUNDS: u64 = 6_000;

fn vector(policy: MergePolicy) -> Vector {
    let value_threshold = (policy != MergePolicy::Leveling).then_some(THRESHOLD_BYTES);
    Vector { write_buffer: 4 << 10, value_threshold, ..Vector::plain(policy) }
}

fn everything_at_once(policy: MergePolicy) {
    let tally = stress::everything_at_once(&vector(policy), 0, ROUNDS);
    tally.tell(&format!("stress-{policy}"), "suite G, everything at once");
    tally.require(&[("flushes during other work", 20), ("compactions during other work", 5)]);
}

#[test]
fn everything_at_once_under_leveling() {
    everything_at_once(MergePolicy::Leveling);
}

#[test]
fn everything_at_once_under_tiering() {
    everything_at_once(MergePolicy::Tiering);
}

#[test]
fn everything_at_once_under_lazy_leveling() {
    everything_at_once(MergePolicy::LazyLeveling);
}

#[test]
fn close_under_load_leaves_every_acknowledged_write() {
    for round in 0..20 {
        stress::close_under_load(&vector(MergePolicy::Tiering), 50 + round * 40);
    }
}

/// Without a log the memtables must go into tables, and no write may be acknowledged after the last
/// of them.
#[test]
fn close_under_load_without_a_log_leaves_every_acknowledged_write() {
    for round in 0..20 {
        let vector = Vector { no_wal: true, durability: Durability::NoSync, ..vector(MergePolicy::Tiering) };
        stress::close_under_load(&vector, 50 + round * 40);
    }
}

#[test]
fn storms_of_faults_under_threads() {
    let effects = [Effect::Eio, Effect::Enospc, Effect::ShortWrite, Effect::Emfile];
    let (mut faults, mut acked) = (0, 0);
    for round in 0..48u64 {
        let probability = [0.002, 0.01, 0.05][round as usize / 4 % 3];
        let effect = effects[round as usize % 4];
        let stormed = stress::storm(&vector(MergePolicy::Tiering), round, probability, effect);
        faults += stormed.faults;
        acked += stormed.acked;
    }
    Tally::of(&[("faults", faults), ("writes acknowledged", acked)])
        .tell("stress", "suite G, storms under threads");
    assert!(faults > 100 && acked > 1_000);
}
