//! The cost of many keyspaces, of empty ones and of ones with a table of 100 entries each: to
//! create them, to open and to flush, and the memory of idle ones.
//!
//! ```text
//! cargo run --release -p shamba --example many_keyspaces -- 1000
//! ```

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use shamba::Db;

/// Resident memory of this process in bytes; 0 where the system does not tell.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Opens the database and prints the time, and the memory of each of `count` keyspaces.
fn open(dir: &Path, count: u64, state: &str) -> shamba::Result<Db> {
    let (before_bytes, begun) = (resident_bytes(), Instant::now());
    let db = Db::open(dir)?;
    let (ms, resident) = (begun.elapsed().as_secs_f64() * 1e3, resident_bytes().saturating_sub(before_bytes));
    println!(
        "open with {count} {state}: {ms:.1} ms; for each {} bytes resident, {} bytes of the ledger",
        resident / count,
        db.memory().ledger_bytes / count
    );
    Ok(db)
}

fn main() -> Result<(), Box<dyn Error>> {
    let count: u64 = std::env::args().nth(1).map_or(Ok(50), |count| count.parse())?;
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path())?;
    let begun = Instant::now();
    (0..count).try_for_each(|number| db.keyspace(&format!("tenant {number}")).map(drop))?;
    println!("create: {:.2} ms each", begun.elapsed().as_secs_f64() * 1e3 / count as f64);
    db.close()?;
    let db = open(dir.path(), count, "empty ones")?;
    for number in 0..count {
        let tenant = db.keyspace(&format!("tenant {number}"))?;
        (0..100_u32).try_for_each(|key| tenant.put(key.to_be_bytes(), [7; 100]))?;
    }
    let begun = Instant::now();
    db.flush()?;
    println!("flush of all: {:.2} ms each", begun.elapsed().as_secs_f64() * 1e3 / count as f64);
    db.wait_idle()?;
    db.close()?;
    open(dir.path(), count, "with a table")?.close()?;
    Ok(())
}
