//! Reads of a run, compared with the oracle: points, scans, cursors, and the snapshots and
//! iterators that are kept.

use std::ops::Bound;

use shamba::Snapshot;

use super::{Held, READERS_MAX, Runner};
use crate::compare::{self, Surface, failed};
use crate::fifo;
use crate::ops::{Op, shown};
use crate::oracle::{Moment, SPACES};

impl Runner {
    /// Reads a key by every method.
    ///
    /// # Errors
    /// The difference, or a failure.
    pub(super) fn get(&mut self, space: usize, key: &[u8]) -> Result<(), String> {
        self.hashed_gets += 1;
        let spaces = self.spaces()?;
        let want = self.oracle.get(space, key, self.now());
        let surface = spaces.at(space).ok_or("keyspace missing")?;
        compare::point(surface, key, want)?;
        self.time_left(surface, (space, key), self.now())?;
        let hashed = spaces.db.hash_key(key);
        let got = match space {
            0 => spaces.db.get_hashed(&hashed),
            _ => spaces.others[space - 1].as_ref().ok_or("keyspace missing")?.get_hashed(&hashed),
        };
        compare::same_value("get_hashed", key, got.map_err(failed("get_hashed"))?.as_deref(), want)?;
        if space == 0 {
            let got = spaces.db.get_with(key, <[u8]>::to_vec).map_err(failed("get_with"))?;
            compare::same_value("get_with", key, got.as_deref(), want)?;
            let mut value = b"old content".to_vec();
            let found = spaces.db.get_into(key, &mut value).map_err(failed("get_into"))?;
            compare::same_value("get_into", key, found.then_some(value.as_slice()), want)?;
        }
        Ok(())
    }

    /// Compares the time that is left to a key. Where there are threads, the clock runs.
    fn time_left(&self, surface: &dyn Surface, place: (usize, &[u8]), at: Moment) -> Result<(), String> {
        let (space, key) = place;
        match self.env.spawner.is_inline() {
            true => compare::time_left(surface, key, self.oracle.time_left(space, key, at)),
            false => Ok(()),
        }
    }

    /// Reads several keys by one call.
    ///
    /// # Errors
    /// The difference, or a failure.
    pub(super) fn multi_get(&mut self, space: usize, keys: &[Vec<u8>]) -> Result<(), String> {
        let surface = self.spaces()?.at(space).ok_or("keyspace missing")?;
        let got = surface.read_many(keys).map_err(failed("multi_get"))?;
        if got.len() != keys.len() {
            return Err(format!("multi_get of {} keys gave {} answers", keys.len(), got.len()));
        }
        for (key, got) in keys.iter().zip(&got) {
            let want = self.oracle.get(space, key, self.now());
            compare::same_value("multi_get", key, got.as_deref(), want)?;
        }
        self.tally.add("multi_get keys", keys.len() as u64);
        Ok(())
    }

    /// Scans, or moves a cursor.
    ///
    /// # Errors
    /// The difference, or a failure.
    pub(super) fn scan(&mut self, op: &Op) -> Result<(), String> {
        let spaces = self.spaces()?;
        let (oracle, now) = (&self.oracle, self.now());
        let counted = match op {
            Op::Scan { space, span, reverse } => {
                let surface = spaces.at(*space).ok_or("keyspace missing")?;
                compare::scan(surface, span, *reverse, &oracle.pairs(*space, span, now))?;
                if *reverse { "scans, backward" } else { "scans, forward" }
            }
            Op::BothEnds { space, span, pattern } => {
                let surface = spaces.at(*space).ok_or("keyspace missing")?;
                let back = |step: usize| pattern >> (step % 64) & 1 == 1;
                compare::ends(surface.scan(span), "both ends", back, &oracle.pairs(*space, span, now))?;
                "scans, from both ends"
            }
            Op::Prefix { space, prefix, reverse } => {
                let surface = spaces.at(*space).ok_or("keyspace missing")?;
                let from = (Bound::Included(prefix.clone()), Bound::Unbounded);
                let want = oracle.range(*space, &from, now).take_while(|(key, _)| key.starts_with(prefix));
                let want = want.map(|(key, value)| (key.to_vec(), value.to_vec())).collect::<Vec<_>>();
                let what = format!("prefix {}", shown(prefix));
                compare::ends(surface.scan_prefix(prefix), &what, |_| *reverse, &want)?;
                "scans of a prefix"
            }
            Op::Walk { space, moves } => {
                let surface = spaces.at(*space).ok_or("keyspace missing")?;
                let everything = compare::everything();
                let pairs = oracle.range(*space, &everything, now).collect::<Vec<_>>();
                compare::walk(surface.walk(), moves, &pairs)?;
                "cursor walks"
            }
            _ => return Err(format!("{op:?} is no scan")),
        };
        self.tally.add(counted, 1);
        Ok(())
    }

    /// Takes, reads or drops a snapshot.
    ///
    /// # Errors
    /// The difference, or a failure.
    pub(super) fn snapshot(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::SnapshotTake => {
                let snapshot = self.spaces()?.db.snapshot();
                self.snapshots.push((snapshot, self.now()));
                if self.snapshots.len() > READERS_MAX {
                    let oldest = self.snapshots.remove(0);
                    self.end_of_snapshot(&oldest)?;
                }
                self.tally.add("snapshots", 1);
            }
            Op::SnapshotRead { slot, space, key, span } if !self.snapshots.is_empty() => {
                let (snapshot, at) = &self.snapshots[slot % self.snapshots.len()];
                let of_space = self.in_snapshot(snapshot, *space)?;
                let told = |error: String| format!("in a snapshot of {at:?}: {error}");
                if self.is_fifo(*space) {
                    return self.check_old(&of_space, *at).map_err(told);
                }
                compare::point(&of_space, key, self.oracle.get(*space, key, *at)).map_err(told)?;
                self.time_left(&of_space, (*space, key), *at).map_err(told)?;
                let want = self.oracle.pairs(*space, span, *at);
                compare::scan(&of_space, span, false, &want).map_err(told)?;
                compare::scan(&of_space, span, true, &want).map_err(told)?;
                self.tally.add("snapshot reads", 1);
            }
            Op::SnapshotDrop { slot } if !self.snapshots.is_empty() => {
                let dropped = self.snapshots.swap_remove(slot % self.snapshots.len());
                self.end_of_snapshot(&dropped)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// A keyspace of a snapshot.
    fn in_snapshot(&self, snapshot: &Snapshot, space: usize) -> Result<Snapshot, String> {
        Ok(match space.checked_sub(1) {
            None => snapshot.clone(),
            Some(other) => {
                snapshot.keyspace(self.spaces()?.others[other].as_ref().ok_or("keyspace missing")?)
            }
        })
    }

    /// Reads of every snapshot some values whose lives have ended since it began: it still sees
    /// them.
    ///
    /// # Errors
    /// The difference, or a failure.
    pub(super) fn snapshots_keep_their_time(&mut self) -> Result<(), String> {
        const KEYS_MAX: usize = 6;
        let now = self.now();
        let mut read = 0;
        for (snapshot, at) in &self.snapshots {
            for space in (0..SPACES.len()).filter(|space| !self.is_fifo(*space)) {
                let of_space = self.in_snapshot(snapshot, space)?;
                // Others each time.
                let ended = self.oracle.ended(space, *at, now.ms).skip(self.turn as usize % 3);
                for (key, value) in ended.step_by(3).take(KEYS_MAX) {
                    let told = |error: String| format!("in a snapshot of {at:?} at {} ms: {error}", now.ms);
                    compare::point(&of_space, key, Some(value)).map_err(told)?;
                    read += 1;
                }
            }
        }
        self.tally.add("ended values in snapshots", read);
        Ok(())
    }

    /// Reads all of a snapshot that is to be dropped: all this time nothing of it may go.
    fn end_of_snapshot(&self, (snapshot, at): &(Snapshot, Moment)) -> Result<(), String> {
        let told = |error: String| format!("at the end of a snapshot of {at:?}: {error}");
        for space in 0..SPACES.len() {
            let of_space = self.in_snapshot(snapshot, space)?;
            if self.is_fifo(space) {
                self.check_old(&of_space, *at).map_err(told)?;
                continue;
            }
            let want = self.oracle.pairs(space, &compare::everything(), *at);
            compare::scan(&of_space, &compare::everything(), false, &want).map_err(told)?;
        }
        Ok(())
    }

    fn is_fifo(&self, space: usize) -> bool {
        space == fifo::SPACE && self.vector.fifo.is_some()
    }

    /// Opens or advances an iterator that is kept.
    ///
    /// # Errors
    /// The difference, or a failure.
    pub(super) fn iterator(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::IterOpen { space, span } => {
                let iter = self.spaces()?.at(*space).ok_or("keyspace missing")?.scan(span);
                let rest = self.oracle.pairs(*space, span, self.now()).into();
                self.iterators.push(Held { space: *space, since_ms: self.env.clock.unix_ms(), iter, rest });
                if self.iterators.len() > READERS_MAX {
                    self.iterators.remove(0);
                }
                self.tally.add("iterators held", 1);
            }
            Op::IterStep { slot, back, steps } if !self.iterators.is_empty() => {
                let slot = slot % self.iterators.len();
                let held = &mut self.iterators[slot];
                for _ in 0..*steps {
                    let (got, want) = match back {
                        true => (held.iter.next_back(), held.rest.pop_back()),
                        false => (held.iter.next(), held.rest.pop_front()),
                    };
                    let ended = want.is_none();
                    compare::same_pair("a held iterator", got, want.as_ref())?;
                    if ended {
                        self.iterators.swap_remove(slot);
                        self.tally.add("held iterators walked to their end", 1);
                        break;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}
