//! The largest possible value with a budget sixteen times smaller. It is the only test of its
//! process, whose resident memory it measures.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use shamba::env::process_rss_bytes;
use shamba::{Compression, Db, Result};

const BYTES: usize = 256 << 20;
/// A value that is longer than what an open may take.
const FIRST_BYTES: usize = 64 << 20;
const BUDGET: u64 = 16 << 20;
/// Memory of the process besides the budget and the caller's own copies: the binary, stacks, memory
/// kept by the allocator.
const SLACK: u64 = 8 << 20;

/// Records the peak memory of the process while `work` runs.
fn peak_during<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let (stop, peak) = (AtomicBool::new(false), AtomicU64::new(0));
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                peak.fetch_max(process_rss_bytes().unwrap_or(0), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let result = work();
        stop.store(true, Ordering::Relaxed);
        result
    });
    (result, peak.into_inner())
}

/// Generates the bytes of the value, so that a comparison needs no second copy.
fn byte(at: usize) -> u8 {
    ((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

fn is_value(found: &[u8]) -> bool {
    found.len() == BYTES && found.iter().enumerate().step_by(4_093).all(|(at, found)| *found == byte(at))
}

fn open(path: &Path, no_wal: bool) -> Result<Db> {
    let builder =
        Db::builder(path).memory_budget(BUDGET).write_buffer(2 << 20).compression(Compression::None);
    builder.experimental(|e| e.no_wal(no_wal)).info_log(false).open()
}

/// Runs `work`, which may take at most the budget more than the process has.
fn within_budget(what: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let before = process_rss_bytes().unwrap_or(0);
    let (done, peak) = peak_during(work);
    println!("{what}: {} KiB more than {} at most", peak.saturating_sub(before) >> 10, before >> 10);
    assert!(peak <= before + BUDGET + SLACK, "{what}: {} MiB, {} before", peak >> 20, before >> 20);
    done
}

#[test]
fn the_largest_value_passes_through_a_small_budget() -> Result<()> {
    for no_wal in [false, true] {
        let home = tempfile::tempdir().expect("a directory");
        let dir = home.path().join("db");
        let mut db = open(&dir, no_wal)?;
        for number in 0..1_000 {
            db.put(format!("small{number:04}"), "1")?;
        }
        // The caller's value exists before; the additional memory of the put is the database's.
        let value: Vec<u8> = (0..BYTES).map(byte).collect();
        within_budget("put", || db.put("huge", &value))?;
        drop(value);
        let peak = db.memory().peak_bytes;
        assert!(peak <= BUDGET, "the ledger's peak is {} KiB", peak >> 10);
        if no_wal {
            within_budget("flush", || db.flush())?;
        }
        drop(db);
        let mut reopened = None;
        // The log is replayed, and the value moves from it into a table.
        within_budget("reopen", || {
            reopened = Some(open(&dir, no_wal)?);
            Ok(())
        })?;
        db = reopened.expect("opened");
        within_budget("merge", || {
            db.put("huge2", "makes the merge rewrite")?;
            db.flush()?;
            db.compact()
        })?;
        within_budget("verify", || {
            assert!(db.verify()?.is_clean());
            Ok(())
        })?;
        assert!(is_value(&db.get("huge")?.expect("there")));
        assert!(db.contains_key("huge")?);
        let mut seen = 0;
        for pair in db.iter() {
            let (key, found) = pair?;
            assert!(if key == "huge" { is_value(&found) } else { found.len() < 100 });
            seen += 1;
        }
        assert_eq!(seen, 1_002);
        within_budget("delete", || {
            db.delete("huge")?;
            db.compact()
        })?;
        let peak = db.memory().peak_bytes;
        assert!(peak <= BUDGET, "the ledger's peak is {} KiB", peak >> 10);
    }
    a_log_that_begins_with_a_long_value()
}

/// The first pass over a log looks at its first record.
fn a_log_that_begins_with_a_long_value() -> Result<()> {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("db");
    let db = open(&dir, false)?;
    let value: Vec<u8> = (0..FIRST_BYTES).map(byte).collect();
    db.put("first", &value)?;
    drop((db, value));
    within_budget("reopen with the value first", || open(&dir, false)?.close())
}
