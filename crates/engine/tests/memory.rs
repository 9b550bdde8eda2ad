//! One number for memory: whatever is written, merged and read, what the engine counts stays within the budget.

use shamba::{Db, MergePolicy, Sizing};
use tempfile::TempDir;

fn key(number: u64) -> [u8; 16] {
    let mixed = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    mixed.to_be_bytes()
}

/// Fills, merges, reads by point and range, and writes again; the highest sum of all that was charged.
fn peak_bytes(budget_bytes: u64, policy: MergePolicy, sizing: Sizing, entries: u64) -> u64 {
    let dir = TempDir::new().expect("a directory");
    let db = Db::builder(dir.path())
        .memory_budget(budget_bytes)
        .merge_policy(policy)
        .sizing(sizing)
        .open()
        .expect("opens");
    let value = [7u8; 100];
    for number in 0..entries {
        db.put(key(number), value).expect("put");
    }
    for number in (0..entries).step_by(7) {
        assert!(db.get(key(number)).expect("get").is_some(), "{number}");
        assert!(db.get(key(entries + number)).expect("get").is_none(), "{number}");
    }
    db.flush().expect("flush");
    db.wait_idle().expect("idle");
    let cursors: Vec<_> = (0..50)
        .map(|number| {
            let mut cursor = db.cursor();
            cursor.seek(key(number)).expect("seek");
            cursor
        })
        .collect();
    assert_eq!(db.iter().count() as u64, entries);
    for number in 0..entries / 2 {
        db.put(key(number), value).expect("put");
    }
    drop(cursors);
    db.compact().expect("compact");
    let memory = db.memory();
    assert!(memory.parts.iter().map(|(_, bytes)| bytes).sum::<u64>() == memory.ledger_bytes);
    assert!(memory.ledger_bytes <= memory.peak_bytes);
    assert!(memory.parts.iter().any(|(name, bytes)| name == "block cache" && *bytes > 0), "{memory}");
    db.close().expect("close");
    memory.peak_bytes
}

#[test]
fn what_is_counted_stays_within_the_budget() {
    for (budget_bytes, policy, sizing) in [
        (4 << 20, MergePolicy::Leveling, Sizing::Auto),
        (16 << 20, MergePolicy::Tiering, Sizing::Manual),
        (16 << 20, MergePolicy::Leveling, Sizing::Auto),
        (64 << 20, MergePolicy::LazyLeveling, Sizing::Manual),
    ] {
        let peak = peak_bytes(budget_bytes, policy, sizing, 150_000);
        assert!(peak <= budget_bytes, "{policy} {sizing}: {peak} of {budget_bytes}");
        // The budget is there to be used: the cache fills what the rest leaves, or holds all there is.
        assert!(peak >= (budget_bytes / 2).min(16 << 20), "{policy} {sizing}: {peak} of {budget_bytes}");
    }
}
