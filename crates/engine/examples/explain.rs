//! Explain: what a lookup touched and skipped, and what the engine would do to make it cheaper.
//!
//! ```text
//! cargo run --release -p shamba --example explain
//! ```

use std::error::Error;

use shamba::{Db, Outcome};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::builder(dir.path()).memory_budget(16 << 20).open()?;
    for number in 0..50_000u32 {
        db.put(format!("key {number:06}"), [0; 64])?;
    }
    db.flush()?;

    // The text lists each run in lookup order: filter modules tested and skipped, blocks read.
    let found = db.explain("key 000042")?;
    println!("{found}\n");
    let absent = db.explain("no such key")?;
    println!("{absent}\n");
    // One digest served every filter and index that the lookup asked.
    assert_eq!(absent.hashes, 1);
    assert_eq!(absent.outcome, Outcome::Absent);

    // Counters of the whole database, and its tree.
    let stats = db.stats();
    println!("{} tables written by {} flushes", db.tables().len(), stats.flushes);
    println!("{}", db.describe());
    Ok(())
}
