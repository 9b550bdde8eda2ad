//! The snapshots that a life holds, and what they have seen.

use shamba::{Db, Snapshot};

use super::LOG;
use super::judge::{Found, Model};

/// Maximum number of snapshots at a time.
const HELD_MAX: usize = 2;

/// A snapshot, which is read again and again.
struct Held {
    filtered: Snapshot,
    log: Snapshot,
    /// The first reading; `None` before it.
    first: Option<(u64, Found)>,
    /// The time at which it began.
    since_ms: u64,
    /// Whether another snapshot was held when it began, which may have held up drops.
    may_lose: bool,
}

/// The snapshots that are held, the oldest first.
#[derive(Default)]
pub(super) struct Readers {
    held: Vec<Held>,
    /// Number of readings, and of those that had lost data.
    reads: u64,
    shortened: u64,
}

impl Readers {
    /// Takes a snapshot after all work that is due was done: what it sees is not due then, unless
    /// another snapshot holds it.
    ///
    /// # Errors
    /// A failed call.
    pub(super) fn hold(&mut self, db: &Db, now_ms: u64) -> shamba::Result<()> {
        if self.held.len() == HELD_MAX {
            self.release();
        }
        db.wait_idle()?;
        let log = db.keyspace(LOG)?;
        let filtered = db.snapshot();
        let log = filtered.keyspace(&log);
        let may_lose = !self.held.is_empty();
        self.held.push(Held { filtered, log, first: None, since_ms: now_ms, may_lose });
        Ok(())
    }

    /// Drops the oldest snapshot.
    pub(super) fn release(&mut self) {
        if !self.held.is_empty() {
            self.held.remove(0);
        }
    }

    /// Drops all snapshots.
    pub(super) fn release_all(&mut self) {
        self.held.clear();
    }

    /// The time at which the oldest snapshot began.
    pub(super) fn oldest_ms(&self) -> Option<u64> {
        self.held.first().map(|held| held.since_ms)
    }

    /// Number of readings, and of those that had lost data.
    pub(super) fn reads(&self) -> (u64, u64) {
        (self.reads, self.shortened)
    }

    /// Reads all of every snapshot.
    ///
    /// # Errors
    /// A change of what it sees, or a failure.
    pub(super) fn look(&mut self, model: &Model, may_fail: bool) -> Result<(), String> {
        for Held { filtered, log, first, may_lose, .. } in &mut self.held {
            let now = match Found::read_in(filtered, log) {
                Err(_) if may_fail => continue,
                now => now?,
            };
            let Some((at, first)) = first else {
                *first = Some((model.issued(), now));
                continue;
            };
            first.is_still(&now, *may_lose)?;
            model.lost_the_oldest(*at, first, &now)?;
            self.reads += 1;
            self.shortened += u64::from(first.log_values().len() > now.log_values().len());
        }
        Ok(())
    }
}
