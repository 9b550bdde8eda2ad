//! Bounded memory: one budget for caches, filters, indexes, memtables and compactions together.
//!
//! ```text
//! cargo run --release -p shamba --example bounded_memory
//! ```

use std::error::Error;

use shamba::{Db, Durability};

const BUDGET_BYTES: u64 = 16 << 20;
const ENTRIES: u64 = 200_000;

/// A key whose order is unrelated to `number`.
fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::builder(dir.path())
        .memory_budget(BUDGET_BYTES)
        .durability(Durability::Interval { ms: 100, bytes: 1 << 20 })
        .open()?;
    for number in 0..ENTRIES {
        db.put(key(number), [b'v'; 100])?;
    }
    // Waits for flushes and compactions; not needed for correctness.
    db.flush()?;
    db.wait_idle()?;
    for number in (0..ENTRIES).step_by(7) {
        assert!(db.contains_key(key(number))?, "key {number}");
    }

    // The ledger names every consumer; the parts are charged before they grow.
    let memory = db.memory();
    println!("{memory}");
    assert!(memory.peak_bytes <= BUDGET_BYTES, "{} of {BUDGET_BYTES} bytes", memory.peak_bytes);
    db.close()?;
    Ok(())
}
