//! A compaction filter: sessions carry the time of their last use, and compactions drop those that
//! are too old. No thread has to look for them.
//!
//! ```text
//! cargo run --release -p shamba --example retention
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shamba::filter::{CompactionFilter, FilterEntry, Verdict};
use shamba::{Db, KeyspaceOptions};

const SESSIONS: u64 = 1_000;
const AGE_MAX_S: u64 = 600;

/// Removes values whose first 8 bytes, a time in seconds, are too long ago.
struct Aged {
    now_s: Arc<AtomicU64>,
}

impl CompactionFilter for Aged {
    fn name(&self) -> &str {
        "example.aged.1"
    }

    fn filter(&self, entry: &FilterEntry<'_>) -> Verdict {
        let head = entry.value().and_then(|value| value.first_chunk());
        let age_s =
            head.map(|head| self.now_s.load(Ordering::Relaxed).saturating_sub(u64::from_be_bytes(*head)));
        if age_s.is_some_and(|age_s| age_s > AGE_MAX_S) { Verdict::Remove } else { Verdict::Keep }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::temp_dir().join(format!("shamba-retention-{}", std::process::id()));
    let now_s = Arc::new(AtomicU64::new(10_000));
    let aged = KeyspaceOptions::new().compaction_filter(Aged { now_s: Arc::clone(&now_s) });
    let db = Db::builder(&directory).keyspace("sessions", aged).open()?;
    let sessions = db.keyspace("sessions")?;
    for number in 0..SESSIONS {
        let used_s = now_s.fetch_add(1, Ordering::Relaxed);
        sessions.put(format!("session {number:04}"), used_s.to_be_bytes())?;
    }
    // Compactions of the background do the same for what they rewrite.
    db.compact()?;
    let left = sessions.keys(..).count() as u64;
    println!("{left} of {SESSIONS} sessions are left, {} were dropped", db.stats().entries_filtered);
    assert_eq!(left, AGE_MAX_S);
    drop(sessions);
    db.close()?;
    Ok(std::fs::remove_dir_all(&directory)?)
}
