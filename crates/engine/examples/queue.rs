//! A queue in a database: puts at the tail, takes from the head, and scans from the start.
//!
//! Every take leaves a delete at the start of the key space, which a scan from the start passes.
//! Those in memtables go with the next flush. Those in tables go as soon as scans have lost more
//! time with them than their compaction takes. The bound on the age of deletes removes them where
//! nothing is scanned, too.
//!
//! ```text
//! cargo run --release -p shamba --example queue -- 1000000
//! ```
//!
//! The argument is the number of takes. The program prints the time of a scan, and how many deletes
//! are left in tables, after each tenth of them.

use std::error::Error;
use std::time::{Duration, Instant};

use shamba::{Db, Durability};

/// Entries in the queue.
const LENGTH: u64 = 1_000;
/// Takes per scan.
const SCAN_EVERY: u64 = 10;
/// Entries that a scan reads.
const SCANNED: usize = 10;

fn key(number: u64) -> String {
    format!("job:{number:012}")
}

fn main() -> Result<(), Box<dyn Error>> {
    let takes = std::env::args().nth(1).map_or(Ok(20_000), |count| count.parse())?;
    let directory = std::env::temp_dir().join(format!("shamba-queue-{}", std::process::id()));
    let db = Db::builder(&directory)
        .durability(Durability::NoSync)
        .memory_budget(32 << 20)
        .write_buffer(1 << 20)
        .tombstone_age_max(Duration::from_secs(24 * 3600))
        .open()?;
    for number in 0..LENGTH {
        db.put(key(number), format!("payload of job {number:070}"))?;
    }
    let (mut scans, mut scanning) = (0u32, Duration::ZERO);
    for head in 0..takes {
        db.put(key(head + LENGTH), format!("payload of job {head:070}"))?;
        db.delete(key(head))?;
        if head % SCAN_EVERY == 0 {
            let start = Instant::now();
            let first = db.iter().take(SCANNED).collect::<shamba::Result<Vec<_>>>()?;
            (scans, scanning) = (scans + 1, scanning + start.elapsed());
            let oldest = first.first().ok_or("the queue is empty")?;
            if oldest.0[..] != *key(head + 1).as_bytes() {
                return Err("the scan found another head".into());
            }
        }
        if (head + 1) % (takes / 10).max(1) == 0 {
            let stats = db.stats();
            let deletes: u64 = stats.levels.iter().map(|level| level.deletes).sum();
            println!(
                "after {:>9} takes: {:>9.1} us a scan, {deletes:>6} deletes in tables, {} compactions of deletes",
                head + 1,
                scanning.as_secs_f64() * 1e6 / f64::from(scans.max(1)),
                stats.tombstone_compactions
            );
            (scans, scanning) = (0, Duration::ZERO);
        }
    }
    db.close()?;
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
